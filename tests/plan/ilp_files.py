#!/usr/bin/env python3
"""Checks that other solvers read what `dtrc plan -d ilp` writes, and agree with it.

    tests/plan/ilp_files.py --dtrc PATH

Small training graphs are planned by ilp, a tiny one by ilp-checkmate, too; glpsol and cbc solve the written programs. Their least value is
not below the proven bound, and for ilp-checkmate it is the plan's overhead. Exit status 77 when neither solver is there.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GRAPHS = [("chain", "6", ("ilp", "ilp-checkmate")), ("mlp", "2", ("ilp",)), ("unet", "2", ("ilp",))]
UNITS = 1e5  # of the objective, in one run of each node
TOLERANCE = 2e-5


def glpsol(path, folder):
    out = os.path.join(folder, "glpsol.txt")
    r = subprocess.run(["glpsol", "--lp", path, "-o", out], capture_output=True, text=True)
    if "PROBLEM HAS NO" in r.stdout:
        return None
    text = open(out).read()
    assert r.returncode == 0 and "OPTIMAL" in text, r.stdout
    return float(re.search(r"Objective:\s+cost = (\S+)", text).group(1))


def cbc(path, folder):
    r = subprocess.run(["cbc", path, "ratio", "0", "allow", "0", "solve"], capture_output=True, text=True)
    if "infeasible" in r.stdout:
        return None
    assert "Optimal solution found" in r.stdout, r.stdout
    return float(re.search(r"Objective value:\s+(\S+)", r.stdout).group(1))


def plan(dtrc, graph, budget, planner):
    r = subprocess.run([dtrc, "plan", graph, "--accounting", "bytes", "--budget", budget, "--planner", planner, "--json",
                        "-d", "ilp"], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    program, report = r.stdout.split("\nEnd\n")
    return program + "\nEnd\n", json.loads(report)


def check(dtrc, solvers, graph, name, planners, folder):
    base = json.loads(subprocess.run([dtrc, "plan", graph, "--accounting", "bytes", "--json"], capture_output=True, text=True,
                                     check=True).stdout)
    budget = (base["floor_bytes"] + 2 * base["peak_without_budget_bytes"]) // 3
    for planner in planners:
        program, report = plan(dtrc, graph, str(budget), planner)
        assert max(map(len, program.splitlines())) < 255, "a line is too long for some readers"
        path = os.path.join(folder, "program.lp")
        with open(path, "w") as f:
            f.write(program)
        values = [solve(path, folder) for solve in solvers]
        print(f"{name} {planner}: {report['ilp_status']} {report['overhead']:.6f}, solvers: {values}")
        assert report["ilp_status"] == "optimal"
        assert len({None if v is None else round(v, 1) for v in values}) == 1, "the solvers disagree"
        if planner == "ilp-checkmate":
            assert abs(values[0] / UNITS - report["overhead"]) < TOLERANCE
        elif values[0] is not None:
            assert values[0] / UNITS < report["overhead"] + TOLERANCE


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtrc", required=True)
    dtrc = parser.parse_args().dtrc
    solvers = [f for f in (glpsol, cbc) if shutil.which(f.__name__)]
    if not solvers:
        print("skipped: neither glpsol nor cbc is installed")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        for kind, size, planners in GRAPHS:
            graph = os.path.join(folder, f"{kind}.json")
            with open(graph, "w") as f:
                subprocess.run([sys.executable, os.path.join(ROOT, "tests/planbench/training_graphs.py"), kind, size],
                               stdout=f, check=True)
            check(dtrc, solvers, graph, f"{kind} {size}", planners, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
