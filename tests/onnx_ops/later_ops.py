#!/usr/bin/python3
"""Operators of later operator sets than Debian's test data has, and recurrent layers with every attribute: expected
outputs by numpy, after their definitions.

    later_ops.py --dtrc build/release/bin/dtrc

Each case goes through dtrc as the cases of run_onnx_ops.py do (its loss is the relative squared error), and the
gradient of a sum of squares of its output is compared with finite differences of the program's own reference.
Last line: "N passed, N failed, 0 skipped".
"""
import argparse
import os
import shutil
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper

import recurrent
from run_onnx_ops import Case, Wrong, check, run

RNG = np.random.default_rng(7)


def data(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def heads(x, n):
    """[batch, length, n*size] -> [batch, n, length, size]"""
    return x.reshape(x.shape[0], x.shape[1], n, -1).transpose(0, 2, 1, 3)


def attention(q, k, v, mask=None, q_num_heads=0, kv_num_heads=0, scale=None, softcap=0, is_causal=0):
    flat = q.ndim == 3
    if flat:
        q, k, v = heads(q, q_num_heads), heads(k, kv_num_heads), heads(v, kv_num_heads)
    repeat = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, repeat, 1), np.repeat(v, repeat, 1)
    s = q @ k.transpose(0, 1, 3, 2) * (scale if scale is not None else 1 / np.sqrt(q.shape[-1]))
    if softcap:
        s = np.tanh(s / softcap) * softcap
    if is_causal:
        s = np.where(np.tri(*s.shape[-2:], dtype=bool), s, -np.inf)
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask
    y = softmax(s) @ v
    return y.transpose(0, 2, 1, 3).reshape(y.shape[0], y.shape[2], -1) if flat else y


def rotary(x, cos, sin, ids=None, num_heads=0, rotary_embedding_dim=0, interleaved=0):
    shape = x.shape
    if x.ndim == 3:
        x = x.reshape(shape[0], shape[1], num_heads, -1)
    else:
        x = x.transpose(0, 2, 1, 3)
    d = rotary_embedding_dim or x.shape[-1]
    turned, rest = x[..., :d], x[..., d:]
    if ids is not None:
        cos, sin = cos[ids], sin[ids]
    cos, sin = cos[:, :, None, :], sin[:, :, None, :]
    a, b = (turned[..., 0::2], turned[..., 1::2]) if interleaved else np.split(turned, 2, -1)
    real, imag = cos * a - sin * b, sin * a + cos * b
    if interleaved:
        turned = np.stack([real, imag], -1).reshape(turned.shape)
    else:
        turned = np.concatenate([real, imag], -1)
    y = np.concatenate([turned, rest], -1)
    return y.reshape(shape) if len(shape) == 3 else y.transpose(0, 2, 1, 3)


