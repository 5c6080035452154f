#!/usr/bin/python3
"""The operator tests of ONNX (Debian package libonnx-testdata) through dtrc: what an operator computes.

    run_onnx_ops.py --dtrc build/release/bin/dtrc [--at-least N] [-v] [CASE...]

A trainer prints losses, not outputs: so the expected outputs of a case become part of the model, whose own loss is the
mean squared difference (relative to the expected output).  Cases that dtrc says it does not support are skipped; the
supported ones are merged into few models of one opset, because compiling costs most.  When the loss of a merged model
is not zero (to rounding), its cases are run one by one to name the culprit.

Last line: "N passed, N failed, N skipped"; fewer than --at-least passed cases is a failure too.
"""
import argparse
import collections
import concurrent.futures
import fnmatch
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

DATA = "/usr/share/libonnx-testdata/data"
FOLDERS = ["node", "pytorch-converted", "pytorch-operator", "simple"]
TOLERANCE = 1e-9  # of the relative squared error: f32 rounding gives 1e-12
ROUGH = {"window": 1e-7}  # these expected outputs were computed with a short pi: 6e-5 off
MERGE = 24
# Random outputs, and outputs that are not numbers.
RANDOM = ("bernoulli", "random", "training_dropout", "dropout_random")
# First inputs that are settings: the model must know them when it is compiled.
SETTINGS = {"Range"}
Case = collections.namedtuple("Case", "name model inputs outputs opset")


class Skip(Exception):
    pass


class Wrong(Exception):
    pass


def load_tensor(path):
    t = TensorProto()
    with open(path, "rb") as f:
        t.ParseFromString(f.read())
    if not t.data_type or t.data_type in (TensorProto.STRING, TensorProto.BFLOAT16):
        raise Skip("no numbers")
    return numpy_helper.to_array(t)


def case_name(folder):
    """Operator cases by their name, those of other folders with the folder before it."""
    kind, name = folder.split(os.sep)[-2:]
    return name[len("test_"):] if kind == "node" else kind + "." + name[len("test_"):]


def load_case(folder):
    name = case_name(folder)
    if name.startswith(RANDOM):
        raise Skip("random")
    model = onnx.load(os.path.join(folder, "model.onnx"))
    if len(model.opset_import) != 1 or model.opset_import[0].domain:
        raise Skip("not of the standard operator set")
    g = model.graph
    if not all(v.type.HasField("tensor_type") for v in list(g.input) + list(g.output)):
        raise Skip("not tensors")
    data = os.path.join(folder, "test_data_set_0")
    weights = {t.name for t in g.initializer}  # of operator set 6 among the inputs too
    for v in [v for v in g.input if v.name in weights]:
        g.input.remove(v)
    try:
        inputs = [load_tensor(os.path.join(data, f"input_{i}.pb")) for i in range(len(g.input))]
        outputs = [load_tensor(os.path.join(data, f"output_{i}.pb")) for i in range(len(g.output))]
    except (OSError, ValueError, TypeError) as e:
        raise Skip(f"data: {e}")
    if any(o.dtype == np.float16 for o in outputs) or "BFLOAT16" in name:
        raise Skip("rounds to 16 bits")
    if not all(o.size for o in outputs):
        raise Skip("empty")
    return Case(name, model, inputs, outputs, model.opset_import[0].version)


