#!/usr/bin/env python3
"""Plans of our own training steps, as a Markdown table: overhead, proven bound, arena, planning time. By hand.

    tests/planbench/real_graphs.py [--dtrc PATH] [--graphs resnet50,unet_64] [--budgets 70%,50%,30%,25%,min]
                                   [--planner NAME] [--large] [--bytes]

SGD with momentum, weights and optimizer state included in every budget; percentages are of the peak without recomputation,
min is the smallest budget that the planner meets. "-": below that. user and MB: processor seconds and resident memory of
the whole `dtrc plan` for that budget. --large: ResNet-1202 at batch 64 (14,447 nodes) instead, for planning time.
--bytes: sums of bytes instead of addresses. Graphs lie in $DTRC_SHARED/graphs, else ../shared/graphs beside the repository;
where they are not there, nothing is done. Standard library only.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CASES = [("resnet50", ["--batch", "32"]), ("densenet121", ["--batch", "32"]), ("unet_64", ["--batch", "8"]),
         ("gpt2_small", ["--batch", "8", "--dim", "T=1024"]), ("vit_l_16", ["--batch", "32"])]
LARGE = [("resnet1202", ["--batch", "64"])]
INFEASIBLE = 3


class Run:
    """One command: status, output, processor seconds, resident megabytes."""

    def __init__(self, cmd):
        with tempfile.TemporaryFile() as out:
            child = subprocess.Popen(cmd, stdout=out, stderr=subprocess.STDOUT)
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = self.status = os.waitstatus_to_exitcode(status)
            out.seek(0)
            self.text = out.read().decode(errors="replace")
        self.user, self.mb = usage.ru_utime, usage.ru_maxrss / 1024
        if self.status not in (0, INFEASIBLE):
            sys.exit(f"status {self.status}: {' '.join(cmd)}\n{self.text[-800:]}")

    def number(self, pattern):
        m = re.search(pattern, self.text)
        if not m:
            sys.exit(f"no {pattern} in the report:\n{self.text[:800]}")
        return float(m.group(1))


def cells(base, budget, plan):
    """The table's cells for one budget, and the run."""
    r = Run(base + ["--budget", str(budget), "-o", plan])
    if r.status == INFEASIBLE:
        return ["-", "-", "-", "-", "-"], r
    with open(plan) as f:
        p = json.load(f)
    overhead, bound = r.number(r"overhead ([-\d.]+) %"), r.number(r"lower bound ([-\d.]+) %")
    ms = r.number(r", (\d+) ms[),]")
    return [f"{overhead:.2f}", f"{bound:.2f}", f"{overhead - bound:.2f}", f"{p['arena_bytes'] / 2**20:.0f}", f"{ms:.0f}"], r


def main():
    ap = argparse.ArgumentParser(description="Plans of our own training steps.")
    ap.add_argument("--dtrc", default=os.path.join(ROOT, "build", "release", "bin", "dtrc"))
    ap.add_argument("--graphs")
    ap.add_argument("--budgets", default="70%,50%,30%,25%,min")
    ap.add_argument("--planner", default="static")
    ap.add_argument("--large", action="store_true")
    ap.add_argument("--bytes", action="store_true")
    a = ap.parse_args()
    folder = os.path.join(os.environ.get("DTRC_SHARED") or os.path.join(os.path.dirname(ROOT), "shared"), "graphs")
    if not os.path.isdir(folder):
        print(f"skipped: {folder} is not there")
        return
    print("| step | nodes | peak, MiB | budget | overhead, % | bound, % | gap | arena, MiB | planning, ms | user, s | MB |")
    print("|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="dtrc-real-") as work:
        for name, options in LARGE if a.large else CASES:
            if a.graphs and name not in a.graphs.split(","):
                continue
            base = [a.dtrc, "plan", os.path.join(folder, name + ".onnx"), "--optimizer", "sgd:momentum=0.9", "--planner",
                    a.planner] + options + (["--accounting", "bytes"] if a.bytes else [])
            first = json.loads(Run(base + ["--budget", "100%", "--json"]).text.strip().splitlines()[-1])
            peak, low = first["peak_without_budget_bytes"], first["min_budget_bytes"]
            for b in a.budgets.split(","):
                budget = low if b == "min" else peak * int(b.rstrip("%")) // 100
                row, r = cells(base, budget, os.path.join(work, "plan.json"))
                shown = f"min ({100 * low / peak:.1f} %)" if b == "min" else b.replace("%", " %")
                print("| " + " | ".join([name, str(first["nodes"]), f"{peak / 2**20:.0f}", shown] + row
                                        + [f"{r.user:.1f}", f"{r.mb:.0f}"]) + " |", flush=True)


if __name__ == "__main__":
    main()
