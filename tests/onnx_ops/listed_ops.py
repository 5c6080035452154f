#!/usr/bin/python3
"""Gradients of ONNX operators end to end: one model with a branch for each, checked by --check-grad.

    listed_ops.py --dtrc build/release/bin/dtrc [NAME...]

Each branch has a weight of its own name; its result, times random numbers, is added to the loss.  The reference of
--check-grad works on the operators as imported; what these compute is the matter of run_onnx_ops.py.  One line per
branch that fails; the last line: "N passed, N failed, N skipped".
"""
import argparse
import os
import re
import shutil
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from run_onnx_ops import run

RNG = np.random.default_rng(5)
F, I = np.float32, np.int64


class Model:
    """Nodes and constants; branches count up."""

    def __init__(self, only):
        self.only, self.nodes, self.init, self.parts, self.names, self.count = only, [], [], [], [], 0

    def op(self, kind, *args, outs=1, **attr):
        self.count += 1
        names = [f"v{self.count}_{k}" for k in range(outs)]
        self.nodes.append(helper.make_node(kind, [self.const(a) if isinstance(a, np.ndarray) else a for a in args],
                                           names, **attr))
        return names[0] if outs == 1 else names

    def const(self, v):
        self.count += 1
        self.nodes.append(helper.make_node("Constant", [], [f"c{self.count}"], value=numpy_helper.from_array(v)))
        return f"c{self.count}"

    def branch(self, name, values, function):
        if self.only and name not in self.only:
            return
        self.init.append(numpy_helper.from_array(values.astype(F), name))
        self.names.append(name)
        y = function(name)
        r = self.op("RandomUniformLike", y, seed=1.0, dtype=1)  # any shape: drawn anew each step, the same for both
        self.parts.append(self.op("ReduceSum", self.op("Mul", y, r), keepdims=0))


def far(*shape, low=-2.0, high=2.0):
    """Distinct numbers with gaps, so that no order or rounding changes nearby."""
    n = int(np.prod(shape))
    return (RNG.permutation(n) * (high - low) / n + low + 0.3 * (high - low) / n).reshape(shape)


def graph(nodes, out, inputs=()):
    return helper.make_graph(nodes, "body", list(inputs), out)