def group_norm(x, scale, bias, num_groups, epsilon=1e-5):
    n, c = x.shape[:2]
    g = x.reshape(n, num_groups, -1)
    g = (g - g.mean(-1, keepdims=True)) / np.sqrt(g.var(-1, keepdims=True) + epsilon)
    weight = [-1 if k == 1 else 1 for k in range(x.ndim)]
    if len(scale) != c:
        scale, bias = np.repeat(scale, c // num_groups), np.repeat(bias, c // num_groups)
    return g.reshape(x.shape) * scale.reshape(weight) + bias.reshape(weight)


def rms_norm(x, scale, axis=-1, epsilon=1e-5):
    axes = tuple(range(axis % x.ndim, x.ndim))
    return x / np.sqrt(np.mean(x * x, axes, keepdims=True) + epsilon) * scale


def swish(x, alpha=1.0):
    return x / (1 + np.exp(-alpha * x))


def cases():
    kind = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64,
            np.dtype(np.int32): TensorProto.INT32, np.dtype(bool): TensorProto.BOOL}
    out = []

    def add(name, opset, op, function, inputs, **attr):
        names = [f"in{i}" if v is not None else "" for i, v in enumerate(inputs)]
        given = [(n, v) for n, v in zip(names, inputs) if n]
        want = function(*inputs, **attr)
        want = [np.asarray(w, np.float32) for w in (want if isinstance(want, list) else [want])]
        results = [f"y{i}" for i in range(len(want))]
        graph = helper.make_graph(
            [helper.make_node(op, names, results, **attr)], name,
            [helper.make_tensor_value_info(n, kind[v.dtype], v.shape) for n, v in given],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, w.shape) for n, w in zip(results, want)])
        out.append(Case(name, helper.make_model(graph), [v for _, v in given], want, opset))

    q, k, v = data(2, 4, 5, 8), data(2, 4, 6, 8), data(2, 4, 6, 10)
    add("attention", 23, "Attention", attention, [q, k, v])
    add("attention_float_mask", 23, "Attention", attention, [q, k, v, data(5, 6)], scale=0.5)
    add("attention_head_mask", 23, "Attention", attention, [q, k, v, data(2, 4, 5, 6)], softcap=2.0)
    visible = RNG.random((2, 1, 5, 6)) < 0.7
    visible[..., 0] = True
    add("attention_bool_mask", 23, "Attention", attention, [q, k, v, visible])
    add("attention_causal", 23, "Attention", attention, [q, k, v], is_causal=1)
    add("attention_groups", 23, "Attention", attention, [q, k[:, :2], v[:, :2], data(1, 4, 5, 6)])
    add("attention_flat", 23, "Attention", attention, [data(2, 5, 24), data(2, 7, 12), data(2, 7, 8)], q_num_heads=4,
        kv_num_heads=2, is_causal=1)
    cos, sin, ids = data(9, 3), data(9, 3), RNG.integers(0, 9, (2, 5))
    add("rotary", 23, "RotaryEmbedding", rotary, [data(2, 4, 5, 6), cos, sin, ids])
    add("rotary_interleaved", 23, "RotaryEmbedding", rotary, [data(2, 4, 5, 6), cos, sin, ids], interleaved=1)
    add("rotary_part", 23, "RotaryEmbedding", rotary, [data(2, 4, 5, 10), cos, sin, ids], rotary_embedding_dim=6)
    add("rotary_flat", 23, "RotaryEmbedding", rotary, [data(2, 5, 24), data(2, 5, 3), data(2, 5, 3)], num_heads=4,
        interleaved=1)
    add("swish", 24, "Swish", swish, [data(3, 7)])
    add("swish_alpha", 24, "Swish", swish, [data(3, 7)], alpha=1.5)
    add("rms_norm", 23, "RMSNormalization", rms_norm, [data(3, 4, 5), data(5)])
    add("rms_norm_axis", 23, "RMSNormalization", rms_norm, [data(3, 4, 5), data(4, 5)], axis=1, epsilon=0.25)
    add("rms_norm_broadcast", 23, "RMSNormalization", rms_norm, [data(3, 4, 5), data(5)], axis=-2)
    add("group_norm_21", 21, "GroupNormalization", group_norm, [data(2, 6, 4, 3), data(6), data(6)], num_groups=3)
    add("group_norm_18", 18, "GroupNormalization", group_norm, [data(2, 6, 4, 3), data(3), data(3)], num_groups=3,
        epsilon=0.5)
    for name, op, inputs, attr in recurrent.cases(data):
        add(name, 14, op, lambda *a, op=op, **k: recurrent.recurrent(op, *a, **k), inputs, **attr)
    return out


