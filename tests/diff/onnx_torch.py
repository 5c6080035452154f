"""An independent reading of ONNX: runs a model in PyTorch (float64 by default), gradients included.

Only what the fuzzer's generator writes and what PyTorch exports for it; operator sets 7 to 17.  Each
operator is written from the specification, without a look at dtrc.
"""
import math

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper

INT_KINDS = (torch.int64, torch.int32, torch.bool)


class State:
    """What operators need besides their operands."""

    def __init__(self, opset, dtype):
        self.opset, self.dtype = opset, dtype
        self.buffers = {}  # name -> new value, of batch norm in training


def attributes(node):
    out = {}
    for a in node.attribute:
        v = onnx.helper.get_attribute_value(a)
        if isinstance(v, bytes):
            v = v.decode()
        elif isinstance(v, onnx.TensorProto):
            v = numpy_helper.to_array(v)
        out[a.name] = v
    return out


def to_torch(array, dtype):
    t = torch.from_numpy(np.array(array))
    return t.to(dtype) if t.is_floating_point() else t


def ints(t):
    return [int(v) for v in t.reshape(-1)]


def broadcast_axes(n):
    return list(range(n))


# ---- windows ----

def resolve_pads(x, a, kernel, nd):
    stride = list(a.get("strides", [1] * nd))
    dilation = list(a.get("dilations", [1] * nd))
    pads = list(a.get("pads", [0] * (2 * nd)))
    mode = a.get("auto_pad", "NOTSET")
    if mode != "NOTSET":
        pads = [0] * (2 * nd)
        for i in range(nd) if mode.startswith("SAME") else []:
            size = x.shape[2 + i]
            out = -(-size // stride[i])
            total = max(0, (out - 1) * stride[i] + (kernel[i] - 1) * dilation[i] + 1 - size)
            small, big = total // 2, total - total // 2
            pads[i], pads[nd + i] = (small, big) if mode == "SAME_UPPER" else (big, small)
    return stride, dilation, pads


def pad_space(x, lo, hi, value):
    spec = []
    for l, h in reversed(list(zip(lo, hi))):
        spec += [l, h]
    return F.pad(x, spec, value=value) if any(spec) else x


def conv(s, a, x, w, b=None):
    nd = x.dim() - 2
    stride, dilation, pads = resolve_pads(x, a, w.shape[2:], nd)
    x = pad_space(x, pads[:nd], pads[nd:], 0.0)
    f = (F.conv1d, F.conv2d, F.conv3d)[nd - 1]
    return f(x, w, b, stride=stride, dilation=dilation, groups=a.get("group", 1))


def windows(x, kernel, stride, dilation):
    """[N, C, out..., prod(kernel)]"""
    nd = len(kernel)
    for i in range(nd):
        x = x.unfold(2 + i, (kernel[i] - 1) * dilation[i] + 1, stride[i])
        if dilation[i] > 1:
            x = x[..., ::dilation[i]]
    return x.reshape(*x.shape[:2 + nd], -1)


def pool(s, a, x, is_max):
    nd, kernel = x.dim() - 2, list(a["kernel_shape"])
    stride, dilation, pads = resolve_pads(x, a, kernel, nd)
    lo, hi = pads[:nd], pads[nd:]
    more = [0] * nd
    for i in range(nd):
        room = x.shape[2 + i] + lo[i] + hi[i] - (kernel[i] - 1) * dilation[i] - 1
        steps = -(-room // stride[i]) if a.get("ceil_mode", 0) else room // stride[i]
        if steps * stride[i] >= x.shape[2 + i] + lo[i]:
            steps -= 1 if a.get("ceil_mode", 0) else 0
        more[i] = max(0, steps * stride[i] - room)
    if is_max:
        x = pad_space(pad_space(x, lo, hi, -math.inf), [0] * nd, more, -math.inf)
        return windows(x, kernel, stride, dilation).max(-1)[0]
    ones = torch.ones(x.shape, dtype=x.dtype)
    inner = 1.0 if a.get("count_include_pad", 0) else 0.0
    ones = pad_space(pad_space(ones, lo, hi, inner), [0] * nd, more, 0.0)
    x = pad_space(pad_space(x, lo, hi, 0.0), [0] * nd, more, 0.0)
    return windows(x, kernel, stride, dilation).sum(-1) / windows(ones, kernel, stride, dilation).sum(-1)


# ---- norms ----

def batch_norm(s, a, node, x, scale, bias, mean, var):
    eps, momentum = a.get("epsilon", 1e-5), a.get("momentum", 0.9)
    training = a.get("training_mode", 0) if s.opset >= 14 else len(node.output) > 1
    shape = [1, -1] + [1] * (x.dim() - 2)
    if training:
        axes = [0] + list(range(2, x.dim()))
        m, v = x.mean(axes), x.var(axes, unbiased=False)
        s.buffers[node.input[3]] = (momentum * mean + (1 - momentum) * m).detach()
        s.buffers[node.input[4]] = (momentum * var + (1 - momentum) * v).detach()
        mean, var = m, v
    y = (x - mean.reshape(shape)) / torch.sqrt(var.reshape(shape) + eps)
    return y * scale.reshape(shape) + bias.reshape(shape)


def layer_norm(s, a, x, scale, bias=None):
    axis = a.get("axis", -1) % x.dim()
    axes = list(range(axis, x.dim()))
    m = x.mean(axes, keepdim=True)
    d = x - m
    invstd = 1 / torch.sqrt((d * d).mean(axes, keepdim=True) + a.get("epsilon", 1e-5))
    y = d * invstd * scale
    return (y if bias is None else y + bias), m, invstd


def softmax(s, a, x, log):
    f = torch.log_softmax if log else torch.softmax
    if s.opset >= 13:
        return f(x, a.get("axis", -1))
    axis = a.get("axis", 1)
    axis += x.dim() if axis < 0 else 0
    return f(x.reshape(int(np.prod(x.shape[:axis])), -1), 1).reshape(x.shape)


# ---- movement ----

def gather(s, a, x, at):
    axis = a.get("axis", 0) % x.dim()
    at = torch.where(at < 0, at + x.shape[axis], at)
    y = torch.index_select(x, axis, at.reshape(-1))
    return y.reshape([*x.shape[:axis], *at.shape, *x.shape[axis + 1:]])


def slice_(s, a, x, starts=None, ends=None, axes=None, steps=None):
    if starts is None:
        starts, ends, axes, steps = a["starts"], a["ends"], a.get("axes"), None
    else:
        starts, ends = ints(starts), ints(ends)
        axes = None if axes is None else ints(axes)
        steps = None if steps is None else ints(steps)
    axes = axes or list(range(len(starts)))
    for i, axis in enumerate(axes):
        step = steps[i] if steps else 1
        at = range(x.shape[axis])[slice(starts[i], ends[i] if ends[i] > -2**31 else None, step)]
        x = torch.index_select(x, axis % x.dim(), torch.tensor(list(at), dtype=torch.int64))
    return x


def pad(s, a, x, pads=None, value=None):
    pads = a["pads"] if pads is None else ints(pads)
    value = a.get("value", 0.0) if value is None else float(value)
    mode, n = a.get("mode", "constant"), x.dim()
    for k in range(n):
        lo, hi, size = pads[k], pads[n + k], x.shape[k]
        if lo == hi == 0:
            continue
        at = torch.arange(-lo, size + hi)
        out = (at < 0) | (at >= size)
        if mode == "reflect":
            at = torch.where(at < 0, -at, at)
            at = torch.where(at >= size, 2 * (size - 1) - at, at)
        y = torch.index_select(x, k, at.clamp(0, size - 1))
        if mode == "constant":
            shape = [1] * n
            shape[k] = -1
            y = torch.where(out.reshape(shape), torch.tensor(value, dtype=x.dtype), y)
        x = y
    return x


def reshape(s, a, x, want):
    want = [x.shape[k] if d == 0 and not a.get("allowzero", 0) else d for k, d in enumerate(ints(want))]
    return x.reshape(want)


def reduce(s, a, x, axes, mean):
    axes = a.get("axes") if axes is None else ints(axes)
    if not axes:
        if a.get("noop_with_empty_axes", 0):
            return x
        axes = list(range(x.dim()))
    keep = bool(a.get("keepdims", 1))
    if x.dim() == 0:
        return x
    return x.mean(list(axes), keepdim=keep) if mean else x.sum(list(axes), keepdim=keep)


def squeeze(s, a, x, axes=None):
    axes = a.get("axes") if axes is None else ints(axes)
    drop = [k % x.dim() for k in axes] if axes else [k for k in range(x.dim()) if x.shape[k] == 1]
    return x.reshape([d for k, d in enumerate(x.shape) if k not in drop])


def unsqueeze(s, a, x, axes=None):
    axes = a.get("axes") if axes is None else ints(axes)
    rank = x.dim() + len(axes)
    added, dims = {k % rank for k in axes}, iter(x.shape)
    return x.reshape([1 if k in added else next(dims) for k in range(rank)])


def split(s, a, node, x, sizes=None):
    axis, n = a.get("axis", 0), len(node.output)
    sizes = a.get("split") if sizes is None else ints(sizes)
    return torch.split(x, list(sizes) if sizes else [x.shape[axis] // n] * n, dim=axis)


def flatten(s, a, x):
    axis = a.get("axis", 1)
    axis += x.dim() if axis < 0 else 0
    return x.reshape(int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:])))


def gemm(s, a, x, y, c=None):
    x, y = x.t() if a.get("transA", 0) else x, y.t() if a.get("transB", 0) else y
    z = a.get("alpha", 1.0) * (x @ y)
    return z if c is None else z + a.get("beta", 1.0) * c


def clip(s, a, x, lo=None, hi=None):
    lo = a.get("min") if lo is None else lo
    hi = a.get("max") if hi is None else hi
    if lo is not None:
        x = torch.maximum(x, torch.as_tensor(lo, dtype=x.dtype))
    return x if hi is None else torch.minimum(x, torch.as_tensor(hi, dtype=x.dtype))


def cast(s, a, x):
    kind = {onnx.TensorProto.FLOAT: s.dtype, onnx.TensorProto.INT64: torch.int64,
            onnx.TensorProto.INT32: torch.int32, onnx.TensorProto.BOOL: torch.bool,
            onnx.TensorProto.DOUBLE: s.dtype}[a["to"]]
    return x.to(kind)


def constant(s, a):
    if "value" in a:
        return to_torch(a["value"], s.dtype)
    if "value_float" in a:
        return torch.tensor(a["value_float"], dtype=s.dtype)
    if "value_floats" in a:
        return torch.tensor(a["value_floats"], dtype=s.dtype)
    return torch.tensor(a["value_ints"] if "value_ints" in a else a["value_int"], dtype=torch.int64)


def constant_of_shape(s, a, shape):
    v = to_torch(a.get("value", np.zeros(1, np.float32)), s.dtype)
    return v.reshape(()).expand(ints(shape)).clone()


def divide(s, a, x, y):
    return torch.div(x, y, rounding_mode="trunc") if x.dtype in INT_KINDS else x / y


def chain(f):
    def run(s, a, x, *rest):
        for y in rest:
            x = f(x, y)
        return x
    return run


def prelu(s, a, x, slope):
    return torch.where(x > 0, x, slope * x)


OPS = {
    "Conv": conv, "Gemm": gemm, "LayerNormalization": layer_norm, "Clip": clip, "Cast": cast,
    "MaxPool": lambda s, a, x: pool(s, a, x, True), "AveragePool": lambda s, a, x: pool(s, a, x, False),
    "GlobalAveragePool": lambda s, a, x: x.mean(list(range(2, x.dim())), keepdim=True),
    "MatMul": lambda s, a, x, y: torch.matmul(x, y),
    "Add": lambda s, a, x, y: x + y, "Sub": lambda s, a, x, y: x - y, "Mul": lambda s, a, x, y: x * y,
    "Div": divide, "Neg": lambda s, a, x: -x, "Exp": lambda s, a, x: torch.exp(x),
    "Log": lambda s, a, x: torch.log(x), "Abs": lambda s, a, x: torch.abs(x),
    "Reciprocal": lambda s, a, x: 1 / x,
    "Sin": lambda s, a, x: torch.sin(x), "Cos": lambda s, a, x: torch.cos(x),
    "Sqrt": lambda s, a, x: torch.sqrt(x), "Pow": lambda s, a, x, y: torch.pow(x, y.to(x.dtype)),
    "Relu": lambda s, a, x: torch.relu(x),
    "LeakyRelu": lambda s, a, x: torch.where(x >= 0, x, a.get("alpha", 0.01) * x),
    "Elu": lambda s, a, x: torch.where(x > 0, x, a.get("alpha", 1.0) * torch.expm1(torch.clamp(x, max=0))),
    "Sigmoid": lambda s, a, x: torch.sigmoid(x), "Tanh": lambda s, a, x: torch.tanh(x),
    "Softplus": lambda s, a, x: F.softplus(x, threshold=50), "Erf": lambda s, a, x: torch.erf(x),
    "HardSigmoid": lambda s, a, x: torch.clamp(a.get("alpha", 0.2) * x + a.get("beta", 0.5), 0, 1),
    "HardSwish": lambda s, a, x: x * torch.clamp(x / 6 + 0.5, 0, 1), "PRelu": prelu,
    "Softmax": lambda s, a, x: softmax(s, a, x, False), "LogSoftmax": lambda s, a, x: softmax(s, a, x, True),
    "Gather": gather, "Slice": slice_, "Pad": pad, "Reshape": reshape, "Squeeze": squeeze,
    "Unsqueeze": unsqueeze, "Flatten": flatten, "Identity": lambda s, a, x: x,
    "Dropout": lambda s, a, x, *r: x,
    "Transpose": lambda s, a, x: x.permute(a.get("perm", list(range(x.dim()))[::-1])),
    "Concat": lambda s, a, *x: torch.cat(x, a["axis"]),
    "ReduceMean": lambda s, a, x, axes=None: reduce(s, a, x, axes, True),
    "ReduceSum": lambda s, a, x, axes=None: reduce(s, a, x, axes, False),
    "Constant": constant, "ConstantOfShape": constant_of_shape,
    "Shape": lambda s, a, x: torch.tensor(x.shape, dtype=torch.int64),
    "Expand": lambda s, a, x, d: x * torch.ones(ints(d), dtype=x.dtype),
    "Where": lambda s, a, c, x, y: torch.where(c, x, y),
    "Equal": lambda s, a, x, y: x == y, "Less": lambda s, a, x, y: x < y,
    "Greater": lambda s, a, x, y: x > y, "Not": lambda s, a, x: ~x,
    "Min": chain(torch.minimum), "Max": chain(torch.maximum), "Sum": chain(torch.add),
}
WITH_NODE = {"BatchNormalization": batch_norm, "Split": split}


def run_node(s, node, values):
    """Puts the outputs of node into values."""
    a = attributes(node)
    ins = [values[n] if n else None for n in node.input]
    if node.op_type in WITH_NODE:
        out = WITH_NODE[node.op_type](s, a, node, *ins)
    else:
        out = OPS[node.op_type](s, a, *ins)
    for name, v in zip(node.output, out if isinstance(out, tuple) else (out,)):
        values[name] = v


def run_graph(model, feeds, weights, dtype=torch.float64):
    """(values by name, new buffers)"""
    s = State(model.opset_import[0].version, dtype)
    values = {k: to_torch(v, dtype) if isinstance(v, np.ndarray) else v for k, v in feeds.items()}
    for t in model.graph.initializer:
        values[t.name] = weights[t.name] if t.name in weights else to_torch(numpy_helper.to_array(t), dtype)
    for node in model.graph.node:
        run_node(s, node, values)
    return values, s.buffers
