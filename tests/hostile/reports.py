"""What dtrc plan says and draws, and the files that its cost model reads: profiles and device files."""
import json
import re
import xml.etree.ElementTree

import numpy as np

from harness import Failed, mlp, npz, test

WIDTHS = (64, 256, 3)


def costs_of(env, *args):
    """Node number -> ns, of -d cost."""
    r = env.run(env.dtrc, "plan", *args, "--threads", "1", "-d", "cost", "-s", "cost")
    if r.status:
        raise Failed(f"-d cost: status {r.status}\n{r.err}")
    return {int(m[1]): int(m[2]) for m in re.finditer(r"^ *(\d+) \S+ +(\d+) ns", r.out, re.M)}


def profiled(env):
    """A model, and the profile of two steps under a budget that recomputes."""
    m = env.save(mlp(widths=WIDTHS))
    trainer = env.compile(m, "--budget", "100%", "--optimizer", "adam")
    data = npz(env, x=np.ones((8, WIDTHS[0]), np.float32), target=np.zeros((8,), np.int64))
    p = env.path("profile.json")
    r = env.run(trainer, "--data", data, "--steps", "2", "--lr", "0.01", "--profile", p)
    if r.status:
        raise Failed(f"does not train: {r.err}")
    return m, p


@test
def costs_round_trip(env):
    m, p = profiled(env)
    nodes = json.load(open(p))["nodes"]
    if not nodes or any(n["runs"] < 2 or n["min_ns"] > n["median_ns"] for n in nodes):
        raise Failed(f"a profile of two steps: {nodes}")
    got = costs_of(env, m, "--optimizer", "adam", "--costs", p)
    for n in nodes:
        if got[n["node"]] != max(1, n["min_ns"]):
            raise Failed(f"node {n['node']}: planned with {got[n['node']]} ns, measured {n['min_ns']}")
    if any(ns for n, ns in got.items() if n not in {x["node"] for x in nodes}):
        raise Failed("a node without a row costs something")
    r = env.run(env.dtrc, "plan", m, "--threads", "1", "--optimizer", "adam", "--costs", p, "--json")
    if r.status or json.loads(r.out)["base_cost_ns"] != sum(got.values()):
        raise Failed(f"the plan does not use the measured times: {r.out}{r.err}")
    env.compile(m, "--budget", "100%", "--optimizer", "adam", "--costs", p, out="again")
    # The constants that fit these times, used in turn.
    device = env.path("device.json")
    r = env.run(env.dtrc, "calibrate", m, "--threads", "1", "--optimizer", "adam", "--costs", p, "-o", device)
    if r.status or "all" not in r.out:
        raise Failed(f"calibrate: status {r.status}\n{r.out}{r.err}")
    fitted = sum(costs_of(env, m, "--optimizer", "adam", "--device", device).values())
    if not 0.5 < fitted / sum(got.values()) < 2:
        raise Failed(f"fitted {fitted} ns, measured {sum(got.values())} ns")


