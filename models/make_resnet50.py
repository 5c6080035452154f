#!/usr/bin/python3
"""Exports a torchvision model with seeded random weights, in training mode, with the symbolic batch dimension N.

    make_resnet50.py [--arch resnet50] [--size 224] [--classes 1000] [-o models/build/resnet50.onnx]

Nothing is downloaded. Needs python3-torch and python3-torchvision.
"""
import argparse
import os

import torch
import torchvision


def main():
    ap = argparse.ArgumentParser(description="Exports a torchvision model for training.")
    ap.add_argument("--arch", default="resnet50")
    ap.add_argument("--size", type=int, default=224)
    ap.add_argument("--classes", type=int, default=1000)
    ap.add_argument("-o", "--out")
    a = ap.parse_args()
    out = a.out or os.path.join(os.path.dirname(os.path.abspath(__file__)), "build", a.arch + ".onnx")
    os.makedirs(os.path.dirname(os.path.abspath(out)), exist_ok=True)
    torch.manual_seed(0)
    model = torchvision.models.get_model(a.arch, weights=None, num_classes=a.classes).train()
    # The exporter must neither fold batch norm into convolutions nor drop what only training needs.
    torch.onnx.export(model, torch.randn(2, 3, a.size, a.size), out, training=torch.onnx.TrainingMode.TRAINING,
                      do_constant_folding=False, opset_version=15, input_names=["image"], output_names=["logits"],
                      dynamic_axes={"image": {0: "N"}, "logits": {0: "N"}})
    print(f"{out}: {os.path.getsize(out) / 2 ** 20:.0f} MiB, {sum(p.numel() for p in model.parameters())} parameters")


if __name__ == "__main__":
    main()
