#!/usr/bin/python3
"""Speed and memory of a trained ResNet-50 (or another model of make_resnet50.py) against PyTorch. By hand:

    make_resnet50.py && bench_resnet50.py [--batch 8] [--threads 2] [--rounds 5] [--budgets 100%,60%,40%,40%/60%,min]

40%/60% runs the program that was compiled for 60 % with --budget 40 %: in dynamic mode.
Both train with SGD and momentum on the same random batch.  Machines drift, so the runs alternate: in each round our
trainer at 100 %, PyTorch contiguous, PyTorch channels-last, and our trainer at the other budgets take turns; reported
is the median over rounds of the ratio to the better PyTorch time of the same round, and for the other budgets to our
own time at 100 %.  Rounds in which other programs took more than 5 % of the processors are not counted: PyTorch's
threads spin while they wait, so its times grow several-fold beside other work.  Memory: what the trainer asked for
against its budget, and the growth of the process over the trainer of a tiny model (libraries, code, data file),
which the budget does not cover.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)


class Others:
    """Share of the processors that went to other programs since this was made."""

    def __init__(self):
        self.busy, self.own, self.start = self.read()

    @staticmethod
    def read():
        with open("/proc/stat") as f:
            user, nice, system = map(int, f.readline().split()[1:4])
        t = os.times()
        return (user + nice + system) / os.sysconf("SC_CLK_TCK"), sum(t[:4]), time.monotonic()

    def share(self):
        busy, own, now = self.read()
        return max(0, (busy - self.busy) - (own - self.own)) / (now - self.start) / os.cpu_count()


def compile_trainer(dtrc, model, budget, out, batch, threads, planner):
    cmd = [dtrc, model, "--batch", str(batch), "--threads", str(threads), "--optimizer", "sgd:momentum=0.9", "-o", out]
    cmd += ["--budget", str(budget), "--planner", planner]
    subprocess.run(cmd, check=True, stdout=subprocess.DEVNULL)


def plan(dtrc, model, batch, threads, planner):
    cmd = [dtrc, "plan", model, "--batch", str(batch), "--threads", str(threads), "--optimizer", "sgd:momentum=0.9",
           "--budget", "100%", "--planner", planner, "--json"]
    return json.loads(subprocess.run(cmd, check=True, stdout=subprocess.PIPE).stdout.decode().strip().splitlines()[-1])


def run_trainer(trainer, data, steps, lr, more=()):
    """The trainer's summary. Its max_resident_bytes is the kernel's high-water mark of that program alone; what
    wait4 says would include this process, of which the child is a copy until it starts the trainer."""
    r = subprocess.run([trainer, "--data", data, "--batched", "--steps", str(steps), "--lr", str(lr), "--json", *more],
                       check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(r.stdout.decode().strip().splitlines()[-1])


TORCH = """
import sys, time, json, numpy as np, torch, torchvision, statistics
arch, data, threads, steps, lr, last = sys.argv[1:7]
torch.set_num_threads(int(threads))
torch.manual_seed(0)
z = np.load(data)
x, t = torch.from_numpy(z["image"][0]), torch.from_numpy(z["target"][0])
m = torchvision.models.get_model(arch, weights=None).train()
if last == "1":
    m, x = m.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
o = torch.optim.SGD(m.parameters(), lr=float(lr), momentum=0.9)
f = torch.nn.CrossEntropyLoss()
ms = []
for i in range(int(steps)):
    a = time.monotonic()
    o.zero_grad(set_to_none=True)
    loss = f(m(x), t)
    loss.backward()
    o.step()
    loss.item()
    ms.append(1e3 * (time.monotonic() - a))
