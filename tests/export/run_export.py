#!/usr/bin/python3
"""The models that trainers write with --export.

    run_export.py --dtrc build/release/bin/dtrc

Each is a valid ONNX file in inference form: its initializers are the weights that --save wrote, rounded to nearest
where the model's own type is shorter; all else is as in the file that was compiled.  Models with weights that exporters
had merged, with running statistics, half precision, external files, functions; and models of tests/data/traces.  One
exported model is compiled again and must compute what numpy computes from the saved weights.

One line per check, then "N passed, N failed, N skipped".
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as H
from onnx import numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "traces"))
from run_traces import DATA, compile_options  # noqa: E402

TYPES = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "I32": np.int32}
RNG = np.random.default_rng(0)


class Failed(Exception):
    pass


def need(ok, what):
    if not ok:
        raise Failed(what)


def weights_of(path):
    with open(path, "rb") as f:
        raw = f.read()
    n = int.from_bytes(raw[:8], "little")
    out = {}
    for name, x in json.loads(raw[8:8 + n]).items():
        if name != "__metadata__" and not name.startswith("optim."):
            lo, hi = x["data_offsets"]
            out[name] = np.frombuffer(raw[8 + n + lo:8 + n + hi], TYPES[x["dtype"]]).reshape(x["shape"])
    return out


def initializers(model):
    return {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}


def tensor(name, values, dtype=np.float32):
    return numpy_helper.from_array(np.asarray(values, dtype), name)


def value(name, shape, elem=T.FLOAT):
    return H.make_tensor_value_info(name, elem, shape)


def model(nodes, inputs, outputs, initial, opset=15, **more):
    graph = H.make_graph(nodes, "g", inputs, outputs, initial)
    graph.doc_string = "kept"
    imports = [H.make_opsetid("", opset)] + [H.make_opsetid(f.domain, 1) for f in more.get("functions", [])]
    m = H.make_model(graph, opset_imports=imports, **more)
    m.metadata_props.add(key="who", value="me")
    return m


class Tests:
    def __init__(self, dtrc, work):
        self.dtrc, self.work = dtrc, work
        self.passed = self.failed = 0

    def path(self, name):
        return os.path.join(self.work, name)

    def run(self, command, status=0):
        p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
        err = p.stderr.decode(errors="replace")
        need(p.returncode == status, f"exit status {p.returncode}, expected {status}: {' '.join(command)}\n{err}")
        return p.stdout.decode(errors="replace"), err

    def compile(self, source, *options):
        trainer = self.path("trainer")
        self.run([self.dtrc, source, "--budget", "100%", "--planner", "none", "-o", trainer, *options])
        return trainer

    def train(self, trainer, *data, rate="0.1"):
        """Trains and exports; (model, saved weights)."""
        out, saved = self.path("out.onnx"), self.path("out.safetensors")
        self.run([trainer, *data, "--lr", rate, "--save", saved, "--export", out])
        m = onnx.load(out)
        onnx.checker.check_model(m, full_check=True)
        return m, weights_of(saved)

    def of(self, m, name, *options, **more):
        """A model of our own, compiled, trained on random data and exported."""
        source = self.path(name + ".onnx")
        onnx.save(m, source)
        return self.train(self.compile(source, "--batch", "4", *options), "--synthetic", "--steps", "3", **more)

    def check(self, name, test):
        try:
            test()
            self.passed += 1
            print(f"ok   {name}")
        except (Failed, OSError, subprocess.TimeoutExpired, onnx.checker.ValidationError) as e:
            self.failed += 1
            print(f"FAIL {name}: {e}")


def same_weights(m, saved):
    have = initializers(m)
    for name, w in saved.items():
        need(name in have, f"'{name}' is not in the exported model")
        need(np.array_equal(have[name], w.astype(have[name].dtype)), f"'{name}' is not what was saved")


def same_rest(m, before, saved):
    """Untrained initializers, documentation and metadata are those of the file."""
    old, new = initializers(before), initializers(m)
    for name in old:
        need(name in new, f"'{name}' is gone")
        need(name in saved or np.array_equal(old[name], new[name]), f"'{name}' changed")
    need(any(not np.array_equal(old[n], new[n]) for n in old), "nothing was trained")
    need(m.graph.doc_string == before.graph.doc_string, "the documentation is gone")
    need([(p.key, p.value) for p in m.metadata_props] == [(p.key, p.value) for p in before.metadata_props],
         "the metadata are gone")
    need(m.graph.input == before.graph.input and m.graph.output == before.graph.output, "inputs or outputs changed")


def merged_weights(t):
    w = RNG.standard_normal((8, 8))
    before = model([H.make_node("Identity", ["b1"], ["b2"]), H.make_node("Identity", ["b2"], ["b3"]),
                    H.make_node("Gemm", ["x", "w1", "b1"], ["h"]), H.make_node("Gemm", ["h", "w2", "b2"], ["i"]),
                    H.make_node("Gemm", ["i", "w1", "b3"], ["y"])],
                   [value("x", ["N", 8])], [value("y", ["N", 8])],
                   [tensor("w1", w), tensor("w2", -w), tensor("b1", np.zeros(8))])
    m, saved = t.of(before, "merged")
    same_weights(m, saved)
    same_rest(m, before, saved)
    need([n.op_type for n in m.graph.node] == ["Gemm"] * 3, "the Identity is still there")
    need(len({saved[b].tobytes() for b in ("b1", "b2", "b3")}) == 3, "the copies were trained as one")


def norm_model():
    one, zero = np.ones(3), np.zeros(3)
    return model([H.make_node("BatchNormalization", ["x", "g1", "z", "z", "one"], ["a", "m1", "v1"], "bn1",
                              training_mode=1),
                  H.make_node("BatchNormalization", ["a", "g2", "b2", "z", "one"], ["b", "m2", "v2"],
                              training_mode=1, momentum=0.5),
                  H.make_node("Flatten", ["b"], ["f"]), H.make_node("Gemm", ["f", "w"], ["q"]),
                  H.make_node("Dropout", ["q", "ratio", "on"], ["y"])],
                 [value("x", ["N", 3, 2, 2])], [value("y", ["N", 4])],
                 [tensor("g1", one), tensor("z", zero), tensor("one", one), tensor("g2", one * 2),
                  tensor("b2", one), tensor("w", RNG.standard_normal((12, 4))), tensor("ratio", 0.5),
                  tensor("on", True, bool)])


def inference_form(t):
    """Statistics that were one tensor are four; training is off."""
    before = norm_model()
    m, saved = t.of(before, "norm")
    same_weights(m, saved)
    same_rest(m, before, saved)
    for n in m.graph.node:
        need(len(n.output) == 1, f"{n.op_type} gives {list(n.output)}")
        need(not any(a.name == "training_mode" for a in n.attribute), "training_mode is still there")
    need([a.f for a in m.graph.node[1].attribute] == [0.5], "momentum is gone")
    need(list(m.graph.node[4].input) == ["q", "ratio"], f"Dropout reads {list(m.graph.node[4].input)}")
    need(len({n for b in m.graph.node[:2] for n in b.input[3:]}) == 4, "statistics are still shared")


def computes_the_same(t):
    """The exported model, compiled again: its loss before the first update, by numpy."""
    m, saved = t.of(norm_model(), "again")
    x = RNG.standard_normal((4, 3, 2, 2)).astype(np.float32)
    target = RNG.standard_normal((4, 4)).astype(np.float32)
    np.savez(t.path("data.npz"), x=x, target=target)
    trainer = t.compile(t.path("out.onnx"), "--batch", "4", "--loss", "mse")
    out, _ = t.run([trainer, "--data", t.path("data.npz"), "--steps", "1", "--lr", "0", "--shuffle", "off", "--json"])
    v = x.astype(np.float64)
    for node in m.graph.node[:2]:
        scale, bias, mean, var = (saved[n].reshape(1, 3, 1, 1).astype(np.float64) for n in node.input[1:])
        v = (v - mean) / np.sqrt(var + 1e-5) * scale + bias
    want = np.mean((v.reshape(4, 12) @ saved["w"] - target) ** 2)
    got = json.loads(out.strip().splitlines()[-1])["losses"][0]
    need(abs(got - want) <= 1e-5 * abs(want), f"loss {got}, expected {want}")


def half_precision(t):
    w = RNG.standard_normal((64, 64)) * 2.0 ** RNG.integers(-24, 4, (64, 64))
    before = model([H.make_node("MatMul", ["x", "w"], ["y"])], [value("x", ["N", 64], T.FLOAT16)],
                   [value("y", ["N", 64], T.FLOAT16)], [tensor("w", w, np.float16)])
    m, saved = t.of(before, "short", rate="1e-5")
    same_weights(m, saved)
    same_rest(m, before, saved)
    need(m.graph.initializer[0].data_type == T.FLOAT16, "the type changed")
    small = np.abs(saved["w"]) < 2.0 ** -14  # subnormal
    need(np.any((saved["w"] != saved["w"].astype(np.float16)) & small), "nothing to round")


def bfloat16(t):
    w = RNG.standard_normal((8, 8)).astype(np.float32)
    raw = (w.view(np.uint32) >> 16).astype(np.uint16)
    init = H.make_tensor("w", T.BFLOAT16, [8, 8], raw.tobytes(), raw=True)
    before = model([H.make_node("Cast", ["w"], ["c"], to=T.FLOAT), H.make_node("MatMul", ["x", "c"], ["y"])],
                   [value("x", ["N", 8])], [value("y", ["N", 8])], [init])
    m, saved = t.of(before, "bfloat")
    have = np.frombuffer(m.graph.initializer[0].raw_data, np.uint16).reshape(8, 8)
    exact = saved["w"].astype(np.float64)
    error = np.abs((have.astype(np.uint32) << 16).view(np.float32) - exact)
    need(m.graph.initializer[0].data_type == T.BFLOAT16, "the type changed")
    need(np.all(error <= np.abs(exact) * 2.0 ** -8), f"off by {np.max(error / np.abs(exact))}, expected half a unit")


def external_files(t):
    """The exported model stands alone, what was frozen included."""
    w = RNG.standard_normal((8, 8))
    before = model([H.make_node("MatMul", ["x", "w"], ["a"]), H.make_node("MatMul", ["a", "fixed"], ["y"])],
                   [value("x", ["N", 8])], [value("y", ["N", 8])], [tensor("w", w), tensor("fixed", 2 * w)])
    source = t.path("external.onnx")
    onnx.save_model(before, source, save_as_external_data=True, location="external.bin", size_threshold=0)
    before = onnx.load(source)
    trainer = t.compile(source, "--batch", "4", "--freeze", "fixed")
    os.remove(t.path("external.bin"))
    m, saved = t.train(trainer, "--synthetic", "--steps", "3")
    same_weights(m, saved)
    same_rest(m, before, saved)
    need(not any(i.external_data for i in m.graph.initializer), "external data are left")


def functions(t):
    f = H.make_function("my", "F", ["X", "W", "S", "B", "M", "V"], ["Y"],
                        [H.make_node("MatMul", ["X", "W"], ["a"]),
                         H.make_node("BatchNormalization", ["a", "S", "B", "M", "V"], ["Y", "m", "v"],
                                     training_mode=1)], [H.make_opsetid("", 15)])
    one = np.ones(8)
    before = model([H.make_node("F", ["x", "w", "s", "b", "m", "v"], ["y"], domain="my")],
                   [value("x", ["N", 8])], [value("y", ["N", 8])],
                   [tensor("w", RNG.standard_normal((8, 8))), tensor("s", one), tensor("b", 0 * one),
                    tensor("m", 0 * one), tensor("v", one)], functions=[f])
    m, saved = t.of(before, "functions")
    same_weights(m, saved)
    same_rest(m, before, saved)
    norm = m.functions[0].node[1]
    need(list(norm.output) == ["Y"] and not norm.attribute, f"in training mode: {norm}")


def trace(name):
    def test(t):
        folder = os.path.join(DATA, name)
        with open(os.path.join(folder, "trace.json")) as f:
            info = json.load(f)
        source = os.path.join(folder, "model.onnx")
        trainer = t.compile(source, *compile_options(info))
        m, saved = t.train(trainer, "--data", os.path.join(folder, "data.npz"), "--batched", "--steps", "2")
        same_weights(m, saved)
        same_rest(m, onnx.load(source), saved)
    return test


def refused(t):
    """A text graph has no file to write again."""
    text, _ = t.run([t.dtrc, t.path("merged.onnx"), "--batch", "4", "-d", "import", "-s", "import"])
    with open(t.path("model.ir"), "w") as f:
        f.write(text)
    trainer = t.compile(t.path("model.ir"))
    _, err = t.run([trainer, "--synthetic", "--export", t.path("never.onnx")], status=2)
    need("cannot write its model" in err, err)
    need(not os.path.exists(t.path("never.onnx")), "a file was written")


def stays_whole(t):
    """A file that cannot be written leaves the one that is there."""
    trainer = t.compile(t.path("merged.onnx"), "--batch", "4")
    with open(t.path("out.onnx"), "rb") as f:
        before = f.read()
    limit = ["bash", "-c", 'ulimit -f 0; exec "$@"', "bash"]
    _, err = t.run(limit + [trainer, "--synthetic", "--export", t.path("out.onnx")], status=4)
    with open(t.path("out.onnx"), "rb") as f:
        need(f.read() == before, "the old file was harmed")
    need("out.onnx" in err, err)


def main():
    ap = argparse.ArgumentParser(description="Tests of --export.")
    ap.add_argument("--dtrc", required=True)
    opt = ap.parse_args()
    with tempfile.TemporaryDirectory(prefix="dtrc-export-") as work:
        t = Tests(os.path.abspath(opt.dtrc), work)
        for test in (merged_weights, inference_form, computes_the_same, half_precision, bfloat16, external_files,
                     functions):
            t.check(test.__name__.replace("_", " "), lambda: test(t))
        for name in ("resnet_partial_frozen", "bert_mini", "mlp_wide_adam"):
            t.check(name, lambda: trace(name)(t))
        t.check("text graphs are refused", lambda: refused(t))
        t.check("a full disk", lambda: stays_whole(t))
    print(f"{t.passed} passed, {t.failed} failed, 0 skipped")
    return t.failed > 0


if __name__ == "__main__":
    sys.exit(main())
