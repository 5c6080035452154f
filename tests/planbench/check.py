#!/usr/bin/env python3
"""The quick part of the planning benchmark: plans for the benchmark's graphs, for the small traces in tests/data/planning,
for random logs and for models' training steps as logs, each replayed by the benchmark's score.py. Prints "N passed, N failed, N skipped" last.

    tests/planbench/check.py [--dtrc PATH] [--seeds N]

Checked: score.py accepts every plan at its budget; its byte peak and overhead are those that dtrc states in the plan; dtrc's
own verifier accepts the file; in byte accounting no plan of `static` is worse than the best published `dtr` column.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

import bench

RATIOS = (80, 50)
# Percent of the way from the floor to the live peak.
SMALL = (("bytes", "static", 100), ("bytes", "static", 20), ("bytes", "dtr", 50), ("arena", "static", 30), ("arena", "dtr", 40),
         ("bytes", "sqrt", 70))


MODELS = ("resnet_mini", "gpt_mini", "transformer_encoder", "mobilenetv2_mini")


class Count:
    passed = failed = skipped = 0

    def check(self, name, errors):
        if errors:
            self.failed += 1
            print(f"FAIL {name}: {'; '.join(errors)}", flush=True)
        else:
            self.passed += 1


def line(kind, **fields):
    return json.dumps({"INSTRUCTION": kind, **fields})


def random_log(seed):
    """A log with every instruction: views with and without time, of several outputs, of constants; mutations; copies."""
    r = random.Random(seed)
    out, names, shared, count = [], [], set(), [0]

    def fresh():
        count[0] += 1
        return r.choice(("x", "s", "é\\\"")) + str(count[0])

    def results(k, alias):
        for _ in range(k):
            n = fresh()
            out.append(line("MEMORY", NAME=n, MEMORY=str(r.choice((0, 1, 100, 256, 1000, r.randrange(5000))))))
            out.append(line("ALIAS", NAME=n, ALIAS=str(alias)))
            yield n

    def call(op, args, k, alias, time):
        at = len(out)
        made = list(results(k, alias))
        out.insert(at, line("CALL", NAME=op, ARGS=args, RESULT=made, TIME=str(time)))
        names.extend(made)

    out.append(line("CALL", NAME="dropped", ARGS=[], RESULT=[], TIME="1"))
    out.append(line("ANNOTATE", ANNOTATION="START"))
    for _ in range(r.randrange(1, 4)):
        n = fresh()
        out += [line("CONSTANT", NAME=n), line("MEMORY", NAME=n, MEMORY=str(r.randrange(2000)))]
        names.append(n)
    for i in range(r.randrange(15, 80)):
        near = names[-r.randrange(1, 8):]
        args = [r.choice(near if r.random() < 0.7 else names) for _ in range(r.randrange(0, 4))]
        kind = r.random()
        if kind < 0.25 and args:
            call("view", args[:r.choice((1, 1, 1, 3))], r.choice((1, 1, 2)), 0, r.choice((0, 0, 3)))
        elif kind < 0.35 and args:
            m = r.randrange(len(args))
            if args[m] not in shared and args.count(args[m]) == 1:
                out.append(line("MUTATE", NAME="add_", ARGS=args, MUTATE=[m], TIME=str(r.randrange(9))))
        elif kind < 0.42 and args:
            n = fresh()
            out.append(line("COPY", DST=n, SRC=args[0]))
            shared.update((args[0], n))   # two variables of one tensor: a mutation of both would make one name twice
            names.append(n)
        else:
            call("op", args, r.choice((0, 1, 1, 1, 2, 3)), -1, r.randrange(1, 100))
        if r.random() < 0.3:
            out.append(line("RELEASE", NAME=r.choice(names)))
    for n in names:
        if r.random() < 0.95:
            out.append(line("RELEASE", NAME=n))
    return "\n".join(out) + "\n"


def planned(dtrc, graph, budget, planner, accounting, d):
    """(errors or None when infeasible, overhead)"""
    out = os.path.join(d, "plan.json")
    r = subprocess.run([dtrc, "plan", graph, "--budget", str(budget), "--planner", planner, "--accounting", accounting,
                        "-o", out], capture_output=True, text=True)
    if r.returncode == 3:
        return None, None
    if r.returncode:
        return [f"dtrc plan: status {r.returncode}: {r.stderr.strip()[-200:]}"], None
    s, error = bench.score(graph, out, budget)
    if error:
        return [f"score.py: {error}"], None
    errors = []
    with open(out, encoding="utf-8") as f:
        plan = json.load(f)
    slack = 2e-3 if plan["base_cost_ns"] < 100000 else 1e-4   # times of 0 count as 1 ns
    if abs(plan["cost_ns"] / max(plan["base_cost_ns"], 1) - 1 - s["overhead"]) > slack:
        errors.append(f"overhead: dtrc {plan['cost_ns']}/{plan['base_cost_ns']}, score.py {s['overhead']}")
    if accounting == "bytes" and plan["byte_peak"] + plan["persistent_bytes"] != s["byte_peak"]:
        errors.append(f"byte peak: dtrc {plan['byte_peak']} + {plan['persistent_bytes']}, score.py {s['byte_peak']}")
    r = subprocess.run([dtrc, "verify", graph, out], capture_output=True, text=True)
    if r.returncode:
        errors.append(f"dtrc verify: {r.stderr.strip()[-200:]}")
    return errors, s["overhead"]


def check_benchmark(dtrc, count, d):
    with open(os.path.join(bench.folder(), "reference.json"), encoding="utf-8") as f:
        reference = {k: v for k, v in json.load(f).items() if "rows" in v}
    for name, ref in reference.items():
        graph = os.path.join(bench.folder(), ref["file"])
        peak = bench.score(graph)[0]["live_peak_bytes"]
        rows = {round(100 * x["ratio_of_live_peak"]): x for x in ref["rows"]}
        for ratio in RATIOS:
            row = rows.get(ratio, {})
            best = bench.numbers(row, bench.ONLINE)
            # Where nobody has a plan, the search for the smallest budget takes long and shows nothing.
            planners = ["dtr"] * bool(bench.numbers(row, ("dtr",))) + ["static"] * bool(best)
            for accounting in ("bytes", "arena"):
                for planner in planners:
                    errors, overhead = planned(dtrc, graph, peak * ratio // 100, planner, accounting, d)
                    if accounting == "bytes" and planner == "static":
                        if errors is None:
                            errors = [f"no plan, published {min(best)}"]
                        elif overhead is not None and overhead > min(best) + 5e-5:
                            errors.append(f"overhead {overhead}, published {min(best)}")
                    if errors is not None:
                        count.check(f"{name} {ratio} % {accounting} {planner}", errors)


def check_small(dtrc, count, d, path):
    info, error = bench.score(path)
    if error:
        count.check(path, [f"score.py: {error}"])
        return
    for accounting, planner, ratio in SMALL:
        budget = info["floor_bytes"] + (info["live_peak_bytes"] - info["floor_bytes"]) * ratio // 100
        if accounting == "arena":
            budget += 256 * info["tensors"]   # everything is rounded up
        errors, _ = planned(dtrc, path, budget, planner, accounting, d)
        if errors is None and ratio == 100:
            errors = ["no plan at the live peak"]
        if errors is not None:
            count.check(f"{path} {ratio} % {accounting} {planner}", errors)


def check_models(dtrc, count, d):
    """Models' own training steps as logs: the same time and constants, no smaller peak, and plans that replay."""
    for name in MODELS:
        log = os.path.join(d, f"{name}.log")
        model = os.path.join(bench.ROOT, "tests/data/traces", name, "model.onnx")
        r = subprocess.run([dtrc, "plan", model, "--threads", "1", "--accounting", "bytes", "--emit-log", log, "--json"],
                           capture_output=True, text=True)
        if r.returncode:
            count.check(name, [f"dtrc plan: status {r.returncode}: {r.stderr.strip()[-200:]}"])
            continue
        ours, (info, error) = json.loads(r.stdout), bench.score(log)
        if error:
            count.check(name, [f"score.py: {error}"])
            continue
        pairs = (("nodes", "ops"), ("base_cost_ns", "base_cost"), ("persistent_bytes", "const_bytes"))
        errors = [f"{a} {ours[a]}, in the log {info[b]}" for a, b in pairs if ours[a] != info[b]]
        if info["live_peak_bytes"] < ours["peak_without_budget_bytes"]:
            errors.append(f"peak {ours['peak_without_budget_bytes']}, in the log {info['live_peak_bytes']}")
        count.check(f"{name} as a log", errors)
        check_small(dtrc, count, d, log)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--dtrc", default=os.path.join(bench.ROOT, "build/release/bin/dtrc"))
    a.add_argument("--seeds", type=int, default=12)
    a.add_argument("--first", type=int, default=1, help="the first seed")
    a.add_argument("--no-benchmark", action="store_true", help="small traces and random logs only")
    o = a.parse_args()
    count = Count()
    if not os.path.exists(os.path.join(bench.folder(), "score.py")):
        print(f"no planning benchmark at {bench.folder()}")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    data = os.path.join(bench.ROOT, "tests/data/planning")
    with tempfile.TemporaryDirectory() as d:
        for f in sorted(os.listdir(data)):
            if f.endswith((".log", ".json")):
                check_small(o.dtrc, count, d, os.path.join(data, f))
        for seed in range(o.first, o.first + o.seeds):
            path = os.path.join(d, f"random{seed}.log")
            with open(path, "w", encoding="utf-8") as f:
                f.write(random_log(seed))
            check_small(o.dtrc, count, d, path)
        check_models(o.dtrc, count, d)
        if not o.no_benchmark:
            check_benchmark(o.dtrc, count, d)
    print(f"{count.passed} passed, {count.failed} failed, {count.skipped} skipped")
    return count.failed > 0


if __name__ == "__main__":
    sys.exit(main())
