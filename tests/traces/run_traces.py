#!/usr/bin/python3
"""Trains every model of tests/data/traces with dtrc and compares with the PyTorch run stored beside it.

    run_traces.py --dtrc build/release/bin/dtrc [--quick | --full | --smoke] [CASE...]

For each case the program is compiled with the loss, optimizer and frozen weights of trace.json
  - by planner dtr at 100 %, 70 % and 50 % of the peak without recomputation and at the smallest
    budget that works (a budget below that one must end with status 3 and name it),
  - by planner static, the default, at 100 %, 50 % and 30 % and at its smallest budget,
  - by two other planners, in turn, at the smallest budget that works for them (with --full by all);
    two cases by planner ilp too,
  - the program of 100 % in dynamic mode at 100 %, 70 %, 50 % and 30 % and at the smallest budget that
    works there (one below it must end with status 3 and name it), by each heuristic at the
    smallest (deep networks; with --full all),
and run on the stored batches.  The run at 100 % must match losses, weights and gradients of PyTorch
(check_trace.py has the tolerances), and its gradients finite differences.  Every other run, hard mode included, must give the same
bits.  No run may use more than its budget.  dropout_stats has random masks: its
statistics over 40 seeds are compared, and one seed must give the same bits at every budget.

One line per case, then "N passed, N failed, N skipped" where a check is one compiled and compared run.
"""
import argparse
import concurrent.futures
import fnmatch
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(os.path.dirname(HERE), "data", "traces")
STATIC_PERCENT = [100, 50, 30]
DYNAMIC_PERCENT = [100, 70, 50, 30]
HEURISTICS = ["dtr", "dtr-eq", "dtr-local", "lru", "size", "msps", "lookahead"]
OTHER_PLANNERS = ["dtr-eq", "dtr-local", "lru", "size", "msps", "sqrt", "static"]
DROPOUT_RUNS = 40
ILP_CASES = {"vgg_mini", "transformer_encoder"}
ILP_SECONDS = 3
# Deep enough that the smallest budget cannot be met without running something twice.
MUST_RECOMPUTE = {"resnet_mini", "densenet_mini", "vgg_mini", "inception_mini", "efficientnet_mini",
                  "mobilenetv2_mini", "shufflenet_mini", "unet_mini", "vit_mini", "transformer_encoder"}


class Failed(Exception):
    pass


def run(cmd, timeout):
    """(exit status, stdout, stderr)."""
    env = dict(os.environ, OMP_WAIT_POLICY="passive")
    try:
        p = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, env=env)
    except subprocess.TimeoutExpired:
        raise Failed(f"no end after {timeout} s: {' '.join(cmd)}")
    return p.returncode, p.stdout.decode(errors="replace"), p.stderr.decode(errors="replace")


def must_run(cmd, timeout, status=0):
    rc, out, err = run(cmd, timeout)
    if rc != status:
        raise Failed(f"exit status {rc}, expected {status}: {' '.join(cmd)}\n{err[-1500:]}{out[-500:]}")
    return out, err


def tensor_digest(path):
    """SHA-256 over names and bytes of all tensors of a safetensors file, metadata left out."""
    raw = open(path, "rb").read()
    n = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8:8 + n])
    h = hashlib.sha256()
    for name in sorted(k for k in head if k != "__metadata__"):
        lo, hi = head[name]["data_offsets"]
        h.update(name.encode() + b"\0" + str(head[name]["shape"]).encode() + raw[8 + n + lo:8 + n + hi])
    return h.hexdigest()


def escape_glob(name):
    return "".join("\\" + c if c in "*?[]\\" else c for c in name)


