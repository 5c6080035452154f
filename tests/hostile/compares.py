"""dtrc compare: its table, its JSON, its refusals."""
import json
import os
import re

from harness import Failed, mlp, test, trace_model

DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data", "planning")

# diamond.json: in (100 B, 10 ns) -> 1 (300 B, 20 ns) -> r (50 B, 30 ns), sum(in, r) (8 B, 4 ns).
# While r is made, in, 1 and r are there: 450 B. Under 400 B, in (100) cannot stay beside 1 and r (350), and runs
# again for sum: 10 of 64 ns. Making 1 from in needs 400 B: nothing is possible below.
DIAMOND = """\
4 nodes; without recomputation 450 B; static meets 400 B, no schedule exists below 400 B

budget 450 B, 100.0 % of that
  planner        overhead     gap         peak       arena   again  dropped     planning  status
  none             0.00 %    0.00        450 B       450 B       0        0         T ms  ok
  dtr              0.00 %    0.00        450 B       450 B       0        0         T ms  ok
  static           0.00 %    0.00        450 B       450 B       0        0         T ms  ok
  ilp              0.00 %    0.00        450 B       450 B       0        0         T ms  ok: optimal
  lower bound      0.00 %

budget 400 B, 88.9 % of that
  planner        overhead     gap         peak       arena   again  dropped     planning  status
  none                -         -            -           -       -        -         T ms  infeasible: needs 450 B
  dtr             15.62 %    0.00        400 B       400 B       1        1         T ms  ok
  static          15.62 %    0.00        400 B       400 B       1        1         T ms  ok
  ilp             15.62 %    0.00        400 B       400 B       1        1         T ms  ok: optimal
  lower bound     15.62 %

budget 399 B, 88.7 % of that: no schedule exists
"""


@test
def compare_table(env):
    r = env.run(env.dtrc, "compare", os.path.join(DATA, "diamond.json"), "--accounting", "bytes", "--budgets",
                "399,450,400,450", "--planners", "none,dtr,static,ilp,dtr")
    out = re.sub(r" +\d+ ms  ", "         T ms  ", r.out)
    if r.status or out != DIAMOND:
        raise Failed(f"status {r.status}\n{out}{r.err}")


@test
def compare_json(env):
    """One row for each budget and planner, with the names of plan --json; who knows more does better."""
    m = env.save(trace_model("gpt_mini"))
    common = [m, "--threads", "1"]
    r = env.run(env.dtrc, "compare", *common, "--budgets", "100%,80%,1K", "--time-limit", "2", "--json")
    if r.status:
        raise Failed(f"status {r.status}\n{r.err}")
    rows = json.loads(r.out)
    one = json.loads(env.run(env.dtrc, "plan", *common, "--json").out)
    planners = ["none", "sqrt", "dtr", "dtr-eq", "dtr-local", "lru", "size", "msps", "dynamic", "static", "ilp"]
    if [x["planner"] for x in rows] != 3 * planners:
        raise Failed(f"planners: {[x['planner'] for x in rows]}")
    for x in rows:
        if [k for k in one if k not in x] or x["status"] not in ("ok", "infeasible", "timeout"):
            raise Failed(f"keys of plan --json are missing: {x}")
        if (x["overhead"] is None) != (x["status"] == "infeasible"):
            raise Failed(f"a plan without a number, or a number without a plan: {x}")
        if x["overhead"] is not None and (x["overhead"] < x["lower_bound"] - 1e-6 or
                                          x["persistent_bytes"] + x["arena_bytes"] > x["budget_bytes"]):
            raise Failed(f"below its bound or above its budget: {x}")
    if any(x["overhead"] for x in rows[:11] if x["planner"] in ("none", "static", "ilp")) or \
            any(x["status"] != "infeasible" for x in rows[22:]):
        raise Failed(f"nothing is recomputed at the peak, nobody has a plan for 1K: {rows}")
    at = {x["planner"]: x for x in rows[11:22]}
    for x in at.values():
        if x["status"] == "ok" and x["overhead"] < at["ilp"]["overhead"] - 1e-9:
            raise Failed(f"better than ilp, which starts from static: {x}")
        if x["status"] == "ok" and x["planner"] in planners[2:8] and x["overhead"] < at["dynamic"]["overhead"] - 1e-9:
            raise Failed(f"better than dynamic, which tries this heuristic: {x}")
    same = json.loads(env.run(env.dtrc, "plan", *common, "--budget", "80%", "--json").out)
    for key in ("overhead", "arena_bytes", "recomputed_runs", "evictions", "budget_bytes", "base_cost_ns"):
        if same[key] != at["static"][key]:
            raise Failed(f"{key}: {at['static'][key]}, and {same[key]} with dtrc plan")


