#!/usr/bin/python3
"""Accuracy of trained digits weights, computed by numpy alone: it shares no code with dtrc.

    eval_digits.py WEIGHTS.safetensors DATA.npz [--at-least PERCENT]

Prints the share of samples that are classified correctly; exit status 1 below PERCENT.
"""
import argparse
import json
import sys

import numpy as np


def read_safetensors(path):
    raw = open(path, "rb").read()
    n = int.from_bytes(raw[:8], "little")
    out = {}
    for name, e in json.loads(raw[8:8 + n]).items():
        if name != "__metadata__" and e["dtype"] == "F32":
            lo, hi = e["data_offsets"]
            out[name] = np.frombuffer(raw[8 + n + lo:8 + n + hi], "<f4").reshape(e["shape"])
    return out


def conv3x3(x, w, b):
    """Same-size convolution of x [n,c,h,w] with w [m,c,3,3]."""
    h, wd = x.shape[2:]
    p = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    y = sum(np.einsum("nchw,mc->nmhw", p[:, :, i:i + h, j:j + wd], w[:, :, i, j]) for i in range(3) for j in range(3))
    return y + b[None, :, None, None]


def pool2x2(x):
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).max(axis=(3, 5))


def forward(w, x):
    for i in range(1, 7):
        x = np.maximum(conv3x3(x, w[f"conv{i}.weight"], w[f"conv{i}.bias"]), 0)
        if i in (4, 6):
            x = pool2x2(x)
    return x.reshape(len(x), -1) @ w["fc.weight"].T + w["fc.bias"]


def main():
    ap = argparse.ArgumentParser(description="Accuracy of trained digits weights.")
    ap.add_argument("weights")
    ap.add_argument("data")
    ap.add_argument("--at-least", type=float, default=0, metavar="PERCENT")
    a = ap.parse_args()
    data = np.load(a.data)
    right = np.argmax(forward(read_safetensors(a.weights), data["image"]), axis=1) == data["target"]
    percent = 100 * right.mean()
    print(f"accuracy {percent:.2f} % ({right.sum()} of {len(right)})")
    return int(percent < a.at_least)


if __name__ == "__main__":
    sys.exit(main())