def info(name, shape=None, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def elementwise(m):
    x = far(3, 5)
    for kind in ("Sin", "Cos", "Abs", "Erf", "Neg", "Exp", "Tanh", "Sigmoid", "Relu", "Selu", "Celu", "Mish", "Softsign",
                 "ThresholdedRelu", "Elu", "LeakyRelu", "Softplus", "HardSwish", "HardSigmoid", "Gelu", "Swish", "Atan",
                 "Sinh", "Cosh", "Asinh", "Softmax", "LogSoftmax", "Identity", "Flatten", "LpNormalization"):
        m.branch(kind, x, lambda w, k=kind: m.op(k, w))
    m.branch("Gelu_tanh", x, lambda w: m.op("Gelu", w, approximate="tanh"))
    for kind in ("Reciprocal", "Log", "Sqrt"):
        m.branch(kind, far(3, 5, low=0.5), lambda w, k=kind: m.op(k, w))
    for kind in ("Floor", "Ceil", "Round"):  # gradient 0: what remains is that of the other factor
        m.branch(kind, x, lambda w, k=kind: m.op("Mul", m.op(k, w), w))
    for kind in ("Min", "Max", "Sum", "Mean"):
        m.branch(kind, x, lambda w, k=kind: m.op(k, w, far(5).astype(F), far(3, 1).astype(F)))
    m.branch("Where", x, lambda w: m.op("Where", x > 0, w, far(1, 5).astype(F)))
    m.branch("PRelu", far(3, 1), lambda w: m.op("PRelu", far(2, 3, 4).astype(F), w))
    m.branch("Pow", far(3, 5, low=0.5), lambda w: m.op("Pow", w, np.array(2.5, F)))
    m.branch("Mod", x, lambda w: m.op("Mod", w, np.array(0.75, F), fmod=1))
    m.branch("Clip", x, lambda w: m.op("Clip", w, np.array(-1, F), np.array(1.05, F)))
    m.branch("IsNaN", x, lambda w: m.op("Where", m.op("IsNaN", w), np.zeros(1, F), w))


def reductions(m):
    for kind in ("Max", "Min", "L1", "L2", "Prod", "LogSumExp", "SumSquare", "Sum", "Mean"):
        m.branch("Reduce" + kind, far(2, 3, 4), lambda w, k=kind: m.op("Reduce" + k, w, np.array([-1, 0])))
    m.branch("ReduceLogSum", far(2, 3, low=0.5), lambda w: m.op("ReduceLogSum", w, np.array([1])))
    m.branch("CumSum", far(3, 4), lambda w: m.op("CumSum", w, np.array(1), exclusive=1, reverse=1))
    m.branch("TopK", far(3, 6), lambda w: m.op("TopK", w, np.array([2]), outs=2, axis=-1)[0])
    m.branch("Einsum", far(2, 3, 4), lambda w: m.op("Einsum", w, far(2, 4, 5).astype(F), equation="bij,bjk->bki"))
    m.branch("ArgMax", far(3, 4), lambda w: m.op("Mul", m.op("Cast", m.op("ArgMax", w, axis=1), to=1), w))


def movement(m):
    x = far(3, 4)
    m.branch("Expand", far(3, 1), lambda w: m.op("Expand", w, np.array([2, 3, 4])))
    m.branch("Tile", x, lambda w: m.op("Tile", w, np.array([2, 3])))
    m.branch("Trilu", x, lambda w: m.op("Trilu", w, np.array(-1), upper=0))
    m.branch("GatherND", x, lambda w: m.op("GatherND", w, np.array([[0, 1], [2, 3], [0, 1]])))
    m.branch("GatherElements", x, lambda w: m.op("GatherElements", w, np.array([[0, 2, 1, 1]]), axis=0))
    m.branch("ScatterND", x, lambda w: m.op("ScatterND", np.ones((5, 4), F), np.array([[4], [0], [2]]), w))
    m.branch("ScatterND_add", far(5, 4), lambda w: m.op("ScatterND", w, np.array([[4], [0]]), np.ones((2, 4), F), reduction="add"))
    m.branch("ScatterElements", x, lambda w: m.op("ScatterElements", np.ones((3, 4), F), np.array([[2, 0, 1, 2]]),
                                                  m.op("Slice", w, np.array([0]), np.array([1]), np.array([0])), axis=0))
    m.branch("EyeLike", far(4, 4), lambda w: m.op("Mul", m.op("EyeLike", np.ones((4, 4), F)), w))
    m.branch("Compress", x, lambda w: m.op("Compress", w, np.array([True, False, True]), axis=0))
    m.branch("Pad", x, lambda w: m.op("Pad", w, np.array([1, 0, 0, 2]), mode="edge"))
    m.branch("Concat", x, lambda w: m.op("Concat", w, w, axis=-1))
    m.branch("Split", x, lambda w: m.op("Split", w, np.array([1, 3]), outs=2, axis=1)[1])
    m.branch("Bernoulli", x, lambda w: m.op("Mul", m.op("Bernoulli", np.full((3, 4), 0.5, F)), w))
    m.branch("RandomNormal", x, lambda w: m.op("Mul", m.op("RandomNormal", shape=[3, 4]), w))
    m.branch("RandomUniform", x, lambda w: m.op("Mul", m.op("RandomUniform", shape=[3, 4]), w))
    m.branch("RandomNormalLike", x, lambda w: m.op("Mul", m.op("RandomNormalLike", w), w))


def images(m):
    x = far(2, 4, 5, 6)
    for mode, coord in (("nearest", "asymmetric"), ("linear", "half_pixel"), ("cubic", "align_corners"),
                        ("linear", "pytorch_half_pixel"), ("cubic", "half_pixel")):
        m.branch(f"Resize_{mode}_{coord}", x, lambda w, mode=mode, coord=coord: m.op(
            "Resize", w, "", np.array([1, 1, 1.6, 2], F), mode=mode, coordinate_transformation_mode=coord))
    m.branch("Upsample", x, lambda w: m.op("Upsample", w, np.array([1, 1, 2, 2], F), mode="nearest"))
    up = dict(kernel_shape=[3, 3], strides=[2, 2])
    m.branch("ConvTranspose_group", far(4, 3, 3, 3), lambda w: m.op("ConvTranspose", x.astype(F), w, group=2, output_padding=[1, 1], **up))
    m.branch("ConvTranspose_shape", far(4, 3, 3, 3), lambda w: m.op("ConvTranspose", x.astype(F), w, output_shape=[10, 12], **up))
    m.branch("ConvTranspose_x", x, lambda w: m.op("ConvTranspose", w, far(4, 3, 3, 3).astype(F), **up))
    m.branch("DepthToSpace", x, lambda w: m.op("DepthToSpace", w, blocksize=2, mode="CRD"))
    m.branch("SpaceToDepth", far(1, 2, 4, 6), lambda w: m.op("SpaceToDepth", w, blocksize=2))
    m.branch("LRN", x, lambda w: m.op("LRN", w, size=3))
    m.branch("GlobalMaxPool", x, lambda w: m.op("GlobalMaxPool", w))
    m.branch("GlobalLpPool", x, lambda w: m.op("GlobalLpPool", w, p=2))
    m.branch("LpPool", x, lambda w: m.op("LpPool", w, kernel_shape=[2, 2], p=2))
    pool = dict(kernel_shape=[2, 2], strides=[2, 2])
    m.branch("MaxUnpool", far(2, 4, 4, 6), lambda w: m.op("MaxUnpool", *m.op("MaxPool", w, outs=2, **pool), **pool))
    m.branch("InstanceNormalization", x, lambda w: m.op("InstanceNormalization", w, far(4).astype(F), far(4).astype(F)))
    m.branch("GroupNormalization", x, lambda w: m.op("GroupNormalization", w, far(4).astype(F), far(4).astype(F), num_groups=2))
    m.branch("MeanVarianceNormalization", x, lambda w: m.op("MeanVarianceNormalization", w))
    m.branch("LayerNormalization", x, lambda w: m.op("LayerNormalization", w, far(6).astype(F), far(6).astype(F)))
    m.branch("RMSNormalization", x, lambda w: m.op("RMSNormalization", w, far(6).astype(F)))


def sequences(m):
    x, ends = far(5, 2, 3).astype(F), np.array([5, 3], np.int32)
    for kind, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for way in ("forward", "reverse", "bidirectional"):
            d = 1 + (way == "bidirectional")
            extra = [np.zeros((d, 2, 4), F), np.zeros((d, 2, 4), F), far(d, 12).astype(F)] if kind == "LSTM" else []
            m.branch(f"{kind}_{way}", 0.3 * far(d, gates * 4, 3), lambda w, k=kind, g=gates, way=way, d=d, extra=extra: m.op(
                k, x, w, (0.3 * far(d, g * 4, 4)).astype(F), far(d, 8 * g).astype(F), ends, *extra, hidden_size=4, direction=way))
    q = far(2, 4, 5, 8)
    m.branch("Attention", q, lambda w: m.op("Attention", w, far(2, 2, 6, 8).astype(F), far(2, 2, 6, 8).astype(F)))
    m.branch("RotaryEmbedding", q, lambda w: m.op("RotaryEmbedding", w, far(2, 5, 4).astype(F), far(2, 5, 4).astype(F)))
    labels = np.array([[1, 0], [2, -1]])
    m.branch("SoftmaxCrossEntropyLoss", far(2, 3, 2), lambda w: m.op("SoftmaxCrossEntropyLoss", w, labels, np.array([1, 2, 3], F), ignore_index=-1))
    m.branch("NegativeLogLikelihoodLoss", far(2, 3, 2), lambda w: m.op("NegativeLogLikelihoodLoss", m.op("LogSoftmax", w, axis=1), labels, ignore_index=-1))
    out = [info("o")]
    yes = graph([helper.make_node("Sin", ["If"], ["o"])], out)
    no = graph([helper.make_node("Cos", ["If"], ["o"])], out)
    m.branch("If", far(3), lambda w: m.op("If", np.array(True), then_branch=yes, else_branch=no))
    body = graph([helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Mul", ["state", "Loop"], ["next"])],
                 [info("on", [], TensorProto.BOOL), info("next"), info("next")],
                 [info("i", [], TensorProto.INT64), info("go", [], TensorProto.BOOL), info("state")])
    m.branch("Loop", far(3), lambda w: m.op("Loop", np.array(3), np.array(True), np.ones(3, F), outs=2, body=body)[1])
    step = graph([helper.make_node("Mul", ["s", "row"], ["t"]), helper.make_node("Sin", ["t"], ["u"])],
                 [info("t"), info("u")], [info("s"), info("row")])
    m.branch("Scan", far(4, 3), lambda w: m.op("Scan", np.ones(3, F), w, outs=2, body=step, num_scan_inputs=1)[1])


def main():
    ap = argparse.ArgumentParser(description="Gradients of ONNX operators.")
    ap.add_argument("--dtrc", required=True)
    ap.add_argument("name", nargs="*")
    opt = ap.parse_args()
    m = Model(opt.name)
    for family in (elementwise, reductions, movement, images, sequences):
        family(m)
    loss = m.op("Sum", *m.parts, m.op("ReduceSum", m.op("Mul", "x", np.zeros(1, F)), keepdims=0))
    model = helper.make_model(graph(m.nodes, [info(loss, [])], [info("x", [1])]), opset_imports=[helper.make_opsetid("", 23)])
    model.graph.initializer.extend(m.init)
    model.ir_version = 8
    work = tempfile.mkdtemp(prefix="dtrc-listed-")
    path, trainer, dat = (os.path.join(work, f) for f in ("model.onnx", "trainer", "data.npz"))
    onnx.save(model, path)
    np.savez(dat, x=np.ones((1, 1), F))
    rc, out, err = run([os.path.abspath(opt.dtrc), path, "--loss", "output", "-o", trainer, "--train", "*"])
    if not rc:
        rc, out, err = run([trainer, "--data", dat, "--batched", "--check-grad"])
    shutil.rmtree(work, ignore_errors=True)
    said = {x[1]: x[0] for x in re.findall(r'(("[^"]*").*)', out)}
    bad = [n for n in m.names if not said.get(f'"{n}"', "").rstrip().endswith("ok")]
    for n in bad:
        print(f"FAIL {n}: {said.get(chr(34) + n + chr(34), 'not in the report')}")
    if bad:
        print(err[-2000:])
    print(f"{len(m.names) - len(bad)} passed, {len(bad)} failed, 0 skipped")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
