#!/usr/bin/python3
"""One program at other sizes than it was compiled for, against programs compiled for those sizes.

    run_sizes.py --dtrc build/release/bin/dtrc [--quick | --full] [CASE...]

For models of tests/data/traces whose batch is symbolic: compiled for batch 8, run with 1, 5, 8, 13 and 32 at one budget,
in hard mode too; losses and weights must have the bits of a program compiled for that batch.  Then
  - a large batch at a budget that forces recomputation: the same bits, the real peak within the budget;
  - the last, partial batch of an epoch: the bits of a program compiled for its size that goes on from a checkpoint;
    --drop-last leaves it out;
  - a model with a batch and a length (made here): both differ from what was compiled;
  - models of newer operators (operator_models.py) with another batch;
  - dimensions whose names try to become code; a library that wants more workspace than was planned;
  - sizes that make no sense, that the budget cannot hold, or that a program does not have: status and message.

One line per case, then "N passed, N failed, N skipped".
"""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "traces"))
import operator_models  # noqa: E402
from run_traces import DATA, Failed, compile_options, must_run  # noqa: E402

CASES = ["mlp_relu", "dropout_stats", "lenet_mnist", "resnet_frozen_bn", "vit_mini", "bert_mini", "densenet_mini",
         "unet_mini", "lstm_classifier", "autoencoder_mse", "multi_input"]
MADE = ["sequences", "operators", "fixed", "names", "library"]
QUICK = ["mlp_relu", "dropout_stats", "resnet_frozen_bn", "vit_mini"]
COMPILED, SIZES = 8, [1, 5, 8, 13, 32]
STEPS = "3"


def must_say(text, *parts):
    for part in parts:
        if part not in text:
            raise Failed(f"no '{part}' in: {text}")


def without(args, option):
    i = args.index(option)
    return args[:i] + args[i + 2:]


