#!/usr/bin/python3
"""Every ONNX graph of a folder compiles for a budget and trains two steps, with new weights on synthetic data.

    run_graphs.py --dtrc build/release/bin/dtrc [--graphs ../shared/graphs] [--budget 50%] [--batch 2] [--timeout 600]
                  [GRAPH...]

The graphs need no weights (`--init kaiming`).  Where the budget is below what the planner can meet, the smallest that
it names is taken.  One row a graph: nodes of the step, seconds to compile, the memory without and with the budget,
operations that run twice, the losses of both steps.  A dimension of a length that has no size gets --length, halved as
long as the model's tables are shorter.  Last line: "N passed, N failed, 0 skipped".
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time


def run(args, timeout):
    try:
        p = subprocess.run(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout)
    except subprocess.TimeoutExpired:
        return 124, "", f"more than {timeout} s"
    return p.returncode, p.stdout.decode(errors="replace"), p.stderr.decode(errors="replace")


def compile_graph(opt, path, trainer, loss):
    """(exit status, output, messages, seconds); changes sizes and budget as the messages ask for."""
    dims, budget, length = [], opt.budget, opt.length
    for _ in range(8):
        start = time.time()
        args = [opt.dtrc, path, "--init", "kaiming", "--budget", budget, "--batch", str(opt.batch), "-o", trainer]
        rc, out, err = run([*args, *loss, *[x for d in dims for x in ("--dim", f"{d}={length}")]], opt.timeout)
        seconds = time.time() - start
        missing = re.search(r"dimensions without a size: (.*)", err)
        least = re.findall(r"\((\d+) bytes\)", err)
        if rc == 3 and len(least) > 1:
            budget = least[1]
        elif missing and not dims:
            dims = [d.strip(" '\"") for d in missing[1].split(",")]
        elif rc == 1 and dims and "is outside of axis" in err and length > 1:
            length //= 2
        elif rc == 1 and not loss and re.search("an output is '", err):  # several: the first will do
            loss = ["--loss", "mse:output=" + re.search("an output is '([^']*)'", err)[1]]
        else:
            break
    return rc, out, err, seconds


def attempt(opt, name, work, loss):
    """Compiles and trains; the row's text and the summary of the trainer, None when something failed."""
    path, trainer = os.path.join(opt.graphs, name + ".onnx"), os.path.join(work, "trainer")
    rc, out, err, seconds = compile_graph(opt, path, trainer, loss)
    if rc:
        return f"{name:24s} compile: exit {rc}: {' '.join(err.split())[:200]}", None
    nodes = re.search(r"(\d+) nodes", out)
    needs = re.search(r"needs (\S+ \S+) .*; (\S+ \S+) without recomputation", out)
    rc, out, err = run([trainer, "--synthetic", "--steps", "2", "--lr", "0.001", "--json"], opt.timeout)
    if rc:
        return f"{name:24s} train: exit {rc}: {' '.join(err.split())[-200:]}", None
    s = json.loads(out.strip().splitlines()[-1])
    text = (f"{name:24s} {nodes[1] if nodes else '-':>6s} {seconds:7.1f} {needs[2] if needs else '-':>12s} "
            f"{needs[1] if needs else '-':>12s} {s['recomputed_runs']:6d} {s['step_ms'] / 1e3:8.2f} "
            + " ".join(f"{x:.5g}" for x in s["losses"]))
    return text, s


def row(opt, name, work):
    """The row of one graph, and whether all went well."""
    text, s = attempt(opt, name, work, [])
    if s and not any(s["losses"]):  # cross-entropy of one class
        text, s = attempt(opt, name, work, ["--loss", "mse"])
    if not s:
        return text, False
    fits = s["peak_bytes"] <= s["budget_bytes"]
    return text + ("" if fits else "  MORE THAN THE BUDGET"), fits and len(s["losses"]) == 2


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    shared = os.environ.get("DTRC_SHARED") or os.path.join(os.path.dirname(os.path.dirname(here)), "..", "shared")
    ap = argparse.ArgumentParser(description="Graphs without weights, compiled for a budget and trained.")
    ap.add_argument("graph", nargs="*")
    ap.add_argument("--dtrc", required=True)
    ap.add_argument("--graphs", default=os.path.join(shared, "graphs"))
    ap.add_argument("--budget", default="50%")
    ap.add_argument("--batch", type=int, default=2)
    ap.add_argument("--length", type=int, default=64)
    ap.add_argument("--timeout", type=float, default=600)
    opt = ap.parse_args()
    opt.dtrc = os.path.abspath(opt.dtrc)
    names = opt.graph or sorted(f[:-5] for f in os.listdir(opt.graphs) if f.endswith(".onnx"))
    passed = 0
    print(f"{'graph':24s} {'nodes':>6s} {'compile':>7s} {'no budget':>12s} {'budget':>12s} {'again':>6s} {'s/step':>8s} losses")
    for name in names:
        with tempfile.TemporaryDirectory(prefix="dtrc-graph-") as work:
            text, ok = row(opt, name, work)
        passed += ok
        print(text if ok else "FAIL " + text, flush=True)
    print(f"{passed} passed, {len(names) - passed} failed, 0 skipped")
    return passed != len(names)


if __name__ == "__main__":
    sys.exit(main())