def gradient(dtrc, case, work):
    """The program's gradients against differences of its reference; what is wrong, or None."""
    g = case.model.graph
    os.makedirs(work, exist_ok=True)
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    g = model.graph
    params = [v.name for v, a in zip(g.input, case.inputs) if a.dtype == np.float32]
    for info, a in zip(list(g.input), case.inputs):
        g.initializer.append(onnx.numpy_helper.from_array(a, info.name))
    del g.input[:]
    g.input.append(helper.make_tensor_value_info("one", TensorProto.FLOAT, [1]))
    for o in g.output:
        g.node.append(helper.make_node("Mul", [o.name, o.name], [o.name + "_square"]))
        g.node.append(helper.make_node("ReduceSum", [o.name + "_square"], [o.name + "_sum"], keepdims=0))
    g.node.append(helper.make_node("Sum", [o.name + "_sum" for o in g.output], ["sum"]))
    g.node.append(helper.make_node("Mul", ["sum", "one"], ["loss1"]))
    g.node.append(helper.make_node("ReduceSum", ["loss1"], ["loss"], keepdims=0))
    del g.output[:]
    g.output.append(helper.make_tensor_value_info("loss", TensorProto.FLOAT, []))
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("", case.opset))
    model.ir_version = 8
    path, trainer = os.path.join(work, "model.onnx"), os.path.join(work, "trainer")
    onnx.save(model, path)
    np.savez(os.path.join(work, "data.npz"), one=np.ones((1, 1), np.float32))
    train = [x for name in params for x in ("--train", name)]
    rc, _, err = run([dtrc, path, "--budget", "100%", "--loss", "output", "-o", trainer, *train, "--threads", "1"])
    if rc:
        return f"compile: {err[-500:]}"
    rc, out, err = run([trainer, "--data", os.path.join(work, "data.npz"), "--batched", "--check-grad"])
    return None if rc == 0 else f"gradient: {out[-600:]}{err[-200:]}"