class Case:
    def __init__(self, name, opt):
        self.name, self.opt = name, opt
        self.folder = os.path.join(DATA, name)
        self.work = os.path.join(opt.keep, name)
        os.makedirs(self.work, exist_ok=True)
        self.passed, self.problems, self.note = 0, [], ""

    def check(self, what, fn, *args):
        try:
            result = fn(*args)
            self.passed += 1
            return result
        except (Failed, OSError, KeyError, ValueError) as e:
            self.problems.append(f"{what}: {e}")

    def compile(self, model, args, name):
        out = os.path.join(self.work, name)
        _, err = must_run([self.opt.dtrc, model, "--threads", "2", "-o", out] + args, self.opt.timeout)
        if "at these sizes only" in err:
            raise Failed(f"the sizes of {model} are not described: {err}")
        return out

    def train(self, trainer, *args):
        out, err = must_run([trainer, "--json", *args], self.opt.timeout)
        s = json.loads(out.strip().splitlines()[-1])
        if s["peak_bytes"] > s["budget_bytes"]:
            raise Failed(f"peak {s['peak_bytes']} is more than the budget {s['budget_bytes']}")
        return s, err

    def synthetic(self, trainer, *args):
        return self.train(trainer, "--synthetic", "--steps", STEPS, *args)[0]

    def same(self, got, want, mode):
        if got["mode"] != mode:
            raise Failed(f"mode {got['mode']}, expected {mode}")
        for key in ("losses", "weights_sha256", "batch"):
            if got[key] != want[key]:
                raise Failed(f"{key} is {got[key]}, in the program compiled for this size {want[key]}")

    def refused(self, status, says, trainer, *args):
        _, err = must_run([trainer, "--synthetic", "--steps", "1", *args], self.opt.timeout, status)
        for text in says:
            if text not in err:
                raise Failed(f"{args}: the message does not say '{text}': {err}")

    # ---- a trace's model ----

    def at_size(self, size):
        want = self.synthetic(self.programs[size])
        mode = "static" if size == COMPILED else "dynamic"
        budget = str(2 * self.peak[max(SIZES)])
        self.same(self.synthetic(self.programs[COMPILED], "--batch", str(size), "--budget", budget), want, mode)
        self.same(self.synthetic(self.programs[COMPILED], "--batch", str(size), "--budget", budget, "--hard"), want, mode)

    def recomputing(self):
        """The largest batch in less memory than it would like."""
        size = max(SIZES)
        want = self.synthetic(self.programs[size])
        for percent in (85, 70):
            budget = self.peak[size] * percent // 100
            try:
                got = self.synthetic(self.programs[COMPILED], "--batch", str(size), "--budget", str(budget))
            except Failed as e:
                if "exit status 3" not in str(e):
                    raise
                continue
            self.same(got, want, "dynamic")
            self.note = f"{got['recomputed_runs']} runs again at {percent} %"
        return True

    def rows(self, seed):
        """Data of 21 samples in the shapes of the trace."""
        rng = np.random.default_rng(seed)
        with np.load(os.path.join(self.folder, "data.npz")) as z:
            data = {k: np.concatenate(list(z[k]) * 21)[:21] for k in z.files}
        order = rng.permutation(21)
        return {k: v[order] for k, v in data.items()}

    def partial(self):
        """8 + 8 + 5 samples; the last step alone from a checkpoint in a program compiled for 5."""
        data, five = self.rows(1), os.path.join(self.work, "five.npz")
        whole, saved = os.path.join(self.work, "whole.npz"), os.path.join(self.work, "two.safetensors")
        np.savez(whole, **data)
        np.savez(five, **{k: np.concatenate([v[:10], v[16:]]) for k, v in data.items()})
        run = ["--shuffle", "off", "--data"]
        got, _ = self.train(self.programs[COMPILED], *run, whole, "--epochs", "1")
        if got["steps"] != 3 or got["samples"] != 21:
            raise Failed(f"{got['steps']} steps and {got['samples']} samples in an epoch of 21 in batches of 8")
        self.train(self.programs[COMPILED], *run, whole, "--steps", "2", "--save", saved)
        want, _ = self.train(self.programs[5], *run, five, "--steps", "3", "--resume", saved)
        if got["losses"][-1] != want["losses"][-1] or got["weights_sha256"] != want["weights_sha256"]:
            raise Failed(f"partial batch: loss {got['losses'][-1]}, expected {want['losses'][-1]}, weights "
                         f"{got['weights_sha256']}, expected {want['weights_sha256']}")
        again, _ = self.train(self.programs[COMPILED], *run, whole, "--epochs", "1", "--hard")
        if again["weights_sha256"] != got["weights_sha256"]:
            raise Failed("hard mode changes the result of an epoch with a partial batch")
        less, err = self.train(self.programs[COMPILED], *run, whole, "--epochs", "1", "--drop-last")
        if less["steps"] != 2 or less["samples"] != 16 or "left out" not in err:
            raise Failed(f"--drop-last: {less['steps']} steps, {less['samples']} samples: {err}")
        few = os.path.join(self.work, "few.npz")
        np.savez(few, **{k: v[:3] for k, v in data.items()})
        less, _ = self.train(self.programs[COMPILED], *run, few, "--epochs", "2")
        if less["steps"] != 2 or less["samples"] != 6:
            raise Failed(f"3 samples, batch 8: {less['steps']} steps, {less['samples']} samples")

    def hostile(self):
        p = self.programs[COMPILED]
        for value in ("0", "-3", "x", "", "1.5", "99999999999999999999999"):
            self.refused(2, ["a batch size, 1 or more"], p, "--batch", value)
        self.refused(2, ["expected a number from 1 to 2147483647"], p, "--batch", "2147483648")
        self.refused(4, ["no schedule exists below", "of free memory"], p, "--batch", "1000000000")
        self.refused(3, ["no schedule exists below", "the budget is"], p, "--batch", "1000000000", "--budget", "1G")
        self.refused(2, ["NAME=N"], p, "--dim", "=3")
        self.refused(2, ["NAME=N"], p, "--dim", "batch=0")
        self.refused(2, ["no dimension of that name"], p, "--dim", "no such=3")
        self.refused(2, ["--check-grad is for the sizes"], p, "--batch", "5", "--check-grad")
        self.refused(2, ["--profile is for the sizes"], p, "--batch", "5", "--profile", os.path.join(self.work, "p.json"))
        must_run([p, "--synthetic", "--steps", "1", "--batch", "13", "--mode", "static"], self.opt.timeout, 3)

    def run_trace(self):
        trace = json.load(open(os.path.join(self.folder, "trace.json")))
        model, args = os.path.join(self.folder, "model.onnx"), without(compile_options(trace), "--batch")
        self.programs, self.peak = {}, {}
        for size in SIZES:
            self.programs[size] = self.compile(model, args + ["--batch", str(size)], f"b{size}")
            self.peak[size] = self.synthetic(self.programs[size])["planned_peak_bytes"]
        for size in SIZES:
            self.check(f"batch {size}", self.at_size, size)
        self.check("recomputing", self.recomputing)
        self.check("partial batch", self.partial)
        if self.name == "mlp_relu":
            self.check("hostile", self.hostile)

    # ---- batch and length ----

    def sequence_model(self, tables):
        """tables: positions come from a list 0 1 2 .. that is computed when importing, and a start value from the batch."""
        rng = np.random.default_rng(3)

        def weight(name, *shape):
            return numpy_helper.from_array((rng.standard_normal(shape) * 0.3).astype(np.float32), name)

        def number(name, *values):
            return numpy_helper.from_array(np.array(values, np.int64), name)

        def scalar(name, value):
            return numpy_helper.from_array(np.array(value, np.int64), name)

        nodes = [helper.make_node("Gather", ["table", "ids"], ["words"]),
                 helper.make_node("Shape", ["ids"], ["shape"])]
        if tables:
            half = numpy_helper.from_array(np.array([0.5], np.float32), "half")
            nodes += [helper.make_node("Gather", ["shape", "i1"], ["length"]),
                      helper.make_node("Range", ["i0", "length", "i1"], ["positions"]),
                      helper.make_node("Gather", ["places", "positions"], ["place"]),
                      helper.make_node("Gather", ["shape", "zero"], ["batch"]),
                      helper.make_node("Concat", ["batch", "one", "twelve"], ["state shape"], axis=0),
                      helper.make_node("ConstantOfShape", ["state shape"], ["state"], value=half),
                      helper.make_node("Add", ["words", "state"], ["started"]),
                      helper.make_node("Add", ["started", "place"], ["x"])]
        else:
            nodes += [helper.make_node("Gather", ["shape", "one"], ["length"]),
                      helper.make_node("Slice", ["places", "zero", "length", "zero"], ["place"]),
                      helper.make_node("Add", ["words", "place"], ["x"])]
        nodes += [
                 helper.make_node("MatMul", ["x", "wq"], ["q"]),
                 helper.make_node("Transpose", ["x"], ["keys"], perm=[0, 2, 1]),
                 helper.make_node("MatMul", ["q", "keys"], ["scores"]),
                 helper.make_node("Softmax", ["scores"], ["attention"], axis=2),
                 helper.make_node("MatMul", ["attention", "x"], ["mixed"]),
                 helper.make_node("Add", ["mixed", "x"], ["y"]),
                 helper.make_node("MatMul", ["y", "wo"], ["products"]),
                 helper.make_node("Add", ["products", "bo"], ["logits"])]
        graph = helper.make_graph(
            nodes, "sequences", [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "length"])],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "length", 11])],
            [weight("table", 17, 12), weight("places", 40, 12), weight("wq", 12, 12), weight("wo", 12, 11), weight("bo", 11),
             number("one", 1), number("zero", 0), number("twelve", 12), scalar("i0", 0), scalar("i1", 1)])
        path = os.path.join(self.work, f"sequences{int(tables)}.onnx")
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
        return path

    def two_symbols(self, model, size, length):
        args = ["--loss", "cross-entropy:class_axis=2"]
        want = self.synthetic(self.compile(model, args + ["--batch", str(size), "--dim", f"length={length}"], "want"))
        got = self.synthetic(self.first, "--batch", str(size), "--dim", f"length={length}", "--budget", "16M")
        self.same(got, want, "dynamic")

    def run_sequences(self):
        for tables, most, pairs in ((False, 40, ((4, 7), (9, 10), (1, 40), (3, 1), (33, 16))), (True, 10, ((4, 7), (9, 10), (3, 1)))):
            model = self.sequence_model(tables)
            self.first = self.compile(model, ["--loss", "cross-entropy:class_axis=2", "--batch", "4", "--dim", "length=10"],
                                      "first")
            for size, length in pairs:
                self.check(f"batch {size}, length {length}", self.two_symbols, model, size, length)
            self.check("too long", self.refused, 2, [f"--dim \"length\" {most + 1}", f"from 1 to {most}"], self.first, "--dim",
                       f"length={most + 1}")

    # ---- newer operators ----

    def other_batch(self, name, model):
        path = os.path.join(self.work, name.replace(" ", "_") + ".onnx")
        onnx.save(model, path)
        first = self.compile(path, ["--loss", "mse", "--batch", str(COMPILED)], "first")
        for size in (1, 13):
            want = self.synthetic(self.compile(path, ["--loss", "mse", "--batch", str(size)], "want"))
            for more in ([], ["--hard"]):
                self.same(self.synthetic(first, "--batch", str(size), "--budget", "16M", *more), want, "dynamic")

    def run_operators(self):
        for name, model in operator_models.models():
            self.check(name, self.other_batch, name, model)

    # ---- names that try to become code; a library that wants more than was planned ----

    def run_names(self):
        batch, length = '*/ "\\\n#error N', "a b'%s\t$(exit 1)"
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
        w = numpy_helper.from_array(np.ones((3, 2), np.float32), "w")
        graph = helper.make_graph([node], "names", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, length, 3])],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, length, 2])], [w])
        path = os.path.join(self.work, "names.onnx")
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
        args = ["--loss", "mse", "--batch", "4", "--dim", length + "=5"]
        p = self.check("compile", self.compile, path, args, "names")
        want = self.compile(path, args[:3] + ["6", "--dim", length + "=9"], "want")
        got = self.synthetic(p, "--dim", length + "=9", "--dim", batch + "=6", "--budget", "1M")
        self.check("other sizes", self.same, got, self.synthetic(want), "dynamic")

    def run_library(self):
        folder, model = os.path.join(self.work, "program"), os.path.join(DATA, "mlp_relu", "model.onnx")
        p = self.compile(model, ["--batch", "8", "--emit", folder], "planned")
        source = os.path.join(folder, "program.c")
        text = open(source).read()
        less, n = re.subn(r'("Gemm", .*0x0, 0x0, )(\d+)(, \d+},)', lambda m: f"{m[1]}{int(m[2]) // 2}{m[3]}", text)
        if not n:
            raise Failed("no matrix product with workspace in the program")
        with open(source, "w") as f:
            f.write(less)
        must_run(["make", "-C", folder], self.opt.timeout)
        made = [f for f in os.listdir(folder) if os.access(os.path.join(folder, f), os.X_OK)]
        got, err = self.train(os.path.join(folder, made[0]), "--synthetic", "--steps", STEPS, "--budget", "1M")
        self.check("same bits", self.same, got, self.synthetic(p), "dynamic")
        self.check("says so", lambda: must_say(err, "the library needs more workspace here than was planned"))

    # ---- a program of one size ----

    def run_fixed(self):
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
        w = numpy_helper.from_array(np.ones((3, 2), np.float32), "w")
        graph = helper.make_graph([node], "fixed", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3])],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 2])], [w])
        path = os.path.join(self.work, "fixed.onnx")
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
        p = self.compile(path, ["--loss", "cross-entropy"], "fixed")
        self.check("another batch", self.refused, 2, ["compiled for batch 4", "the dimensions of its inputs are fixed"], p,
                   "--batch", "5")
        self.check("its batch", self.synthetic, p, "--batch", "4")
        data = os.path.join(self.work, "six.npz")
        np.savez(data, x=np.zeros((6, 3), np.float32), target=np.zeros(6, np.int64))
        s, err = self.train(p, "--data", data, "--epochs", "1")
        self.check("partial batch", lambda: must_say(f"{s['steps']} step; {err}", "1 step", "left out"))

    def run(self):
        try:
            {"sequences": self.run_sequences, "operators": self.run_operators, "fixed": self.run_fixed, "names": self.run_names,
             "library": self.run_library}.get(self.name, self.run_trace)()
        except (Failed, OSError, KeyError, ValueError) as e:
            self.problems.append(f"{type(e).__name__}: {e}")
        if not self.problems and not self.opt.keep_given:
            shutil.rmtree(self.work, ignore_errors=True)
        return self