@test
def compare_traces(env):
    """Recorded steps of all kinds, in both accountings: numbers of dtrc plan."""
    for trace in ("diamond.json", "layered.json", "mutate.log", "outputs.log", "views.log"):
        for accounting in ("arena", "bytes"):
            common = [os.path.join(DATA, trace), "--accounting", accounting]
            rows = json.loads(env.run(env.dtrc, "compare", *common, "--budgets", "100%,90%,80%", "--planners",
                                      "dynamic,static", "--json").out)
            for x in rows[1::2]:
                r = env.run(env.dtrc, "plan", *common, "--budget", str(x["budget_bytes"]), "--json")
                if r.status != (3 if x["status"] == "infeasible" else 0):
                    raise Failed(f"{trace}, {accounting}: status {r.status} of plan, {x}")
                if r.status:
                    continue
                one = json.loads(r.out)
                for key in ("overhead", "arena_bytes", "persistent_bytes", "peak_without_budget_bytes", "floor_bytes",
                            "base_cost_ns"):
                    if one[key] != x[key]:
                        raise Failed(f"{trace}, {accounting}, {key}: {x[key]}, and {one[key]} with dtrc plan")


@test
def compare_measured(env):
    """What programs do is what the plans say; a budget that dynamic mode cannot meet is a row with a message."""
    m = env.save(trace_model("gpt_mini"))
    args = [env.dtrc, "compare", m, "--threads", "1", "--measure"]
    r = env.run(*args, "--budgets", "80%,67%", "--planners", "dtr,lru,dynamic,static", "--json")
    if r.status:
        raise Failed(f"status {r.status}\n{r.err}")
    rows = json.loads(r.out)
    for x in rows:
        ran = x["measured"]
        if x["status"] == "infeasible":
            if x["planner"] != "static" and (ran["exit_status"] != 3 or "budget" not in ran["error"]):
                raise Failed(f"ran without a plan: {x}")
            continue
        mode = "static" if x["planner"] == "static" else "dynamic"
        if ran["exit_status"] or ran["mode"] != mode or not ran["weights_equal"] or ran["step_ms"] <= 0:
            raise Failed(f"did not run as it should: {x}")
        if ran["recomputed_runs"] != x["recomputed_runs"] or \
                ran["peak_bytes"] != x["persistent_bytes"] + x["arena_bytes"]:
            raise Failed(f"does not do what was planned: {x}")
        if (ran["decisions"] > 0) != (mode == "dynamic"):
            raise Failed(f"decisions of {mode} mode: {x}")
        base = x["measured_base"]
        if base["recomputed_runs"] or base["weights_sha256"] != ran["weights_sha256"] or \
                base["peak_bytes"] != x["peak_without_budget_bytes"]:
            raise Failed(f"the program without a budget: {x}")
    if [x["status"] for x in rows[:4]] != 4 * ["ok"] or rows[7]["status"] != "ok":
        raise Failed(f"plans at 80 %, and of static at 67 %: {[x['status'] for x in rows]}")
    r = env.run(*args, "--budgets", "80%", "--planners", "dynamic", env={"TMPDIR": env.tmp})
    if r.status or r.out.count("same bits") != 2 or "OTHER BITS" in r.out or "without a budget" not in r.out:
        raise Failed(f"status {r.status}\n{r.out}{r.err}")
    left = [f for f in os.listdir(env.tmp) if f.startswith("dtrc-")]
    if left:
        raise Failed(f"left behind: {left}")


@test
def compare_refusals(env):
    m = env.save(mlp())
    for args, says in ((["--budgets", ""], "--budgets"), (["--budgets", "50%,,60%"], "--budgets"),
                       (["--budgets", "1%," * 500 + "1%"], "more than"), (["--planners", ""], "unknown planner ''"),
                       (["--planners", "static,optimal"], "unknown planner 'optimal'"),
                       (["--planner", "static"], "--planners"), (["--budget", "50%"], "--budgets"),
                       (["-o", "x"], "writes no file"), (["--time-limit", "0"], "--time-limit"),
                       (["--sweep"], "--sweep"), (["--explain"], "--explain")):
        env.refused(env.dtrc, "compare", m, *args, status=2, says=says)
    env.refused(env.dtrc, "plan", m, "--planners", "static", status=2, says="belongs to compare")
    env.refused(env.dtrc, "plan", m, "--planner", "static,dtr", status=2, says="unknown planner")
    env.refused(env.dtrc, "compare", env.path("absent.onnx"), says="absent.onnx")
    env.refused(env.dtrc, "compare", m, "--measure", "--accounting", "bytes", status=2, says="addresses")
    env.refused(env.dtrc, "compare", m, "--report", m, status=2, says="is the model")
    env.refused(env.dtrc, "plan", m, "--measure", status=2, says="belongs to compare")
    env.refused(env.dtrc, "compare", os.path.join(DATA, "diamond.json"), "--measure", says="trace")
    env.refused(env.dtrc, "compare", m, "--threads", "1", "--budgets", "100%", "--planners", "none", "--report",
                env.path("no", "folder", "c.html"), status=4, says="cannot write the report")