def small_models():
    """(name, nodes, data inputs, weights, loss): what cannot be a case above."""
    node, cast = helper.make_node, lambda a, b: helper.make_node("Cast", [a], [b], to=TensorProto.FLOAT)
    x, w = data(2, 3, 8, 8), data(4, 3, 1, 1)
    # y - 2*mask*x is 0 where the mask is the one that y was drawn with; half of the mask is there
    image = [node("Conv", ["x", "w"], ["c"], kernel_shape=[1, 1]), node("Dropout", ["c", "half", "yes"], ["y", "m"]),
             cast("m", "mf"), node("Mul", ["mf", "c"], ["mc"]), node("Add", ["mc", "mc"], ["kept"]),
             node("Sub", ["y", "kept"], ["d"]), node("Mul", ["d", "d"], ["d2"]),
             node("ReduceSum", ["d2"], ["loss"], keepdims=0)]
    constants = {"half": np.float32(0.5), "yes": np.array(True)}
    yield "dropout_mask", image, {"x": x}, {"w": w}, constants, 0.0
    mean = image[:3] + [node("ReduceMean", ["mf"], ["mean"], keepdims=0), node("Clip", ["mean", "low", "high"], ["in"]),
                        node("Sub", ["in", "mean"], ["off"]), node("ReduceSum", ["w"], ["ws"], keepdims=0),
                        node("Mul", ["ws", "off"], ["loss"])]
    ends = {"low": np.float32(0.3), "high": np.float32(0.7)}
    yield "dropout_half", mean, {"x": x}, {"w": w}, {**constants, **ends}, 0.0
    a, b, v = RNG.integers(-9, 9, (4, 6)), RNG.integers(-3, 4, (4, 6)), data(4, 6)
    safe = np.where(b == 0, 1, b)
    parts = [np.trunc(a / safe), np.mod(a, safe), np.fmod(a, safe)]
    want = sum(np.where(b == 0, 0, p) for p in parts) * v.astype(float)
    ints = [node("Div", ["a", "b"], ["q"]), node("Mod", ["a", "b"], ["m"]), node("Mod", ["a", "b"], ["r"], fmod=1),
            node("Sum", ["qf", "mf", "rf"], ["s"]), node("Mul", ["s", "v"], ["sv"]), node("Mul", ["sv", "sv"], ["t"]),
            node("ReduceSum", ["t"], ["loss"], keepdims=0)]
    ints[3:3] = [cast(n, n + "f") for n in "qmr"]
    yield "integers", ints, {"a": a, "b": b}, {"v": v}, {}, (want * want).sum()
    a, b = RNG.integers(0, 256, (4, 6)), RNG.integers(0, 20, (4, 6))
    shifts, want = [], np.zeros((4, 6))
    for bits, kind in ((8, TensorProto.UINT8), (16, TensorProto.UINT16), (32, TensorProto.UINT32), (64, TensorProto.UINT64)):
        for n in "ab":
            shifts.append(node("Cast", [n], [f"{n}{bits}"], to=kind))
        for way in ("LEFT", "RIGHT"):
            shifts += [node("BitShift", [f"a{bits}", f"b{bits}"], [f"{way}{bits}"], direction=way),
                       cast(f"{way}{bits}", f"{way}{bits}f")]
        want += np.where(b < bits, (a << b) % 2 ** min(bits, 62) + (a >> b), 0)
    parts = [n.output[0] for n in shifts if n.output[0].endswith("f")]
    shifts += [node("Sum", parts, ["s"]), node("Mul", ["s", "v"], ["sv"]), node("Mul", ["sv", "sv"], ["t"]),
               node("ReduceSum", ["t"], ["loss"], keepdims=0)]
    yield "shifts", shifts, {"a": a, "b": b}, {"v": v}, {}, ((want * v) ** 2).sum()
    # every maximum back to its place, the rest 0; twice, by rows of one and by columns of the other
    x, w = data(2, 3, 6, 8), data(4, 3, 1, 1)
    pool = dict(kernel_shape=[2, 2], strides=[2, 2])
    net = [node("Conv", ["x", "w"], ["c"], kernel_shape=[1, 1]), node("MaxPool", ["c"], ["p", "i"], **pool),
           node("Mul", ["p", "v"], ["q"]), node("MaxUnpool", ["q", "i"], ["u"], **pool), node("Mul", ["u", "u"], ["t"]),
           node("MaxPool", ["c"], ["r", "j"], storage_order=1, **pool), cast("j", "jf"), node("Mul", ["jf", "k"], ["jk"]),
           node("ReduceSum", ["t"], ["ts"], keepdims=0), node("ReduceSum", ["jk"], ["js"], keepdims=0),
           node("Add", ["ts", "js"], ["loss"])]
    v, c = data(4, 3, 4), np.einsum("nchw,mc->nmhw", x.astype(float), w[:, :, 0, 0])
    cells = c.reshape(2, 4, 3, 2, 4, 2).transpose(0, 1, 2, 4, 3, 5).reshape(2, 4, 3, 4, 4)
    row, col = 2 * np.arange(3)[:, None] + cells.argmax(-1) // 2, 2 * np.arange(4) + cells.argmax(-1) % 2
    places = np.arange(8).reshape(2, 4, 1, 1) * 48 + col * 6 + row
    yield "unpool", net, {"x": x}, {"w": w, "v": v}, {"k": np.float32(1e-3)}, \
        ((cells.max(-1) * v) ** 2).sum() + 1e-3 * places.sum()
    d, u, at = data(3, 5), data(4, 5), RNG.integers(-3, 3, (4, 5))
    for how, start in (("mul", np.multiply), ("max", np.maximum), ("min", np.minimum)):
        want = d.astype(float)
        for i, j in np.ndindex(4, 5):
            want[at[i, j], j] = start(want[at[i, j], j], float(u[i, j]))
        nodes = [node("ScatterElements", ["d", "at", "u"], ["y"], axis=0, reduction=how),
                 node("Mul", ["y", "y"], ["t"]), node("ReduceSum", ["t"], ["loss"], keepdims=0)]
        yield f"scatter_{how}", nodes, {"at": at}, {"d": d, "u": u}, {}, (want * want).sum()