def compile_options(trace):
    """Options of dtrc that stand for trace.json."""
    loss, opt = trace["loss"], trace["optimizer"]
    kind = {"cross_entropy": "cross-entropy", "bce_with_logits": "bce-logits"}.get(loss["kind"], loss["kind"])
    keys = [f"{k}={loss[k]}" for k in ("output", "class_axis", "ignore_index", "label_smoothing") if k in loss]
    args = ["--loss", f"{kind}:{','.join(keys)}"]
    keys = []
    for k, v in opt.items():
        if k == "betas":
            keys.append(f"betas={v[0]}/{v[1]}")
        elif k == "nesterov":
            keys.append(f"nesterov={int(v)}")
        elif k in ("momentum", "dampening", "weight_decay", "eps"):
            keys.append(f"{k}={v}")
    args += ["--optimizer", f"{opt['kind']}:{','.join(keys)}"]
    for name in trace.get("frozen", []):
        args += ["--freeze", escape_glob(name)]
    if trace["dynamic_batch"]:
        args += ["--batch", str(next(iter(trace["inputs"].values()))["shape"][0])]
    return args


class Case:
    def __init__(self, name, opt):
        self.name, self.opt = name, opt
        self.folder = os.path.join(opt.traces, name)
        self.trace = json.load(open(os.path.join(self.folder, "trace.json")))
        self.work = os.path.join(opt.keep, name)
        os.makedirs(self.work, exist_ok=True)
        self.model = os.path.join(self.folder, "model.onnx")
        self.options = compile_options(self.trace) + ["--threads", "2"]
        self.passed, self.problems, self.note = 0, [], ""
        self.want = None  # digests of weights and gradients, and the losses, of the run at 100 %

    def check(self, what, fn, *args):
        try:
            result = fn(*args)
            self.passed += 1
            return result
        except Failed as e:
            self.problems.append(f"{what}: {e}")

    def plan(self, planner, budget="100%"):
        out, _ = must_run([self.opt.dtrc, "plan", self.model, "--budget", budget, "--planner", planner, "--json"]
                          + self.options, self.opt.timeout)
        return json.loads(out.strip().splitlines()[-1])

    def compile(self, planner, budget):
        trainer = os.path.join(self.work, f"{planner}-{budget}")
        limit = ["--time-limit", str(ILP_SECONDS)] if planner == "ilp" else []
        must_run([self.opt.dtrc, self.model, "--budget", str(budget), "--planner", planner, "-o", trainer]
                 + limit + self.options, self.opt.timeout)
        return trainer

    def training(self, trainer):
        """The command that runs a trainer on the stored batches."""
        t = self.trace
        lr = ",".join(map(repr, t["lr"])) if isinstance(t["lr"], list) else repr(t["lr"])
        return [trainer, "--data", os.path.join(self.folder, "data.npz"), "--batched", "--steps", str(t["steps"]),
                "--lr", lr]

    def train(self, trainer, budget, *more):
        """Runs a trainer on the stored batches; (summary, digest of weights, digest of gradients)."""
        t = self.trace
        weights, grads = trainer + ".safetensors", trainer + ".grads.safetensors"
        out, err = must_run(self.training(trainer) + ["--save", weights, "--save-grads", grads, "--json", *more],
                            self.opt.timeout)
        s = json.loads(out.strip().splitlines()[-1])
        if budget is not None and s["budget_bytes"] != budget:
            raise Failed(f"budget_bytes is {s['budget_bytes']}, compiled for {budget}")
        if s["peak_bytes"] > s["budget_bytes"] or s["planned_peak_bytes"] > s["budget_bytes"]:
            raise Failed(f"peak {s['peak_bytes']}, planned {s['planned_peak_bytes']}, budget {s['budget_bytes']}")
        mode = "dynamic" if "dynamic" in more else "static"
        if s["steps"] != t["steps"] or len(s["losses"]) != t["steps"] or s["mode"] != mode:
            raise Failed(f"summary says {s['steps']} steps, {len(s['losses'])} losses, mode {s['mode']}")
        return s, tensor_digest(weights), tensor_digest(grads)

    def reference(self, budget):
        """The run at 100 %: against PyTorch."""
        trainer = self.compile("dtr", budget)
        s, weights, grads = self.train(trainer, budget)
        with open(trainer + ".losses.json", "w") as f:
            json.dump(s["losses"], f)
        must_run([sys.executable, os.path.join(DATA, "check_trace.py"), self.folder, "--losses",
                  trainer + ".losses.json", "--weights", trainer + ".safetensors", "--grads",
                  trainer + ".grads.safetensors"], 120)
        self.want = (weights, grads, s["losses"], s["weights_sha256"])
        return trainer

    def finite_differences(self, trainer):
        """The trainer's own check of gradients, in double precision by the reference interpreter."""
        must_run([trainer, "--data", os.path.join(self.folder, "data.npz"), "--batched", "--steps", "1",
                  "--check-grad"], self.opt.timeout)

    def same_bits(self, trainer, budget, *more):
        s, weights, grads = self.train(trainer, budget, *more)
        if self.want is None:
            raise Failed("no reference run to compare with")
        got = (weights, grads, s["losses"], s["weights_sha256"])
        for what, a, b in zip(("weights", "gradients", "losses", "weights_sha256"), got, self.want):
            if a != b:
                raise Failed(f"{what} differ from the run at 100 %: {a} and {b}")
        return s

    def at_budget(self, planner, budget):
        trainer = self.compile(planner, budget)
        s = self.same_bits(trainer, budget)
        return trainer, s

    def infeasible(self, planner, budget, smallest):
        trainer = os.path.join(self.work, "none")
        _, err = must_run([self.opt.dtrc, self.model, "--budget", str(budget), "--planner", planner, "-o", trainer]
                          + self.options, self.opt.timeout, status=3)
        if str(smallest) not in err:
            raise Failed(f"the message for a budget of {budget} bytes does not name {smallest}:\n{err}")
        if os.path.exists(trainer):
            raise Failed("a trainer was written although the budget cannot be met")

    def smallest(self, planner):
        """The smallest budget of a planner: it must work, and the run must give the same bits."""
        low = self.plan(planner)["min_budget_bytes"]
        trainer, s = self.at_budget(planner, low)
        return low, trainer, s

    def replay(self, budget):
        """A written plan passes the independent verifier, and planning again gives the same plan."""
        path = os.path.join(self.work, "plan.json")
        texts = []
        for _ in range(2):
            must_run([self.opt.dtrc, "plan", self.model, "--budget", str(budget), "--planner", "static", "-o", path]
                     + self.options, self.opt.timeout)
            with open(path, "rb") as f:
                texts.append(f.read())
        must_run([self.opt.dtrc, "verify", self.model, path] + self.options, self.opt.timeout)
        if texts[0] != texts[1]:
            raise Failed("planning twice gave two plans")

    def dynamic_refusal(self, trainer, budget, *more):
        """The smallest budget that the refusal of a smaller one names."""
        _, err = must_run(self.training(trainer) + ["--mode", "dynamic", "--budget", str(budget), *more],
                          self.opt.timeout, status=3)
        named = re.search(r"dynamic mode can run in (\d+) bytes", err)
        if not named:
            raise Failed(f"the refusal of {budget} bytes names no budget that works:\n{err}")
        return int(named.group(1))

    def at_dynamic(self, trainer, budget, low, *more):
        if budget < low:
            if self.dynamic_refusal(trainer, budget, *more) > low:
                raise Failed(f"{low} bytes work, but the refusal of {budget} names more")
        else:
            self.same_bits(trainer, budget, "--mode", "dynamic", "--budget", str(budget), *more)

    def run_dynamic(self, trainer, peak):
        low = self.check("dynamic, 1 byte", self.dynamic_refusal, trainer, 1)
        if low is None:
            return
        for percent in [100] if self.opt.quick else DYNAMIC_PERCENT:
            self.check(f"dynamic, {percent} %", self.at_dynamic, trainer, peak * percent // 100, low)
        self.check("dynamic, smallest", self.at_dynamic, trainer, low, low)
        self.check("dynamic, smallest, hard mode", self.at_dynamic, trainer, low, low, "--hard")
        deep = self.opt.full or (self.name in MUST_RECOMPUTE and not self.opt.quick)
        for h in HEURISTICS if deep else []:
            own = self.check(f"dynamic, 1 byte, {h}", self.dynamic_refusal, trainer, 1, "--heuristic", h)
            if own:
                self.check(f"dynamic, smallest, {h}", self.at_dynamic, trainer, own, own, "--heuristic", h)

    def others(self):
        """The other planners that this case tries: static, and two that change from case to case."""
        if self.opt.quick or self.opt.full:
            return ["static"] if self.opt.quick else OTHER_PLANNERS
        at = 2 * sorted(os.listdir(self.opt.traces)).index(self.name)
        rest = OTHER_PLANNERS[:-1]
        return [rest[at % len(rest)], rest[(at + 1) % len(rest)], "static"]

    def run_trace(self):
        p = self.check("plan", self.plan, "dtr")
        if p is None:
            return
        peak, low = p["peak_without_budget_bytes"], p["min_budget_bytes"]
        trainer = self.check("100 %", self.reference, peak)
        if trainer is None or self.opt.smoke:
            return
        self.check("finite differences", self.finite_differences, trainer)
        self.run_dynamic(trainer, peak)
        for percent in [] if self.opt.quick else [70, 50]:
            budget = peak * percent // 100
            self.try_budget("dtr", percent, budget, low)
            if self.opt.full and budget >= low:
                for planner in OTHER_PLANNERS:
                    if budget >= self.plan(planner)["min_budget_bytes"]:
                        self.check(f"{percent} % {planner}", self.at_budget, planner, budget)
        done = self.check("smallest", self.smallest, "dtr")
        if done:
            _, trainer, s = done
            self.check("smallest, hard mode", self.same_bits, trainer, low, "--hard")
            self.check("smallest, replay", self.replay, low)
            self.check("smallest, recomputes", self.must_recompute, s)
            self.note = f"peak {peak}, smallest {low} ({100 * low // peak} %), {s['recomputed_runs']} runs again"
        lows = {}
        for planner in self.others():
            done = self.check(f"smallest, {planner}", self.smallest, planner)
            if done:
                lows[planner] = done[0]
        if "static" in lows and not self.opt.quick:
            for percent in STATIC_PERCENT:
                self.try_budget("static", percent, peak * percent // 100, lows["static"])
        if self.name in ILP_CASES and not self.opt.quick:
            self.check("smallest of dtr, ilp", self.at_budget, "ilp", low)
        if lows and not self.opt.quick and min(lows.values()) < lows.get("static", 0):
            self.check("static where another planner succeeds", self.at_budget, "static", min(lows.values()))

    def try_budget(self, planner, percent, budget, low):
        """The same bits, or, below the planner's smallest budget, the refusal that names it."""
        what = f"{percent} %, {planner}"
        if budget < low:
            self.check(what, self.infeasible, planner, budget, low)
        else:
            self.check(what, self.at_budget, planner, budget)

    def must_recompute(self, summary):
        if self.name in MUST_RECOMPUTE and not summary["recomputed_runs"]:
            raise Failed("nothing was recomputed: the case checks nothing")

    def run_dropout(self):
        p = self.check("plan", self.plan, "dtr")
        if p is None:
            return
        peak, low = p["peak_without_budget_bytes"], p["min_budget_bytes"]
        trainer = self.check("compile", self.compile, "dtr", peak)
        if trainer is None:
            return
        done = [self.check(f"seed {i}", self.train, trainer, peak, "--seed", str(i))
                for i in range(6 if self.opt.quick else DROPOUT_RUNS)]
        if not all(done):
            return
        self.check("statistics", self.statistics, [s["losses"] for s, _, _ in done])
        self.want = (done[3][1], done[3][2], done[3][0]["losses"], done[3][0]["weights_sha256"])
        self.check("seed 3 again", self.same_bits, trainer, peak, "--seed", "3")
        for planner in ["dtr", "static"]:
            if planner != "dtr":
                low = self.plan(planner)["min_budget_bytes"]
            trainer = self.check("compile", self.compile, planner, low)
            if trainer:
                self.check(f"seed 3, smallest, {planner}", self.same_bits, trainer, low, "--seed", "3")
                self.check(f"seed 3, smallest, {planner}, hard mode", self.same_bits, trainer, low, "--seed", "3", "--hard")

    def statistics(self, losses):
        path = os.path.join(self.work, "losses.json")
        with open(path, "w") as f:
            json.dump(losses, f)
        if len({tuple(x) for x in losses}) != len(losses):
            raise Failed("two seeds gave the same losses")
        must_run([sys.executable, os.path.join(DATA, "check_trace.py"), self.folder, "--losses", path], 120)

    def run(self):
        try:
            self.run_dropout() if "stats" in self.trace else self.run_trace()
        except (Failed, OSError, KeyError, ValueError) as e:
            self.problems.append(f"{type(e).__name__}: {e}")
        if not self.opt.keep_given and not self.problems:
            shutil.rmtree(self.work, ignore_errors=True)
        return self


def parser(description):
    ap = argparse.ArgumentParser(description=description)
    ap.add_argument("case", nargs="*", help="names or globs of cases (default: all)")
    ap.add_argument("--dtrc", required=True)
    ap.add_argument("--jobs", type=int, default=os.cpu_count())
    ap.add_argument("--quick", action="store_true", help="100 %% and smallest budget only, planners dtr and static")
    ap.add_argument("--full", action="store_true", help="every planner at every budget")
    ap.add_argument("--smoke", action="store_true", help="100 %% only")
    ap.add_argument("--keep", help="folder for trainers and results; kept afterwards")
    ap.add_argument("--json", help="also write the results to this file")
    ap.add_argument("--traces", default=DATA, help="folder of cases (default: tests/data/traces)")
    ap.add_argument("--timeout", type=float, default=300, help="seconds for one command")
    return ap


def run_all(ap, opt, make):
    """Runs the named cases, each as make(name, opt); the exit status."""
    opt.dtrc = os.path.abspath(opt.dtrc)
    opt.keep_given = bool(opt.keep)
    opt.keep = opt.keep or tempfile.mkdtemp(prefix="dtrc-traces-")
    names = sorted(os.path.basename(os.path.dirname(p)) for p in glob.glob(os.path.join(opt.traces, "*", "trace.json")))
    if opt.case:
        for pattern in opt.case:
            if not fnmatch.filter(names, pattern):
                ap.error(f"no case matches {pattern}")
        names = [n for n in names if any(fnmatch.fnmatch(n, p) for p in opt.case)]
    if not names:
        ap.error(f"no cases in {opt.traces}")
    # The longest ones first, so that the last job does not run alone.
    names.sort(key=lambda n: -os.path.getsize(os.path.join(opt.traces, n, "model.onnx")))
    passed = failed = 0
    rows = []
    with concurrent.futures.ThreadPoolExecutor(opt.jobs) as pool:
        for job in concurrent.futures.as_completed([pool.submit(make(n, opt).run) for n in names]):
            c = job.result()
            passed, failed = passed + c.passed, failed + len(c.problems)
            print(f"{'FAIL' if c.problems else 'ok  '} {c.name:24s} {c.passed:3d} checks passed  {c.note}", flush=True)
            for problem in c.problems:
                print(f"     FAIL {c.name}, {problem}", flush=True)
            rows.append({"case": c.name, "passed": c.passed, "problems": c.problems, "note": c.note})
    if opt.json:
        with open(opt.json, "w") as f:
            json.dump(sorted(rows, key=lambda r: r["case"]), f, indent=1)
    if not opt.keep_given and not failed:
        shutil.rmtree(opt.keep, ignore_errors=True)
    elif failed:
        print(f"trainers and results of failed cases: {opt.keep}")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return failed > 0


if __name__ == "__main__":
    arguments = parser("Trace tests: dtrc against stored PyTorch runs.")
    sys.exit(run_all(arguments, arguments.parse_args(), Case))
