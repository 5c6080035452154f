#!/usr/bin/python3
"""Chains of operators that dtrc makes one node of: attention, binary cross-entropy, biases.

    joined_ops.py --dtrc build/release/bin/dtrc

Each model here is such a chain under a sum of squares.  It must be seen as the node that the case names (in the text
of `-d fuse`), its loss must be what numpy computes in float64, and --check-grad must find the gradients of all
weights right: its reference runs the chain as it was imported.  Three steps at the smallest budget must give the bits
of three steps without one.  Last line: "N passed, N failed, 0 skipped".
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

RNG = np.random.default_rng(11)


def data(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Chain:
    """A model under construction: weights are trained, inputs and constants are not."""

    def __init__(self, name, node):
        self.name, self.node = name, node
        self.nodes, self.init, self.inputs, self.count = [], [], {}, 0

    def weight(self, v):
        self.init.append(numpy_helper.from_array(np.asarray(v, np.float32), f"w{len(self.init)}"))
        return self.init[-1].name

    def constant(self, v):
        return self.op("Constant", value=numpy_helper.from_array(np.asarray(v)))

    def given(self, v):
        name = f"x{len(self.inputs)}"
        self.inputs[name] = v
        return name

    def op(self, kind, *args, **attr):
        self.count += 1
        out = f"v{self.count}"
        self.nodes.append(helper.make_node(kind, list(args), [out], **attr))
        return out

    def model(self, y):
        loss = self.op("ReduceSum", self.op("Mul", y, y), keepdims=0)
        kinds = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(bool): TensorProto.BOOL}
        graph = helper.make_graph(
            self.nodes, self.name,
            [helper.make_tensor_value_info(k, kinds[v.dtype], v.shape) for k, v in self.inputs.items()],
            [helper.make_tensor_value_info(loss, TensorProto.FLOAT, [])], self.init)
        m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)])
        m.ir_version = 8
        return m


def attention(name, lead, rows, keys, depth, width, mask=None, scale="mul", swap=True, fill=-np.inf, bias=None, drop=0,
              few=False):
    """Scores of weights, with what the options say, times values.  bias: shape of a mask that is trained; few: all
    heads share keys and values.  What is dropped is known to --check-grad alone."""
    c = Chain(name, "Attention")
    one = c.given(np.ones(1, np.float32))
    of = () if few else lead
    q, k, v = data(*lead, rows, depth), data(*of, keys, depth), data(*of, keys, width)
    qn, kn, vn = c.weight(q), c.weight(k if swap else np.swapaxes(k, -1, -2)), c.weight(v)
    axes = list(range(len(of))) + [len(of) + 1, len(of)]
    if scale == "query":
        qn = c.op("Div", qn, c.constant(np.float32(2)))
    s = c.op("MatMul", qn, c.op("Transpose", kn, perm=axes) if swap else kn)
    want = q.astype(float) @ np.swapaxes(k, -1, -2) / (1 if scale is None else 2)
    if scale == "mul":
        s = c.op("Mul", s, c.constant(np.float32(0.5)))
    if mask in ("hide", "both"):
        hide = np.triu(np.ones((rows, keys), bool), 1)
        s = c.op("Where", c.constant(hide), c.constant(np.float32(fill)), s)
        want = np.where(hide, fill, want)
    if mask == "show":
        show = RNG.random((*lead[:1], *[1] * (len(lead) - 1), 1, keys)) < 0.6
        show[..., 0] = True
        s = c.op("Where", c.given(show), s, c.constant(np.float32(fill)))
        want = np.where(show, want, fill)
    if mask in ("add", "both"):
        add = data(*lead[:1], *[1] * (len(lead) - 1), rows, keys)
        s = c.op("Add", c.given(add), s)
        want = want + add
    if bias:
        add = data(*bias)
        s = c.op("Add", s, c.weight(add))
        want = want + add
    p = c.op("Softmax", s, axis=-1)
    if drop:
        p = c.op("Dropout", p, c.constant(np.float32(drop)), c.constant(np.array(True)))
    return c, c.op("Mul", c.op("MatMul", p, vn), one), None if drop else softmax(want) @ v


def windows(name, batch, count, heads, size, depth):
    """Attention within windows, as Swin has it: a bias for each head, and a mask for each window of an image."""
    c = Chain(name, "Attention")
    one = c.given(np.ones(1, np.float32))
    q, k, v = (data(batch * count, heads, size, depth) for _ in range(3))
    bias, mask = data(1, heads, size, size), np.where(RNG.random((1, count, 1, size, size)) < 0.3, -100, 0).astype(np.float32)
    s = c.op("MatMul", c.weight(q), c.op("Transpose", c.weight(k), perm=[0, 1, 3, 2]))
    s = c.op("Add", s, c.weight(bias))
    s = c.op("Reshape", s, c.constant(np.array([batch, count, heads, size, size])))
    s = c.op("Add", s, c.given(mask))
    s = c.op("Reshape", s, c.constant(np.array([-1, heads, size, size])))
    want = (q.astype(float) @ np.swapaxes(k, -1, -2) + bias).reshape(batch, count, heads, size, size) + mask
    y = c.op("MatMul", c.op("Softmax", s, axis=-1), c.weight(v))
    return c, c.op("Mul", y, one), softmax(want.reshape(-1, heads, size, size)) @ v


def entropy(name, form, node="BceLogits"):
    c = Chain(name, node)
    z, t, p = 3 * data(4, 5), RNG.random((4, 5)).astype(np.float32), RNG.random(5).astype(np.float32) + 0.5
    zn, tn, one = c.weight(z), c.given(t), c.constant(np.float32(1))
    z64, t64 = z.astype(float), t.astype(float)
    want = np.maximum(z64, 0) - z64 * t64 + np.log1p(np.exp(-abs(z64)))
    if form == "stable":
        tail = c.op("Log", c.op("Add", one, c.op("Exp", c.op("Neg", c.op("Abs", zn)))))
        return c, c.op("Add", c.op("Sub", c.op("Relu", zn), c.op("Mul", zn, tn)), tail), want
    if form == "probabilities":  # some are 0 or 1
        z = sigmoid(z).astype(np.float32)
        z[0, :4], t[0, :4] = (-0.5, 1.5, -0.5, 1.5), (0, 0, 1, 1)
        z64, t64 = np.clip(z.astype(float), 0, 1), t.astype(float)
        with np.errstate(divide="ignore"):
            want = -(t64 * np.maximum(np.log(z64), -100) + (1 - t64) * np.maximum(np.log(1 - z64), -100))
        c.init[-1] = numpy_helper.from_array(z, zn)
        s = c.op("Clip", zn, c.constant(np.float32(0)), one)
    else:
        s = c.op("Sigmoid", zn)
    if form == "log1p":
        low = c.constant(np.full((), -100, np.float32))
        yes = c.op("Max", c.op("Log", s), low)
        no = c.op("Max", c.op("Log", c.op("Add", c.op("Neg", s), one)), low)
        rest = c.op("Mul", c.op("Sub", tn, one), no)
        return c, c.op("Sub", rest, c.op("Mul", tn, yes)), want
    yes, no = c.op("Log", s), c.op("Log", c.op("Sub", one, s))
    if form in ("clipped", "probabilities"):
        yes, no = (c.op("Clip", x, c.constant(np.float32(-100))) for x in (yes, no))
    weight = c.op("Mul", tn, c.constant(p)) if form == "weights" else tn
    y = c.op("Add", c.op("Mul", weight, yes), c.op("Mul", c.op("Sub", one, tn), no))
    if form == "weights":
        want = -(t64 * p * np.log(sigmoid(z64)) + (1 - t64) * np.log(1 - sigmoid(z64)))
    return c, y if form == "positive" else c.op("Neg", y), -want if form == "positive" else want


def biased(name, op, shape):
    c = Chain(name, op)
    b = data(*shape)
    if op == "Conv":
        x, w = data(2, 3, 6, 5), data(4, 3, 1, 1)
        y = c.op("Conv", c.given(x), c.weight(w), kernel_shape=[1, 1])
        want = np.einsum("nchw,mc->nmhw", x.astype(float), w[:, :, 0, 0])
    else:
        x, w = data(2, 3, 6), data(6, 4)
        y = c.op("MatMul", c.given(x), c.weight(w))
        want = x.astype(float) @ w
    return c, c.op("Add", y, c.weight(b)), want + b


def cases():
    yield attention("attention", (2, 3), 5, 6, 4, 3)
    yield attention("attention_plain", (4,), 9, 9, 8, 8, scale=None, swap=False)
    yield attention("attention_query", (6,), 7, 5, 4, 4, scale="query")
    yield attention("attention_causal", (2, 2), 8, 8, 4, 4, mask="hide")
    yield attention("attention_finite", (2, 2), 8, 8, 4, 4, mask="hide", fill=-1.5)
    yield attention("attention_shown", (2, 2), 5, 7, 4, 4, mask="show")
    yield attention("attention_added", (2, 3), 5, 7, 4, 6, mask="add", swap=False)
    yield attention("attention_both", (2, 3), 5, 7, 4, 6, mask="both")
    yield attention("attention_blocks", (1, 2), 300, 600, 8, 8, mask="add")
    yield attention("attention_bias", (3, 2), 5, 7, 4, 6, bias=(1, 2, 5, 7))
    yield attention("attention_bias_mask", (3, 2), 6, 6, 4, 4, mask="hide", bias=(2, 1, 6))
    yield attention("attention_two_masks", (2, 3), 5, 7, 4, 6, mask="add", bias=(1, 3, 5, 7))
    yield attention("attention_drop", (2, 3), 9, 11, 8, 8, drop=0.25)
    yield attention("attention_drop_all", (2, 3), 9, 9, 4, 4, mask="both", drop=0.5, bias=(9, 9))
    yield attention("attention_drop_blocks", (1, 2), 300, 600, 8, 8, drop=0.1)
    yield attention("attention_shared_keys", (2, 3), 5, 7, 4, 6, few=True)
    yield windows("attention_windows", 2, 3, 2, 6, 4)
    yield entropy("bce_exported", "exported")
    yield entropy("bce_positive", "positive")
    yield entropy("bce_stable", "stable")
    yield entropy("bce_weights", "weights", "Softplus")
    yield entropy("bce_clipped", "clipped")
    yield entropy("bce_log1p", "log1p")
    yield entropy("bce_probabilities", "probabilities", "Where")
    yield biased("bias_conv3", "Conv", (4, 1, 1))
    yield biased("bias_conv4", "Conv", (1, 4, 1, 1))
    yield biased("bias_matmul", "MatMul", (1, 1, 4))


def one_node(text, c):
    """What was joined is there, and nothing of the chain is left."""
    lines = [x for x in text.splitlines() if x.startswith("fwd") or x.startswith("    i")]
    made = [x for x in lines if re.search(rf"= {c.node}\(", x)]
    if not made:
        return f"no {c.node} in the graph"
    left = {"Attention": r"= (Softmax|MatMul|Where)\(", "BceLogits": r"= (Log|Sigmoid)\(", "Softplus": r"= Log\("}
    if c.node in left and any(re.search(left[c.node], x) for x in lines):
        return f"parts of {c.node} are left"
    if c.node in ("Conv", "MatMul") and not any(re.search(rf"= {c.node}\(%\d+, %\d+, %\d+\)", x) for x in made):
        return f"{c.node} has no bias"
    return None


def wrong(dtrc, c, y, want, work):
    os.makedirs(work)
    path, dat = os.path.join(work, "model.onnx"), os.path.join(work, "data.npz")
    onnx.save(c.model(y), path)
    np.savez(dat, **{k: v[None] for k, v in c.inputs.items()})
    train = [dtrc, path, "--loss", "output", "--train", "w*"]
    rc, out, err = run([*train, "-d", "fuse", "-s", "fuse"])
    if rc or one_node(out, c):
        return err[-300:] if rc else one_node(out, c)
    rc, _, err = run([*train, "-o", os.path.join(work, "full")])
    if rc:
        return f"compile: {err[-500:]}"
    base = ["--data", dat, "--batched"]
    rc, out, err = run([os.path.join(work, "full"), *base, "--check-grad"])
    if rc:
        return f"gradient: {out[-600:]}{err[-200:]}"
    loss = float(re.search(r"loss: program (\S+),", out).group(1))
    if want is not None and abs(loss - (want * want).sum()) > 2e-5 * (want * want).sum():
        return f"loss {loss}, expected {(want * want).sum()}"
    return budgets(train, base, work)


def budgets(train, base, work):
    """The bits at the smallest budget are those without one."""
    rc, _, err = run([*train, "--budget", "1K", "-o", os.path.join(work, "small")])
    least = re.findall(r"\((\d+) bytes\)", err)  # the budget, the smallest
    if rc == 3 and len(least) > 1:
        rc, _, err = run([*train, "--budget", least[1], "-o", os.path.join(work, "small")])
    if rc:
        return f"smallest budget: {err[-300:]}"
    saved = []
    for name in ("full", "small"):
        save = os.path.join(work, name + ".st")
        rc, out, err = run([os.path.join(work, name), *base, "--hard", "--steps", "3", "--lr", "0.001", "--save", save])
        if rc:
            return f"{name}: {err[-300:]}"
        raw = open(save, "rb").read()
        saved.append(raw[8 + int.from_bytes(raw[:8], "little"):])
    return None if saved[0] == saved[1] else "other bits at the smallest budget"


def main():
    ap = argparse.ArgumentParser(description="Chains that become one node.")
    ap.add_argument("--dtrc", required=True)
    ap.add_argument("case", nargs="*", help="names, or how they begin")
    opt = ap.parse_args()
    dtrc = os.path.abspath(opt.dtrc)
    work = tempfile.mkdtemp(prefix="dtrc-joined-")
    bad = total = 0
    for c, y, want in cases():
        if opt.case and not c.name.startswith(tuple(opt.case)):
            continue
        problem = wrong(dtrc, c, y, want, os.path.join(work, c.name))
        total += 1
        bad += bool(problem)
        print(f"FAIL {c.name}: {problem}" if problem else f"ok   {c.name}")
    shutil.rmtree(work, ignore_errors=True)
    print(f"{total - bad} passed, {bad} failed, 0 skipped")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