def small_model(dtrc, work, nodes, feeds, weights, constants, want):
    """Loss and gradients of one of these; what is wrong, or None."""
    os.makedirs(work, exist_ok=True)
    kind = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}
    given = [helper.make_node("Constant", [], [k], value=onnx.numpy_helper.from_array(np.asarray(v)))
             for k, v in constants.items()]
    graph = helper.make_graph(
        given + nodes, "small", [helper.make_tensor_value_info(k, kind[v.dtype], v.shape) for k, v in feeds.items()],
        [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])],
        [onnx.numpy_helper.from_array(v, k) for k, v in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 8
    path, trainer, dat = (os.path.join(work, f) for f in ("model.onnx", "trainer", "data.npz"))
    onnx.save(model, path)
    np.savez(dat, **{k: v[None] for k, v in feeds.items()})
    rc, _, err = run([dtrc, path, "--loss", "output", "-o", trainer, *[x for k in weights for x in ("--train", k)]])
    if rc:
        return f"compile: {err[-500:]}"
    rc, out, err = run([trainer, "--data", dat, "--batched", "--check-grad"])
    if rc and want:
        return f"gradient: {out[-600:]}{err[-200:]}"
    loss = float(out.split("loss: program ")[1].split(",")[0])
    return None if abs(loss - want) <= 2e-6 * abs(want) + 1e-9 else f"loss {loss}, expected {want}"


def kinks(dtrc, work):
    """What --check-grad says where a ReLU has its kink: sum of Relu(v*x) + (w*x)^2 with v at the kink, within the first
    step of the differences from it, and far from it. What is wrong, or None."""
    os.makedirs(work, exist_ok=True)
    for v, verdicts in ((0.0, "kink ok"), (1e-7, "ok ok"), (-1e-7, "ok ok"), (1.0, "ok ok")):
        node = helper.make_node
        graph = helper.make_graph(
            [node("Mul", ["v", "x"], ["vx"]), node("Relu", ["vx"], ["r"]), node("Mul", ["w", "x"], ["wx"]),
             node("Mul", ["wx", "wx"], ["s"]), node("Add", ["r", "s"], ["y"]),
             node("ReduceSum", ["y"], ["loss"], keepdims=0)], "kinks",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
            [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])],
            [onnx.numpy_helper.from_array(np.array([a], np.float32), n) for n, a in (("v", v), ("w", 0.75))])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
        model.ir_version = 8
        path, trainer = os.path.join(work, "model.onnx"), os.path.join(work, "trainer")
        onnx.save(model, path)
        np.savez(os.path.join(work, "data.npz"), x=np.ones((1, 1), np.float32))
        rc, _, err = run([dtrc, path, "--loss", "output", "-o", trainer, "--train", "v", "--train", "w"])
        if rc:
            return f"compile: {err[-500:]}"
        rc, out, _ = run([trainer, "--data", os.path.join(work, "data.npz"), "--batched", "--check-grad"])
        said = {line.split()[0]: line.split()[-1] for line in out.splitlines() if line.startswith('"')}
        if rc or f'{said.get(chr(34) + "v" + chr(34))} {said.get(chr(34) + "w" + chr(34))}' != verdicts:
            return f"v = {v}: expected {verdicts}: {out}"
        if ("1 cannot be told" in out) != ("kink" in verdicts):
            return f"v = {v}: kinks are not counted: {out}"
    return None


def main():
    ap = argparse.ArgumentParser(description="Operators of later sets.")
    ap.add_argument("--dtrc", required=True)
    dtrc = os.path.abspath(ap.parse_args().dtrc)
    work = tempfile.mkdtemp(prefix="dtrc-later-")
    bad, todo = {}, cases()
    for opset in sorted({c.opset for c in todo}):
        bad.update(check(dtrc, [c for c in todo if c.opset == opset], os.path.join(work, str(opset))))
    for c in todo:
        try:
            wrong = gradient(dtrc, c, os.path.join(work, c.name))
        except Wrong as e:
            wrong = str(e)
        if wrong:
            bad[c.name + " (gradient)"] = wrong
    small = list(small_models())
    for name, *rest in small:
        wrong = small_model(dtrc, os.path.join(work, name), *rest)
        if wrong:
            bad[name] = wrong
    wrong = kinks(dtrc, os.path.join(work, "kinks"))
    if wrong:
        bad["kinks"] = wrong
    for name, text in sorted(bad.items()):
        print(f"FAIL {name}: {text}")
    shutil.rmtree(work, ignore_errors=True)
    print(f"{2 * len(todo) + len(small) + 1 - len(bad)} passed, {len(bad)} failed, 0 skipped")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