@test
def costs_of_something_else(env):
    m, p = profiled(env)
    plan = [env.dtrc, "plan", m, "--threads", "1"]

    def refuse(*args, says, text=None):
        if text is not None:
            open(env.path("bad.json"), "w").write(text)
        env.refused(*plan, "--optimizer", "adam", *args, "--costs", env.path("bad.json") if text is not None else p,
                    says=says)
    env.refused(*plan, "--costs", p, says=["(Adam) there and", "(Sgd) here", "it was compiled by"])
    other = env.save(mlp(widths=(64, 128, 3)), "other.onnx")
    env.refused(env.dtrc, "plan", other, "--threads", "1", "--costs", p, says="measured with another model")
    env.refused(env.dtrc, "plan", m, "--threads", "2", "--optimizer", "adam", "--costs", p,
                says=["measured with 1 thread", "--threads 1"])
    refuse("--target", "null", says="target 'cpu'")
    env.refused(*plan, "--costs", env.path("absent.json"), says="cannot read")
    env.refused(*plan, "--costs", env.tmp, says="cannot read")
    good = open(p).read()
    refuse(text="", says="not JSON")
    refuse(text=good[:len(good) // 2], says="not JSON")
    refuse(text="[" * 500000, says="not JSON")
    refuse(text="[" + "0," * 2000000 + "0]", says="more than")
    refuse(text="[" + "0" * (40 << 20) + "]", says="cannot read")
    refuse(text=re.sub(r'"min_ns":\d+', '"min_ns":-1', good), says='"min_ns" is -1')
    refuse(text=re.sub(r'"min_ns":\d+', '"min_ns":1e999', good), says='"min_ns" is inf')
    refuse(text=re.sub(r'"min_ns":\d+', '"min_ns":NaN', good), says="not JSON")
    refuse(text=re.sub(r'"node":\d+', '"node":99999', good), says="number of a node")
    refuse(text=re.sub(r'"node":\d+', '"node":0', good), says="two rows")
    evil = re.sub(r'"command":"[^"]*"', r'"command":"\\u001b[31m"', good).replace('"version":1,', '"version":1,', 1)
    evil = re.sub(r'"graph":"\w+"', '"graph":"0"', evil)
    r = env.refused(*plan, "--costs", env.save(evil.encode(), "evil.json"))
    if "\x1b" in r.err:
        raise Failed("an escape sequence of the profile reaches the terminal")
    one = json.loads(good)
    one["nodes"] = one["nodes"][:1]
    r = env.run(*plan, "--optimizer", "adam", "--costs", env.save(json.dumps(one).encode(), "one.json"))
    if r.status or "are not in the profile" not in r.err:
        raise Failed(f"a part of a profile: status {r.status}, {r.err}")


@test
def device_files(env):
    m = env.save(mlp())
    good = {"format": "dtrc-device", "version": 1, "name": "d", "flops_per_ns": 10, "loop_flops_per_ns": 5,
            "bytes_per_ns": 4, "max_bytes_per_ns": 9, "fixed_ns": 1000, "operators": {"MatMul": 2}}
    for change, says in (({"format": "x"}, "dtrc-device"), ({"flops_per_ns": 0}, "flops_per_ns"),
                         ({"bytes_per_ns": -4}, "bytes_per_ns"), ({"fixed_ns": "1"}, "fixed_ns"),
                         ({"fixed_ns": 1e300}, "fixed_ns"), ({"operators": {"a\x1bb": 1}}, "no operator"),
                         ({"operators": {"Conv": -1}}, "Conv"), ({"operators": []}, "operators")):
        path = env.save(json.dumps({**good, **change}).encode(), "device.json")
        r = env.refused(env.dtrc, "plan", m, "--device", path, says=says)
        if "\x1b" in r.err:
            raise Failed("an escape sequence of the device file reaches the terminal")
    r = env.run(env.dtrc, "plan", m, "--device", env.save(json.dumps(good).encode(), "device.json"))
    if r.status:
        raise Failed(r.err)
    env.refused(env.dtrc, "plan", m, "--device", "h200", says="--target cuda")
    env.refused(env.dtrc, "plan", m, "--device", env.path("device.json"), "--target", "cuda", says='"gpu"')
    env.refused(env.dtrc, "calibrate", m, status=2, says="--costs")


@test
def sweep_curve(env):
    m = env.save(mlp(("x", "<w&1>", "b\"1", "w2", "y"), WIDTHS), "a<b&c.onnx")
    svg = env.path("curve.svg")
    r = env.run(env.dtrc, "plan", m, "--threads", "1", "--sweep", "--json", "-o", svg)
    if r.status:
        raise Failed(f"--sweep: status {r.status}\n{r.err}")
    rows = json.loads(r.out)
    one = json.loads(env.run(env.dtrc, "plan", m, "--threads", "1", "--json").out)
    if [x for x in one if x not in rows[0]] or any(x["status"] != "ok" for x in rows):
        raise Failed(f"rows lack keys of plan --json, or plans: {rows}")
    budgets = [x["budget_bytes"] for x in rows]
    if budgets != sorted(budgets, reverse=True) or budgets[0] != rows[0]["peak_without_budget_bytes"]:
        raise Failed(f"budgets: {budgets}")
    for a, b in zip(rows, rows[1:]):
        if a["overhead"] > b["overhead"] or a["lower_bound"] > b["lower_bound"]:
            raise Failed(f"the curve rises with the budget: {a} {b}")
    if any(x["overhead"] < x["lower_bound"] or x["from_budget_bytes"] > x["budget_bytes"] for x in rows):
        raise Failed(f"a plan below its bound, or from a larger budget: {rows}")
    text = open(svg).read()
    root = xml.etree.ElementTree.fromstring(text)
    if "a<b&c.onnx" not in "".join(root.itertext()) or "prefers-color-scheme" not in text or "href" in text:
        raise Failed("the picture lacks the model's name or its dark colors, or it refers to something outside")
    r = env.run(env.dtrc, "plan", m, "--threads", "1", "--sweep", "--json", "--budgets", "100%,1K,100%")
    rows = json.loads(r.out)
    if [x["status"] for x in rows] != ["ok", "infeasible"] or rows[1]["overhead"] is not None:
        raise Failed(f"a budget of 1K: {rows}")
    for args in (["--sweep", "--budget", "50%"], ["--budgets", "50%"], ["--sweep", "-o", "plan.json"],
                 ["--sweep", "--budgets", ""], ["--sweep", "--budgets", "50%,"], ["--sweep", "--budgets", "nan%"],
                 ["--sweep", "--explain"], ["--sweep", "--budgets", "1%," * 1000 + "1%"]):
        env.refused(env.dtrc, "plan", m, *args, status=2)
    env.refused(env.dtrc, "plan", m, "--sweep", "-o", env.path("no", "folder", "c.svg"), status=4)


@test
def plan_explained(env):
    """Every name is escaped, the sums agree with the summary, and the short table is short."""
    m = env.save(mlp(("x", "w\x1b[31m", "b\n1", "w'2", "y\r"), WIDTHS))
    r = env.run(env.dtrc, "plan", m, "--threads", "1", "--json", "--explain")
    if r.status or r.out.count("\n") != 1:
        raise Failed(f"--json --explain: status {r.status}, {r.out.count(chr(10))} lines\n{r.err}")
    p = json.loads(r.out)
    there = p["explain"]["peak"]["there"]
    if sum(x["bytes"] for x in there) != p["explain"]["peak"]["bytes"] or \
            p["explain"]["peak"]["bytes"] != p["persistent_bytes"] + p["byte_peak"]:
        raise Failed(f"bytes at the peak: {p}")
    if sum(x["times"] for x in p["explain"]["recomputed"]) != p["recomputed_runs"]:
        raise Failed(f"recomputed runs: {p}")
    short = env.run(env.dtrc, "plan", m, "--threads", "1").out
    if not 3 < short.count("\n") <= 18:
        raise Failed(f"the summary and its table have {short.count(chr(10))} lines")
    full = env.run(env.dtrc, "plan", m, "--threads", "1", "--explain").out
    if full.count("\n") < short.count("\n") + len(there) or re.search(r"[\x00-\x09\x0b-\x1f]", full):
        raise Failed(f"--explain: {full!r}")
    env.refused(env.dtrc, m, "--explain", status=2, says="--explain belongs to plan")


@test
def text_without_loss(env):
    """A text graph that has a backward pass but no loss is neither a forward graph nor a step."""
    m = env.path("half.ir")
    with open(m, "w") as f:
        f.write('graph "m"\n%0 input f32[2,3] "x"\nbwd %1 f32[2,3] "y" = Relu(%0) "r"\noutput %1\n')
    r = env.run(env.dtrc, "plan", m, "--loss", "mse", "--budget", "100%")
    if r.status != 1 or "forward nodes only" not in r.err:
        raise Failed(f"status {r.status}: {r.err}")
