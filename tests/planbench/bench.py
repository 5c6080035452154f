#!/usr/bin/env python3
"""Scores dtrc's planners on the planning benchmark and prints the table beside the published columns.

    tests/planbench/bench.py [--dtrc PATH] [--graphs resnet32,unet] [--ratios 90,50,20] [--planners static,dtr]
                             [--arena | --both] [--effort N] [--smallest] [--json FILE]

Every plan is replayed by the benchmark's own score.py, which has the last word on overhead and bytes. Budgets are parts of
the live peak. Byte accounting unless --arena; --both adds the first planner in an arena, and marks it "a" where it is more
than 1.5 points (unet: 3) behind its byte plan at 50 % or above. Other marks: "!" worse than the best of dtr, dtr_eq, dtr_local; "+" more than 0.3
points behind lookahead_grid; "b" a bound below the reference's by more than 0.1 points, "B" a bound above a plan.
--smallest: also the smallest budget at no more than twice the time, by bisection to 0.5 %.

Graphs lie in $DTRC_SHARED/planbench, else ../shared/planbench beside the repository. Standard library only.
"""
import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ONLINE = ("dtr", "dtr_eq", "dtr_local")
COLUMNS = ONLINE + ("lookahead_grid", "search_60s", "lower_bound")
HEAD = {"lookahead_grid": "grid", "search_60s": "search", "lower_bound": "bound", "dtr_local": "local"}
GEOMEAN_GRAPHS = ("resnet32", "unet", "densenet121", "transformer")
GEOMEAN_AIMS = {50: 0.64, 30: 0.54, 20: 0.36}
SMALLEST_AIMS = {"resnet32": 940e6, "unet": 2100e6, "densenet121": 1300e6}


def folder():
    shared = os.environ.get("DTRC_SHARED") or os.path.join(os.path.dirname(ROOT), "shared")
    return os.path.join(shared, "planbench")


def score(graph, plan=None, budget=None):
    """(dict, None) or (None, message) of score.py."""
    args = [sys.executable, os.path.join(folder(), "score.py"), graph]
    if plan:
        args += [plan, "--budget", str(budget)]
    r = subprocess.run(args, capture_output=True, text=True)
    if r.returncode:
        return None, (r.stderr or r.stdout).strip()[-300:]
    return json.loads(r.stdout), None


class Result:
    """status: ok, infeasible, or what went wrong; overhead of score.py; bound and planner that dtrc printed."""

    def __init__(self, status, overhead=None, bound=None, planner=None, seconds=0.0, score=None):
        self.status, self.overhead, self.bound, self.planner = status, overhead, bound, planner
        self.seconds, self.score = seconds, score

    def text(self):
        return f"{100 * self.overhead:.2f}" if self.status == "ok" else "-" if self.status == "infeasible" else "ERROR"


def plan(dtrc, graph, budget, planner, accounting="bytes", effort=None):
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, "plan.json")
        args = [dtrc, "plan", graph, "--budget", str(budget), "--accounting", accounting, "--planner", planner, "-o", out]
        if effort is not None:
            args += ["--effort", str(effort)]
        t = time.monotonic()
        r = subprocess.run(args, capture_output=True, text=True)
        seconds = time.monotonic() - t
        if r.returncode == 3:
            return Result("infeasible", seconds=seconds)
        if r.returncode:
            return Result(f"dtrc: status {r.returncode}: {r.stderr.strip()[-300:]}", seconds=seconds)
        bound = re.search(r"lower bound ([0-9.]+) %", r.stdout)
        which = re.search(r"planner ([\w-]+), ([0-9]+) ms", r.stdout)
        s, error = score(graph, out, budget)
        if error:
            return Result(f"score.py: {error}", seconds=seconds)
        return Result("ok", s["overhead"], float(bound.group(1)) / 100 if bound else None, which.group(1) if which else None,
                      float(which.group(2)) / 1000 if which else seconds, s)


def numbers(row, names):
    return [row[c] for c in names if isinstance(row.get(c), (int, float))]


def marks(row, r):
    """What the issue asks of a plan in byte accounting."""
    best, grid = numbers(row, ONLINE), numbers(row, ("lookahead_grid",))
    m = ""
    if r.status not in ("ok", "infeasible"):
        return "ERROR"
    if r.status == "infeasible":
        return "!" if numbers(row, ONLINE + ("lookahead_grid", "search_60s")) else ""
    if best and r.overhead > min(best) + 5e-5:
        m += "!"
    if grid and r.overhead > grid[0] + 0.003 + 5e-5:
        m += "+"
    if r.bound is not None and row.get("lower_bound") is not None and r.bound < row["lower_bound"] - 0.001 - 5e-5:
        m += "b"
    if r.bound is not None and r.bound > r.overhead + 1e-4:
        m += "B"
    return m


def cell(v):
    return "" if v is None else f"{100 * v:.2f}" if isinstance(v, (int, float)) else {"infeasible": "-"}.get(v, v)


def geomean(values):
    return math.exp(sum(math.log(max(v, 1e-6)) for v in values) / len(values)) if values else None


def smallest(dtrc, graph, info, planner, accounting, effort):
    """The smallest budget met with an overhead of at most 1, to 0.5 %."""
    low, high = info["floor_bytes"], info["live_peak_bytes"]
    while high - low > high / 200:
        mid = (low + high) // 2
        r = plan(dtrc, graph, mid, planner, accounting, effort)
        if r.status == "ok" and r.overhead <= 1:
            high = mid
        else:
            low = mid
    return high