print(json.dumps({"step_ms": statistics.median(ms[1:])}))
"""


def run_torch(arch, data, threads, steps, lr, channels_last):
    r = subprocess.run([sys.executable, "-c", TORCH, arch, data, str(threads), str(steps), str(lr),
                        str(int(channels_last))], check=True, stdout=subprocess.PIPE)
    return json.loads(r.stdout)["step_ms"]


def main():
    ap = argparse.ArgumentParser(description="dtrc against PyTorch, in alternating runs.")
    ap.add_argument("--dtrc", default=os.path.join(ROOT, "build", "release", "bin", "dtrc"))
    ap.add_argument("--model", default=os.path.join(HERE, "build", "resnet50.onnx"))
    ap.add_argument("--arch", default="resnet50")
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--size", type=int, default=224)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--steps", type=int, default=6, help="steps a run; the median counts")
    ap.add_argument("--budgets", default="100%,60%,40%,40%/60%,min")
    ap.add_argument("--planner", default="static")
    ap.add_argument("--no-torch", action="store_true")
    ap.add_argument("--json")
    a = ap.parse_args()
    work = tempfile.mkdtemp(prefix="dtrc-bench-")
    rng = np.random.RandomState(0)
    data = os.path.join(work, "data.npz")
    np.savez(data, image=rng.randn(1, a.batch, 3, a.size, a.size).astype(np.float32).repeat(a.steps, 0),
             target=np.arange(a.batch, dtype=np.int64)[None].repeat(a.steps, 0))
    p = plan(a.dtrc, a.model, a.batch, a.threads, a.planner)
    peak, low = p["peak_without_budget_bytes"], p["min_budget_bytes"]
    print(f"peak without recomputation {peak / 2**20:.1f} MiB, smallest budget {low / 2**20:.1f} MiB "
          f"({100 * low / peak:.0f} %)", flush=True)
    trainers, more = {}, {}
    for b in a.budgets.split(","):
        run_at, _, compiled_at = b.partition("/")
        if compiled_at:
            trainers[b], more[b] = trainers[compiled_at], ["--budget", str(peak * int(run_at.rstrip("%")) // 100)]
            continue
        size = low if b == "min" else peak * int(b.rstrip("%")) // 100
        if size < low:
            print(f"budget {b}: below the smallest one")
            continue
        start = time.monotonic()
        trainers[b] = os.path.join(work, "t" + b.rstrip("%"))
        compile_trainer(a.dtrc, a.model, size, trainers[b], a.batch, a.threads, a.planner)
        print(f"budget {b}: {size / 2**20:.1f} MiB, compiled in {time.monotonic() - start:.1f} s", flush=True)
    names = list(trainers)
    ours, torch_ms, last = {b: [] for b in names}, {False: [], True: []}, {}
    r = quiet = 0
    while quiet < a.rounds and r < 3 * a.rounds:
        others, row, r = Others(), {}, r + 1
        for b in names:
            last[b] = run_trainer(trainers[b], data, a.steps, 1e-4, more.get(b, []))
            row[b] = last[b]["step_ms"]
            if b == names[0] and not a.no_torch:
                for c in (False, True):
                    row[c] = run_torch(a.arch, data, a.threads, a.steps, 1e-4, c)
        share = others.share()
        print(f"round {r}: " + ", ".join(f"{b} {row[b]:.0f} ms" for b in names)
              + ("" if a.no_torch else f", torch {row[False]:.0f} ms, channels-last {row[True]:.0f} ms")
              + (f"; not counted: other programs took {100 * share:.0f} %" if share > 0.05 else ""), flush=True)
        if share <= 0.05:
            quiet += 1
            for b in names:
                ours[b].append(row[b])
            for c in () if a.no_torch else (False, True):
                torch_ms[c].append(row[c])
    if len({last[b]["weights_sha256"] for b in names}) > 1:
        sys.exit("the budgets do not give the same weights")
    if not quiet:
        sys.exit("this machine is not quiet enough to measure")
    result = {"peak_without_budget_bytes": peak, "min_budget_bytes": low, "rows": []}
    if not a.no_torch:
        best = [min(x, y) for x, y in zip(torch_ms[False], torch_ms[True])]
        result["over_torch"] = statistics.median(o / t for o, t in zip(ours[names[0]], best))
        print(f"our time over PyTorch's better one: {result['over_torch']:.3f} (median of {quiet} rounds)")
    tiny = tiny_summary(a.dtrc, work)
    for b in names:
        s = last[b]
        ratio = statistics.median(o / t for o, t in zip(ours[b], ours[names[0]]))
        grown = s["max_resident_bytes"] - tiny["max_resident_bytes"]
        library = s["library_bytes"] - tiny["library_bytes"]
        result["rows"].append({"budget": b, "budget_bytes": s["budget_bytes"], "peak_bytes": s["peak_bytes"],
                               "step_ms": statistics.median(ours[b]), "over_100": ratio, "rss_growth_bytes": grown,
                               "library_growth_bytes": library,
                               "recomputed_runs": s["recomputed_runs"]})
        print(f"{b:>5}: {statistics.median(ours[b]):8.1f} ms, {ratio:.3f} of {names[0]}; asked for "
              f"{s['peak_bytes'] / 2**20:.1f} of {s['budget_bytes'] / 2**20:.1f} MiB; process grew by "
              f"{grown / 2**20:.1f} MiB, {library / 2**20:.1f} of it the library's own; "
              f"{s['recomputed_runs']} runs again")
    if a.json:
        with open(a.json, "w") as f:
            json.dump(result, f, indent=1)


def tiny_summary(dtrc, work):
    """Summary of a trainer whose tensors take a few kilobytes."""
    case = os.path.join(ROOT, "tests", "data", "traces", "lr_schedule")
    trainer = os.path.join(work, "tiny")
    subprocess.run([dtrc, os.path.join(case, "model.onnx"), "--budget", "100%", "-o", trainer], check=True,
                   stdout=subprocess.DEVNULL)
    return run_trainer(trainer, os.path.join(case, "data.npz"), 6, 0.01)


if __name__ == "__main__":
    main()
