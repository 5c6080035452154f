#!/usr/bin/python3
"""Memory that cannot be had: every allocation of a training program fails in turn.

    run_failures.py --dtrc build/release/bin/dtrc [--all] [--jobs N]

Also: under a limit on addresses that the compiled plan does not fit in, the program goes into dynamic
mode by itself and gives the same weights; under a lower one it ends with status 4.

A model of tests/data/traces is compiled and trained with fail_alloc.c preloaded, which lets the k-th
allocation fail, or the k-th and all later ones. The run must end with the weights of the undisturbed
run, or with status 4 and a message; the checkpoint that was there before must be whole, or the new
one in its place, with nothing left beside it. Without --all every few of the allocations fail.

"N passed, N failed, N skipped" on the last line; a check is one run.
"""
import argparse
import concurrent.futures
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TRACES = os.path.join(os.path.dirname(HERE), "data", "traces")
CASE = "resnet_mini"
LARGE = "densenet_mini"  # takes any batch
FEW = 70  # runs of each kind without --all
OLD = b"the checkpoint of the day before"


def build(opt, tmp):
    shim, trainer = os.path.join(tmp, "fail_alloc.so"), os.path.join(tmp, "trainer")
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", os.path.join(HERE, "fail_alloc.c"), "-o", shim,
                    "-ldl"], check=True)
    folder = os.path.join(TRACES, CASE)
    batch = next(iter(json.load(open(os.path.join(folder, "trace.json")))["inputs"].values()))["shape"][0]
    subprocess.run([opt.dtrc, os.path.join(folder, "model.onnx"), "--batch", str(batch), "--budget", "80%", "--threads", "2",
                    "-o", trainer], check=True, stdout=subprocess.DEVNULL)
    return shim, [trainer, "--data", os.path.join(folder, "data.npz"), "--batched", "--steps", "2", "--lr", "0.05",
                  "--json", "--save"]


def train(command, shim, saved, **env):
    full = dict(os.environ, OMP_WAIT_POLICY="passive", LD_PRELOAD=shim, **env)
    return subprocess.run([*command, saved], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=full, timeout=120)


def digest(p):
    return json.loads(p.stdout.decode().strip().splitlines()[-1])["weights_sha256"]


def disturbed(command, shim, tmp, want, variable, k):
    """None, or what is wrong."""
    folder = tempfile.mkdtemp(dir=tmp)
    saved = os.path.join(folder, "w.safetensors")
    with open(saved, "wb") as f:
        f.write(OLD)
    p = train(command, shim, saved, **{variable: str(k)})
    left, err = os.listdir(folder), p.stderr.decode(errors="replace")
    now = open(saved, "rb").read() if os.path.exists(saved) else b""
    shutil.rmtree(folder)
    if left != ["w.safetensors"]:
        return f"files beside the checkpoint: {left}"
    if p.returncode == 0:
        if digest(p) != want[0] or now != want[1]:
            return "status 0, but other weights"
        return None
    if p.returncode != 4 or "error: " not in err:
        return f"status {p.returncode}: {err[-300:]}"
    if now not in (OLD, want[1]):
        return "the checkpoint is broken"
    return None


def under(command, limit):
    """"static", "dynamic" or "refused", and the digest, with `limit` bytes of addresses."""
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120,
                       env=dict(os.environ, OMP_WAIT_POLICY="passive"),
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    err = p.stderr.decode(errors="replace")
    if p.returncode == 4 and "error: " in err:
        return "refused", None
    if p.returncode:
        raise ValueError(f"status {p.returncode} under {limit} bytes: {err[-300:]}")
    s = json.loads(p.stdout.decode().strip().splitlines()[-1])
    if s["mode"] == "dynamic" and "memory" not in err:
        raise ValueError(f"dynamic mode without a word of memory: {err[-300:]}")
    return s["mode"], s["weights_sha256"]


def little_memory(opt, tmp):
    """Bisects limits between a low one and one that is ample, until dynamic mode is met."""
    trainer = os.path.join(tmp, "large")
    subprocess.run([opt.dtrc, os.path.join(TRACES, LARGE, "model.onnx"), "--batch", "1024", "--threads", "2", "-o", trainer],
                   check=True, stdout=subprocess.DEVNULL)
    command = [trainer, "--synthetic", "--steps", "1", "--json"]
    low, high = 1 << 27, 1 << 32 # below 128 MiB the libraries do not load
    mode, want = under(command, high)
    if mode != "static":
        return f"mode {mode} under {high} bytes"
    middle = low
    while high - low > 1 << 16:
        mode, got = under(command, middle)
        if mode != "refused" and got != want:
            return f"other weights in {mode} mode under {middle} bytes"
        if mode == "dynamic":
            return None
        low, high = (middle, high) if mode == "refused" else (low, middle)
        middle = (low + high) // 2
    return "no limit brings dynamic mode"


def main():
    ap = argparse.ArgumentParser(description="Every allocation of a training program fails in turn.")
    ap.add_argument("--dtrc", required=True)
    ap.add_argument("--all", action="store_true", help="each allocation, not every few")
    ap.add_argument("--jobs", type=int, default=os.cpu_count())
    opt = ap.parse_args()
    tmp = tempfile.mkdtemp(prefix="dtrc-failures-")
    shim, command = build(opt, tmp)
    count, saved = os.path.join(tmp, "count"), os.path.join(tmp, "whole.safetensors")
    p = train(command, shim, saved, FAIL_COUNT=count)
    if p.returncode:
        print(f"FAIL undisturbed run: status {p.returncode}: {p.stderr.decode()[-500:]}")
        print("0 passed, 1 failed, 0 skipped")
        return 1
    want, n = (digest(p), open(saved, "rb").read()), int(open(count).read())
    stride = 1 if opt.all else max(1, n // FEW)
    work = [(v, k) for v in ("FAIL_AT", "FAIL_FROM") for k in range(1 + (v == "FAIL_FROM") * stride // 2, n + 1, stride)]
    passed = failed = 0
    with concurrent.futures.ThreadPoolExecutor(opt.jobs) as pool:
        for (v, k), wrong in zip(work, pool.map(lambda w: disturbed(command, shim, tmp, want, *w), work)):
            passed, failed = passed + (wrong is None), failed + (wrong is not None)
            if wrong:
                print(f"FAIL {v}={k} of {n}: {wrong}")
    try:
        wrong = little_memory(opt, tmp)
    except ValueError as e:
        wrong = str(e)
    passed, failed = passed + (wrong is None), failed + (wrong is not None)
    if wrong:
        print(f"FAIL little memory: {wrong}")
    shutil.rmtree(tmp)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
