#!/usr/bin/python3
"""Step time and memory of full-size models on a GPU: dtrc at 100, 50 and 30 % of the peak, beside PyTorch.

    bench.py --dtrc DTRC --models FOLDER [--seconds N]

Lines "NAME|STATUS|DETAIL" for tests/gpu/check.sh. Times are medians of the same run on the same machine. PyTorch
trains the same network (own definitions below, random weights) with the same batch, in f32 without TF32: eager,
torch.compile, and torch.utils.checkpoint over its blocks, whose peak dtrc is then compiled for.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

STEPS = 12
CASES = {"resnet50": ["--batch", "64"], "gpt2_small": ["--batch", "8", "--dim", "T=512"]}


def say(name, status, detail):
    print(f"{name}|{status}|{detail}", flush=True)


class Bench:
    def __init__(self, opt):
        self.opt, self.end = opt, time.time() + opt.seconds

    def left(self):
        return self.end - time.time()

    def call(self, command):
        p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=max(10, self.left()))
        if p.returncode:
            raise RuntimeError(f"status {p.returncode}: {p.stderr.decode(errors='replace').strip()[-200:]}")
        return p.stdout.decode(), p.stderr.decode(errors="replace")

    def trainer(self, case, budget, out):
        self.call([self.opt.dtrc, os.path.join(self.opt.models, case + ".onnx"), "--target", "cuda", "--gpu-arch",
                   self.opt.arch, "--device", self.opt.device, "--init", "kaiming", "--budget", budget, "-o", out]
                  + CASES[case])

    def run(self, out, *more):
        text, notes = self.call([out, "--synthetic", "--steps", str(STEPS), "--lr", "0.001", "--json", *more])
        return json.loads(text.strip().splitlines()[-1]), notes

    def dtrc(self, case, budget, work, base):
        """One row; the summary."""
        name = f"{case}, {budget}"
        out = os.path.join(work, "trainer")
        try:
            self.trainer(case, budget, out)
            s, _ = self.run(out)
            text = f"{s['step_ms']:.1f} ms, peak {s['peak_bytes'] >> 20} MiB, {s['recomputed_runs']} runs again"
            if base:
                text += f", {s['step_ms'] / base['step_ms']:.2f} of 100 %"
                if s["weights_sha256"] != base["weights_sha256"]:
                    say(name, "FAILED", text + "; other weights than at 100 %")
                    return s
            if s["peak_bytes"] > s["budget_bytes"]:
                say(name, "FAILED", text + f"; budget {s['budget_bytes']}")
                return s
            say(name, "ok", text)
            return s
        except (RuntimeError, subprocess.TimeoutExpired, OSError) as e:
            say(name, "FAILED", str(e)[:150])
        finally:
            if os.path.exists(out):
                os.unlink(out)

    def twice(self, case, work):
        """The same bits from two runs, enqueued, and in dynamic mode; what lies beside the budget."""
        out = os.path.join(work, "trainer")
        try:
            self.trainer(case, "60%", out)
            runs = [self.run(out), self.run(out), self.run(out, "--graph", "off"), self.run(out, "--mode", "dynamic")]
            same = len({s["weights_sha256"] for s, _ in runs}) == 1
            say(f"{case}, the same bits", "ok" if same else "FAILED", "two runs, enqueued, dynamic")
            say(f"{case}, beside the budget", "-", f"{runs[0][0]['library_bytes'] >> 20} MiB of libraries and kernels")
        except (RuntimeError, subprocess.TimeoutExpired, OSError) as e:
            say(f"{case}, the same bits", "FAILED", str(e)[:150])
        finally:
            if os.path.exists(out):
                os.unlink(out)

    def case(self, case, work):
        if not os.path.exists(os.path.join(self.opt.models, case + ".onnx")):
            say(case, "skipped", "the model is not there")
            return
        base = self.dtrc(case, "100%", work, None)
        for budget in ["50%", "30%"]:
            if base and self.left() > 30:
                self.dtrc(case, budget, work, base)
        if base and self.left() > 40:
            self.twice(case, work)
        if base and self.left() > 40:
            self.torch(case, work, base)

    def torch(self, case, work, base):
        for kind in ["eager", "checkpoint", "compile"]:
            if self.left() < 30:
                say(f"{case}, torch {kind}", "skipped", "no time left")
                continue
            try:
                text, _ = self.call([sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                                                  "torch_models.py"), case, kind])
                t = json.loads(text.strip().splitlines()[-1])
            except (RuntimeError, subprocess.TimeoutExpired, ValueError, IndexError) as e:
                say(f"{case}, torch {kind}", "skipped", str(e)[-150:].replace("\n", " "))
                continue
            say(f"{case}, torch {kind}", "-", f"{t['step_ms']:.1f} ms, peak {t['peak_bytes'] >> 20} MiB")
            if kind == "eager":
                ratio = base["step_ms"] / t["step_ms"]
                say(f"{case}, 100 % against eager", "ok" if ratio <= 1 else "slower", f"{ratio:.2f} of its time")
            if kind == "checkpoint":
                s = self.dtrc(case, str(t["peak_bytes"]), work, None)
                if s:
                    ratio = s["step_ms"] / t["step_ms"]
                    say(f"{case}, at checkpoint's peak", "ok" if ratio < 1 else "slower", f"{ratio:.2f} of its time")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--dtrc", required=True)
    ap.add_argument("--models", required=True)
    ap.add_argument("--seconds", type=float, default=240)
    ap.add_argument("--arch", default="sm_90")
    ap.add_argument("--device", default="h200")
    opt = ap.parse_args()
    bench = Bench(opt)
    with tempfile.TemporaryDirectory(prefix="dtrc-gpu-") as work:
        for case in CASES:
            bench.case(case, work)


if __name__ == "__main__":
    main()