def main():
    ap = argparse.ArgumentParser(description="One program at several sizes.")
    ap.add_argument("case", nargs="*")
    ap.add_argument("--dtrc", required=True)
    ap.add_argument("--jobs", type=int, default=os.cpu_count())
    ap.add_argument("--quick", action="store_true", help="four models")
    ap.add_argument("--full", action="store_true", help="every model with a symbolic batch")
    ap.add_argument("--keep", help="folder for trainers; kept afterwards")
    ap.add_argument("--timeout", type=float, default=300)
    opt = ap.parse_args()
    opt.dtrc = os.path.abspath(opt.dtrc)
    opt.keep_given = bool(opt.keep)
    opt.keep = opt.keep or tempfile.mkdtemp(prefix="dtrc-sizes-")
    names = opt.case or MADE + (QUICK if opt.quick else CASES)
    if opt.full:
        names = MADE + [n for n in sorted(os.listdir(DATA)) if os.path.isdir(os.path.join(DATA, n)) and
                                          json.load(open(os.path.join(DATA, n, "trace.json")))["dynamic_batch"]]
    passed = failed = 0
    with concurrent.futures.ThreadPoolExecutor(opt.jobs) as pool:
        for job in concurrent.futures.as_completed([pool.submit(Case(n, opt).run) for n in names]):
            c = job.result()
            passed, failed = passed + c.passed, failed + len(c.problems)
            print(f"{'FAIL' if c.problems else 'ok  '} {c.name:24s} {c.passed:3d} checks passed  {c.note}", flush=True)
            for problem in c.problems:
                print(f"     FAIL {c.name}, {problem}", flush=True)
    if not opt.keep_given and not failed:
        shutil.rmtree(opt.keep, ignore_errors=True)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
