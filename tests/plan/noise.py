#!/usr/bin/python3
"""How much a plan suffers when the costs it was made with are off: every node's time is multiplied by a random factor
within the noise, the planner plans with those, and the plan is evaluated with the true times.

    noise.py --dtrc build/release/bin/dtrc [--noise 0.2] [--seeds 4] [--budgets 70,50,30] [MODEL [OPTION...]]

Without a model: the benchmark's graphs and traces in $DTRC_SHARED (default ../shared beside the repository); those that
are absent are skipped. Prints one line a model and budget: overhead in % of the plan made with true times, and mean and
worst overhead of the plans made with noisy ones. Both kinds come from the same planner and budget in bytes. Options stand
before the model.
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHARED = os.environ.get("DTRC_SHARED", os.path.join(os.path.dirname(ROOT), "shared"))
CASES = [["graphs/resnet50.onnx", "--batch", "32"], ["graphs/densenet121.onnx", "--batch", "32"],
         ["graphs/vit_b_16.onnx", "--batch", "32"], ["planbench/simrd/resnet32.log.gz"],
         ["planbench/simrd/densenet121.log.gz"], ["planbench/simrd/unet.log.gz"],
         ["planbench/simrd/transformer.log.gz"]]


def dtrc(opt, case, *args):
    """The output; None when the budget cannot be met."""
    p = subprocess.run([opt.dtrc, "plan", *case, "--threads", "2", *args], stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, text=True)
    if p.returncode == 3:
        return None
    if p.returncode:
        sys.exit(f"{' '.join(case)} {' '.join(args)}: status {p.returncode}\n{p.stderr}")
    return p.stdout


def read_costs(text):
    head = re.match(r"# graph (\w+), target (\w+), threads (\d+)", text)
    rows = {int(m[1]): int(m[2]) for m in re.finditer(r"^ *(\d+) \S+ +(\d+) ns", text, re.M)}
    return head, rows


def write_profile(path, head, ns):
    nodes = [{"node": n, "min_ns": t} for n, t in ns.items() if t]
    with open(path, "w") as f:
        json.dump({"format": "dtrc-profile", "version": 1, "graph": head[1], "target": head[2],
                   "threads": int(head[3]), "nodes": nodes}, f)


def overhead(path, ns):
    """Of the plan in a file, with these times."""
    steps = json.load(open(path))["steps"]
    total = sum(ns[int(s[1])] for s in steps if s[0] == "run")
    return 100 * (total / sum(ns.values()) - 1)


def measure(opt, case, budget, tmp):
    head, ns = read_costs(dtrc(opt, case, "-d", "cost", "-s", "cost"))
    plan, noisy = os.path.join(tmp, "plan.json"), os.path.join(tmp, "noisy.json")
    if dtrc(opt, case, "--budget", f"{budget}%", "-o", plan) is None:
        return None
    size = str(json.load(open(plan))["budget_bytes"])
    true = overhead(plan, ns)
    got = []
    for seed in range(1, opt.seeds + 1):
        rng = random.Random(seed)
        write_profile(noisy, head, {n: t and max(1, round(t * rng.uniform(1 - opt.noise, 1 + opt.noise)))
                                    for n, t in ns.items()})
        if dtrc(opt, case, "--budget", size, "--costs", noisy, "-o", plan) is not None:
            got.append(overhead(plan, ns))
    return true, got


def main():
    ap = argparse.ArgumentParser(description="Sensitivity of plans to noise in costs.")
    ap.add_argument("--dtrc", required=True)
    ap.add_argument("--noise", type=float, default=0.2)
    ap.add_argument("--seeds", type=int, default=4)
    ap.add_argument("--budgets", default="70,50,30")
    ap.add_argument("--at-most", type=float, metavar="POINTS", help="fail when the mean loss is larger")
    ap.add_argument("model", nargs=argparse.REMAINDER)
    opt = ap.parse_args()
    opt.dtrc = os.path.abspath(opt.dtrc)
    cases = [opt.model] if opt.model else [[os.path.join(SHARED, c[0]), *c[1:]] for c in CASES]
    worse = []
    print(f"{'model':24} budget  true %   mean %  worst %  no plan")
    with tempfile.TemporaryDirectory(prefix="dtrc-noise-") as tmp:
        for case in cases:
            name = os.path.basename(case[0])
            if not os.path.exists(case[0]):
                print(f"{name:24} skipped: not there")
                continue
            for budget in opt.budgets.split(","):
                r = measure(opt, case, budget, tmp)
                if r is None:
                    print(f"{name:24} {budget:>4} %   no plan")
                    continue
                true, got = r
                if got:
                    worse += [g - true for g in got]
                    print(f"{name:24} {budget:>4} % {true:7.2f}  {sum(got) / len(got):7.2f}  {max(got):7.2f}  "
                          f"{opt.seeds - len(got):7}", flush=True)
    if not worse:
        print("no model was there, or none had a plan")
        return 77
    print(f"points lost to noise: mean {sum(worse) / len(worse):.2f}, worst {max(worse):.2f}, best {min(worse):.2f}")
    return int(opt.at_most is not None and sum(worse) / len(worse) > opt.at_most)


if __name__ == "__main__":
    sys.exit(main())