def add_case(case, prefix, nodes, inits, feeds):
    """The case's nodes under new names; returns the name of its error, a scalar."""
    def rename(n):
        return prefix + n if n else ""
    g = case.model.graph
    for t in g.initializer:
        t2 = TensorProto()
        t2.CopyFrom(t)
        t2.name = rename(t.name)
        inits.append(t2)
    for i, (v, a) in enumerate(zip(g.input, case.inputs)):
        # The first input is data, the others are weights or settings that must be known when compiling.
        settings = any(n.op_type in SETTINGS for n in g.node)
        if i == 0 and a.dtype == np.float32 and a.size and not settings:
            feeds[rename(v.name)] = a
        else:
            inits.append(numpy_helper.from_array(np.asarray(a), rename(v.name)))
    def rename_graph(sub):
        for v in list(sub.input) + list(sub.output) + list(sub.initializer):
            v.name = rename(v.name)
        for n in sub.node:
            n.input[:] = [rename(x) for x in n.input]
            n.output[:] = [rename(x) for x in n.output]
            for a in n.attribute:
                if a.HasField("g"):
                    rename_graph(a.g)
    for n in g.node:
        n2 = onnx.NodeProto()
        n2.CopyFrom(n)
        n2.name = prefix + n.op_type
        n2.input[:] = [rename(x) for x in n.input]
        n2.output[:] = [rename(x) for x in n.output]
        for a in n2.attribute:
            if a.HasField("g"):
                rename_graph(a.g)
        nodes.append(n2)
    errors = []
    for i, (v, want) in enumerate(zip(g.output, case.outputs)):
        p = f"{prefix}out{i}_"
        with np.errstate(over="ignore"):
            want = np.asarray(want).astype(np.float32)
        odd = ~np.isfinite(want)  # must be the same infinity or NaN
        plain = np.where(odd, np.float32(0), want)
        scale = 1 / max(float(np.mean(np.square(plain.astype(np.float64)))), 1e-12)
        inits.append(numpy_helper.from_array(plain, p + "want"))
        inits.append(numpy_helper.from_array(np.float32(scale), p + "scale"))
        nodes.append(helper.make_node("Cast", [rename(v.name)], [p + "float"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Sub", [p + "float", p + "want"], [p + "diff" + ("erence" if odd.any() else "")]))
        if odd.any():
            inits.append(numpy_helper.from_array(odd, p + "odd"))
            inits.append(numpy_helper.from_array(want, p + "all"))
            inits.append(numpy_helper.from_array(np.isnan(want), p + "nan"))
            nodes += [helper.make_node("IsNaN", [p + "float"], [p + "isnan"]),
                      helper.make_node("And", [p + "isnan", p + "nan"], [p + "both"]),
                      helper.make_node("Equal", [p + "float", p + "all"], [p + "equal"]),
                      helper.make_node("Or", [p + "both", p + "equal"], [p + "right"]),
                      helper.make_node("Not", [p + "right"], [p + "wrong"]),
                      helper.make_node("Cast", [p + "wrong"], [p + "one"], to=TensorProto.FLOAT),
                      helper.make_node("Where", [p + "odd", p + "one", p + "difference"], [p + "diff"])]
        nodes.append(helper.make_node("Mul", [p + "diff", p + "diff"], [p + "square"]))
        nodes.append(helper.make_node("ReduceMean", [p + "square"], [p + "mean"], keepdims=0))
        nodes.append(helper.make_node("Mul", [p + "mean", p + "scale"], [p + "error"]))
        errors.append(p + "error")
    return errors


def write_model(cases, work):
    nodes, inits, feeds, errors = [], [], {}, []
    for i, c in enumerate(cases):
        errors += add_case(c, f"c{i}_", nodes, inits, feeds)
    total = errors[0]
    for i, e in enumerate(errors[1:]):
        nodes.append(helper.make_node("Add", [total, e], [f"total{i}"]))
        total = f"total{i}"
    inputs = [helper.make_tensor_value_info(k, TensorProto.FLOAT, v.shape) for k, v in feeds.items()]
    graph = helper.make_graph(nodes, "cases", inputs, [helper.make_tensor_value_info(total, TensorProto.FLOAT, [])],
                              inits)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", cases[0].opset)])
    model.ir_version = 8
    os.makedirs(work, exist_ok=True)
    path = os.path.join(work, "model.onnx")
    onnx.save(model, path)
    np.savez(os.path.join(work, "data.npz"), **{k: v[None] for k, v in feeds.items()})
    frozen = ["--freeze", "*"] if any(t.data_type == TensorProto.FLOAT for t in inits) else []
    return path, ["--loss", "output", *frozen, "--threads", "1"], bool(feeds)


def run(cmd):
    p = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
    return p.returncode, p.stdout.decode(errors="replace"), p.stderr.decode(errors="replace")


def supported(dtrc, case, work):
    """Raises Skip with dtrc's own words when it refuses the model."""
    model, options, _ = write_model([case], work)
    rc, _, err = run([dtrc, "plan", model, "--budget", "100%", *options])
    if rc == 1:
        raise Skip(err.strip().splitlines()[0] if err.strip() else "refused without a word")
    if rc:
        raise Wrong(f"plan: exit status {rc}: {err[-500:]}")
    return case


def error_of(dtrc, cases, work):
    model, options, has_data = write_model(cases, work)
    trainer = os.path.join(work, "trainer")
    rc, _, err = run([dtrc, model, "--budget", "100%", "-o", trainer, *options])
    if rc:
        raise Wrong(f"compile: exit status {rc}: {err[-800:]}")
    data = ["--data", os.path.join(work, "data.npz"), "--batched"] if has_data else ["--synthetic"]
    rc, out, err = run([trainer, *data, "--steps", "1", "--lr", "0", "--json"])
    if rc:
        raise Wrong(f"run: exit status {rc}: {err[-500:]}")
    return json.loads(out.strip().splitlines()[-1])["losses"][0]


def check(dtrc, cases, work):
    """{name: what is wrong} of a group."""
    try:
        error = error_of(dtrc, cases, work)
        if abs(error) <= max([TOLERANCE] + [t for k, t in ROUGH.items() if k in cases[0].name]):
            return {}
        text = f"relative squared error {error:.3g}"
    except Wrong as e:
        text = str(e)
    if len(cases) == 1:
        return {cases[0].name: text}
    bad = {}
    for c in cases:
        bad.update(check(dtrc, [c], work + "-" + c.name))
    return bad or {f"{cases[0].name} .. {cases[-1].name}": f"together: {text}, one by one: fine"}


def main():
    ap = argparse.ArgumentParser(description="ONNX operator tests.")
    ap.add_argument("case", nargs="*", help="names or globs (default: all)")
    ap.add_argument("--dtrc", required=True)
    ap.add_argument("--at-least", type=int, default=0, help="cases that must pass")
    ap.add_argument("--jobs", type=int, default=os.cpu_count())
    ap.add_argument("-v", action="store_true", help="say why cases are skipped")
    opt = ap.parse_args()
    dtrc = os.path.abspath(opt.dtrc)
    work = tempfile.mkdtemp(prefix="dtrc-onnx-")
    folders = [f for kind in FOLDERS for f in sorted(glob.glob(os.path.join(DATA, kind, "test_*")))
               if not opt.case or any(fnmatch.fnmatch(case_name(f), p) for p in opt.case)]
    if not folders:
        print("no cases: is libonnx-testdata installed?\n0 passed, 0 failed, 1 skipped")
        return opt.at_least > 0
    cases, bad, skipped = [], {}, 0

    def prepare(folder):
        return supported(dtrc, load_case(folder), os.path.join(work, case_name(folder)))
    with concurrent.futures.ThreadPoolExecutor(opt.jobs) as pool:
        for folder, job in [(f, pool.submit(prepare, f)) for f in folders]:
            name = case_name(folder)
            try:
                cases.append(job.result())
            except Skip as e:
                skipped += 1
                if opt.v:
                    print(f"skip {name}: {e}")
            except Wrong as e:
                bad[name] = str(e)
        cases.sort(key=lambda c: (c.opset, any(k in c.name for k in ROUGH), c.name))
        groups, last = [], None
        for c in cases:
            kind = (c.opset, any(k in c.name for k in ROUGH))
            if not groups or kind != last or len(groups[-1]) == MERGE:
                groups.append([])
                last = kind
            groups[-1].append(c)
        for result in pool.map(lambda g: check(dtrc, g, os.path.join(work, f"group-{g[0].name}")), groups):
            bad.update(result)
    for name, text in sorted(bad.items()):
        print(f"FAIL {name}: {text}")
    shutil.rmtree(work, ignore_errors=True)
    passed = len(cases) - sum(n in {c.name for c in cases} for n in bad)
    if passed < opt.at_least:
        print(f"FAIL only {passed} cases passed, at least {opt.at_least} expected")
        bad["too few"] = ""
    print(f"{passed} passed, {len(bad)} failed, {skipped} skipped")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