def run_graph(o, name, ref, ratios, planners, results):
    graph = os.path.join(folder(), ref["file"])
    info, error = score(graph)
    if error:
        sys.exit(f"{graph}: {error}")
    rows = {round(100 * x["ratio_of_live_peak"]): x for x in ref["rows"]}
    print(f"\n{name}: {info['ops']} operators, {info['live_peak_bytes'] / 1e6:.1f} MB, constants {info['const_bytes'] / 1e6:.1f} MB")
    heads = ["%"] + [HEAD.get(c, c) for c in COLUMNS] + ["|"] + planners + ["arena"] * o.both + ["our bound", "gap", "s", ""]
    print(" ".join(f"{h:>9}" for h in heads))
    for ratio in ratios:
        row = rows.get(ratio, {})
        budget = int(ratio * info["live_peak_bytes"] // 100)
        got = [plan(o.dtrc, graph, budget, p, o.accounting, o.effort) for p in planners]
        first = got[0]
        arena = plan(o.dtrc, graph, budget, planners[0], "arena", o.effort) if o.both else None
        mark = marks(row, first) if o.accounting == "bytes" else ""
        if o.both and ratio >= 50 and first.status == "ok":
            allowed = 0.03 if name == "unet" else 0.015
            mark += "a" * (arena.status != "ok" or arena.overhead > first.overhead + allowed)
        bound = first.bound if first.status == "ok" else None
        gap = first.overhead - bound if bound is not None else None
        cells = [str(ratio)] + [cell(row.get(c)) for c in COLUMNS] + ["|"] + [r.text() for r in got]
        cells += [arena.text()] if o.both else []
        cells += [cell(bound), cell(gap), f"{first.seconds:.2f}", mark]
        print(" ".join(f"{c:>9}" for c in cells), flush=True)
        for p, r in zip(planners, got):
            if r.status not in ("ok", "infeasible"):
                print(f"    {p}: {r.status}")
            results.append(dict(graph=name, ratio=ratio, budget=budget, planner=p, status=r.status, overhead=r.overhead,
                                bound=r.bound, made_by=r.planner, seconds=round(r.seconds, 3), reference=row,
                                marks=mark if r is first else marks(row, r),
                                arena=arena.overhead if o.both and r is first else None))
    if o.smallest:
        b = smallest(o.dtrc, graph, info, planners[0], o.accounting, o.effort)
        aim = SMALLEST_AIMS.get(name)
        print(f"    smallest budget at twice the time: {b / 1e6:.1f} MB ({100 * b / info['live_peak_bytes']:.1f} %)"
              + (f", aim {aim / 1e6:.0f} MB{'' if b <= aim else ': MISSED'}" if aim else ""), flush=True)
        results.append(dict(graph=name, planner=planners[0], smallest_budget=b))


def summary(o, ratios, planners, results):
    print()
    for p in planners:
        mine = [r for r in results if r["planner"] == p and "ratio" in r]
        for ratio in ratios:
            of = [(r["overhead"], r["reference"]["dtr"], r["bound"] or 0) for r in mine if r["ratio"] == ratio and r["status"] == "ok"
                  and r["graph"] in GEOMEAN_GRAPHS and numbers(r["reference"], ("dtr",))]
            if ratio not in GEOMEAN_AIMS or not of:
                continue
            print(f"{p} at {ratio} %: overhead over dtr's, geometric mean of {len(of)} graphs: "
                  f"{geomean([a / b for a, b, _ in of]):.3f} (aim {GEOMEAN_AIMS[ratio]}; of its bounds "
                  f"{geomean([c / b for _, b, c in of]):.3f})")
        if o.accounting == "bytes":
            worse = [f"{r['graph']} {r['ratio']} {r['marks']}" for r in mine if r["marks"]]
            print(f"{p}: {len(mine)} cases, marked: {', '.join(worse) or 'none'}; slowest {max(r['seconds'] for r in mine):.1f} s")


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--dtrc", default=os.path.join(ROOT, "build/release/bin/dtrc"))
    a.add_argument("--graphs", help="names, separated by commas (default: all)")
    a.add_argument("--ratios", default="90,80,70,60,50,40,30,20,10", help="percent of the live peak")
    a.add_argument("--planners", default="static,dtr", help="the first one is the one that is judged")
    a.add_argument("--arena", dest="accounting", action="store_const", const="arena", default="bytes")
    a.add_argument("--both", action="store_true", help="byte accounting, and the first planner in an arena too")
    a.add_argument("--effort", type=int)
    a.add_argument("--smallest", action="store_true", help="smallest budget at no more than twice the time")
    a.add_argument("--json", help="all results as JSON")
    o = a.parse_args()
    if o.both and o.accounting == "arena":
        a.error("--both counts bytes first")
    if not os.path.isdir(folder()):
        sys.exit(f"no folder {folder()}")
    with open(os.path.join(folder(), "reference.json")) as f:
        reference = {k: v for k, v in json.load(f).items() if "rows" in v}
    graphs = o.graphs.split(",") if o.graphs else list(reference)
    unknown = [g for g in graphs if g not in reference]
    if unknown:
        sys.exit(f"unknown graphs {unknown}: there are {list(reference)}")
    ratios, planners, results = [int(x) for x in o.ratios.split(",")], o.planners.split(","), []
    for g in graphs:
        run_graph(o, g, reference[g], ratios, planners, results)
    summary(o, ratios, planners, results)
    if o.json:
        with open(o.json, "w") as f:
            json.dump(results, f, indent=1)


if __name__ == "__main__":
    main()
