"""Random training models: ONNX files built node by node, each node run at once by onnx_torch.

A model is a walk over operators and small blocks (attention, squeeze-and-excite, LayerNorm written out, GELU,
...).  Running each node as it is made gives the shapes and keeps the numbers tame: a node whose result is
constant, huge or not finite is taken back.
"""
import math
import random

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from onnx_torch import State, run_node, to_torch

OPSETS = [7, 9, 11, 12, 13, 15, 17]
LIMIT = 12000  # elements of a value


class Reject(Exception):
    pass


class Gen:
    def __init__(self, seed, opset=None, kind=None, large=False):
        self.rng = random.Random(seed)
        self.large = large
        self.limit = 20 * LIMIT if large else LIMIT
        self.np = np.random.RandomState(seed % 2**32)
        torch.manual_seed(seed)
        self.opset = opset or self.rng.choice(OPSETS)
        self.kind = kind or self.rng.choice(["image", "image", "image", "rows", "tokens", "audio", "volume", "free"])
        self.state = State(self.opset, torch.float64)
        self.nodes, self.inits, self.inputs = [], [], []
        self.value, self.params, self.count = {}, [], 0
        self.feed_makers = {}
        self.live = []  # float values made so far
        self.vocab = 0
        self.ids = False
        self.loose = 0  # > 0: masks with infinities are allowed

    # ---- building ----

    def name(self, what="v"):
        self.count += 1
        return f"{what}{self.count}"

    def node(self, op, ins, nout=1, **attrs):
        outs = [self.name() for _ in range(nout)]
        n = helper.make_node(op, list(ins), outs, name=self.name("n_"), **attrs)
        try:
            with torch.no_grad():
                run_node(self.state, n, self.value)
        except (RuntimeError, IndexError, ValueError) as e:
            raise Reject(f"{op}: {e}")
        for o in outs:
            v = self.value.get(o)
            if v is None:
                continue
            if v.numel() == 0 or v.numel() > self.limit or v.dim() > 6:
                raise Reject("size")
            bad = v.is_floating_point() and not self.loose and (not torch.isfinite(v).all() or v.abs().max() > 1e3)
            if bad:
                raise Reject("range")
        self.nodes.append(n)
        return outs[0] if nout == 1 else outs

    def tensor(self, array, what="c"):
        """An initializer that is not trained (integers), or a Constant node."""
        n = self.name(what)
        t = numpy_helper.from_array(np.asarray(array), n)
        if np.asarray(array).dtype != np.float32 and self.rng.random() < 0.5:
            self.inits.append(t)
            self.value[n] = torch.from_numpy(np.array(array))
            return n
        node = helper.make_node("Constant", [], [n], name=self.name("n_"), value=t)
        run_node(self.state, node, self.value)
        self.nodes.append(node)
        return n

    def floats(self, v):
        return self.tensor(np.asarray(v, dtype=np.float32))

    def ints(self, v):
        return self.tensor(np.asarray(v, dtype=np.int64))

    def raw_param(self, shape, scale=1.0, shift=0.0):
        n = self.name("w")
        a = (self.np.randn(*shape) * scale + shift).astype(np.float32) if shape else np.float32(
            self.np.randn() * scale + shift)
        self.inits.append(numpy_helper.from_array(np.asarray(a, np.float32), n))
        self.value[n] = to_torch(np.asarray(a, np.float32), torch.float64)
        self.params.append(n)
        return n

    def param(self, shape, scale=1.0, shift=0.0):
        """A trained weight; sometimes a used one, sometimes one that passes through an operator first."""
        shape = list(shape)
        r = self.rng.random()
        if r < 0.10:
            same = [p for p in self.params if list(self.value[p].shape) == shape]
            if same:
                return self.rng.choice(same)
        elif r < 0.14 and shape:
            perm = list(range(len(shape)))
            self.rng.shuffle(perm)
            inner = [0] * len(shape)
            for i, k in enumerate(perm):
                inner[k] = shape[i]
            return self.node("Transpose", [self.raw_param(inner, scale, shift)], perm=perm)
        elif r < 0.18 and shape:
            flat = self.raw_param([int(np.prod(shape))], scale, shift)
            return self.node("Reshape", [flat, self.ints(shape)])
        elif r < 0.22 and shape:
            k = self.rng.randrange(len(shape))
            big = list(shape)
            big[k] += self.rng.randint(1, 3)
            at = self.rng.randint(0, big[k] - shape[k])
            return self.slice(self.raw_param(big, scale, shift), [at], [at + shape[k]], [k])
        elif r < 0.25 and shape:
            return self.node("Mul", [self.raw_param(shape, scale, shift), self.floats(1.25)])
        elif r < 0.28 and len(shape) > 1:  # weight standardisation, roughly
            w = self.raw_param(shape, scale, shift)
            return self.node("Sub", [w, self.reduce("ReduceMean", w, list(range(1, len(shape))), 1)])
        return self.raw_param(shape, scale, shift)

    def shape(self, v):
        return list(self.value[v].shape)

    # ---- operators whose form depends on the operator set ----

    def slice(self, x, starts, ends, axes, steps=None):
        if self.opset < 10:
            if steps and any(s != 1 for s in steps):
                raise Reject("steps")
            return self.node("Slice", [x], starts=starts, ends=ends, axes=axes)
        ins = [x, self.ints(starts), self.ints(ends), self.ints(axes)]
        return self.node("Slice", ins + ([self.ints(steps)] if steps else []))

    def reduce(self, op, x, axes, keep):
        if op == "ReduceSum" and self.opset >= 13:
            return self.node(op, [x] + ([self.ints(axes)] if axes else []), keepdims=keep)
        return self.node(op, [x], keepdims=keep, **({"axes": axes} if axes else {}))

    def squeeze(self, x, axes):
        return self.node("Squeeze", [x, self.ints(axes)]) if self.opset >= 13 else self.node("Squeeze", [x], axes=axes)

    def unsqueeze(self, x, axes):
        if self.opset >= 13:
            return self.node("Unsqueeze", [x, self.ints(axes)])
        return self.node("Unsqueeze", [x], axes=axes)

    def split(self, x, axis, sizes):
        if self.opset >= 13:
            return self.node("Split", [x, self.ints(sizes)], len(sizes), axis=axis)
        return self.node("Split", [x], len(sizes), axis=axis, split=sizes)

    def clip(self, x, lo, hi):
        if self.opset < 11:
            return self.node("Clip", [x], **({} if lo is None else {"min": lo}), **({} if hi is None else {"max": hi}))
        ins = [x, "" if lo is None else self.floats(lo)] + ([] if hi is None else [self.floats(hi)])
        return self.node("Clip", ins)

    def pad(self, x, pads, mode, value):
        if self.opset < 11:
            return self.node("Pad", [x], pads=pads, mode=mode, value=value)
        return self.node("Pad", [x, self.ints(pads)] + ([self.floats(value)] if mode == "constant" else []), mode=mode)

    def softmax(self, x, axis, op="Softmax"):
        """Along one axis in any operator set."""
        rank = len(self.shape(x))
        axis %= rank
        if self.opset >= 13 or axis == rank - 1:
            return self.node(op, [x], axis=axis)
        perm = [k for k in range(rank) if k != axis] + [axis]
        back = [perm.index(k) for k in range(rank)]
        return self.node("Transpose", [self.node(op, [self.node("Transpose", [x], perm=perm)], axis=rank - 1)], perm=back)

    # ---- steps: x -> y ----

    def s_conv(self, x, out=None, kernel=None):
        s, r = self.shape(x), self.rng
        nd = len(s) - 2
        if nd not in (1, 2, 3):
            raise Reject("rank")
        ci = s[1]
        groups = [g for g in range(1, ci + 1) if ci % g == 0]
        g = r.choice([1, 1, 1, ci, r.choice(groups)])
        co = out or g * r.choice([1, 1, 2, 3, max(1, 8 // g)])
        if co % g:
            g = 1
        k = kernel or [r.choice([1, 1, 2, 3, 3, 5]) for _ in range(nd)]
        a = {"group": g} if g > 1 or r.random() < 0.5 else {}
        if r.random() < 0.5:
            a["kernel_shape"] = k
        if r.random() < 0.4:
            a["strides"] = [r.choice([1, 2, 3]) for _ in range(nd)]
        if r.random() < 0.25:
            a["dilations"] = [r.choice([1, 2]) for _ in range(nd)]
        u = r.random()
        if u < 0.2:
            a["auto_pad"] = r.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
        elif u < 0.6:
            p = [r.choice([0, 1, 2]) for _ in range(nd)]
            a["pads"] = p + p
        elif u < 0.8:
            a["pads"] = [r.choice([0, 1, 2, 3]) for _ in range(2 * nd)]
        fan = ci // g * int(np.prod(k))
        ins = [x, self.param([co, ci // g] + k, 1 / math.sqrt(fan))]
        if r.random() < 0.6:
            ins.append(self.param([co], 0.3))
        return self.node("Conv", ins, **a)

    def s_batch_norm(self, x):
        s, r = self.shape(x), self.rng
        if len(s) < 2:
            raise Reject("rank")
        c = s[1]
        training = r.random() < 0.6
        if training and int(np.prod(s)) // c < 4:
            raise Reject("few")
        ins = [x, self.raw_param([c], 0.3, 1), self.raw_param([c], 0.3)]
        for shift in (0.0, 1.0):
            n = self.name("running")
            a = np.abs(self.np.randn(c) * 0.2 + shift).astype(np.float32) + np.float32(0.1)
            self.inits.append(numpy_helper.from_array(a, n))
            self.value[n] = to_torch(a, torch.float64)
            ins.append(n)
        a = {"epsilon": r.choice([1e-5, 1e-3])}
        if r.random() < 0.7:
            a["momentum"] = r.choice([0.9, 0.8, 0.99])
        if self.opset >= 14:
            if training:
                return self.node("BatchNormalization", ins, 3, training_mode=1, **a)[0]
            return self.node("BatchNormalization", ins, **a)
        return self.node("BatchNormalization", ins, 5, **a)[0] if training else self.node("BatchNormalization", ins, **a)

    def s_pool(self, x):
        s, r = self.shape(x), self.rng
        nd = len(s) - 2
        if nd not in (1, 2, 3):
            raise Reject("rank")
        if r.random() < 0.15:
            return self.node("GlobalAveragePool", [x])
        is_max = r.random() < 0.5
        k = [r.choice([1, 2, 2, 3]) for _ in range(nd)]
        a = {"kernel_shape": k}
        if r.random() < 0.8:
            a["strides"] = [r.choice([1, 2, 2, 3]) for _ in range(nd)]
        u = r.random()
        if u < 0.15:
            a["auto_pad"] = r.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
        elif u < 0.4:
            p = [r.randint(0, kk // 2) for kk in k]
            a["pads"] = p + p
        elif u < 0.6:
            a["pads"] = [r.randint(0, kk - 1) for kk in k + k]
        if self.opset >= 10 and r.random() < 0.4 and "auto_pad" not in a:
            a["ceil_mode"] = 1
        if is_max and self.opset >= 10 and r.random() < 0.2:
            a["dilations"] = [r.choice([1, 2]) for _ in range(nd)]
        if not is_max and r.random() < 0.5:
            a["count_include_pad"] = 1
        return self.node("MaxPool" if is_max else "AveragePool", [x], **a)

    def s_linear(self, x):
        """MatMul or Gemm by a weight, in all forms."""
        s, r = self.shape(x), self.rng
        if not s:
            raise Reject("rank")
        k, n = s[-1], r.choice([1, 2, 3, 5, 8, 16])
        scale = 1 / math.sqrt(k)
        if len(s) == 2 and r.random() < 0.6:
            ta, tb = r.random() < 0.25, r.random() < 0.6
            k = s[0] if ta else s[1]
            m = s[1] if ta else s[0]
            w = self.param([n, k] if tb else [k, n], 1 / math.sqrt(k))
            a = {}
            if ta:
                a["transA"] = 1
            if tb:
                a["transB"] = 1
            if r.random() < 0.3:
                a["alpha"] = r.choice([0.5, -1.5, 2.0])
            if r.random() < 0.3:
                a["beta"] = r.choice([0.5, -1.5, 2.0])
            ins = [x, w]
            if r.random() < 0.75 or self.opset < 11:
                ins.append(self.param(r.choice([[n], [n], [1, n], [m, n], [m, 1], [1], [1, 1]]), 0.3))
            if r.random() < 0.15 and not ta and not tb:
                ins[0], ins[1] = ins[1], ins[0]
                a["transA"] = a["transB"] = 1
                ins = ins[:2] + ([self.param([n, 1], 0.3)] if len(ins) > 2 else [])
            return self.node("Gemm", ins, **a)
        u = r.random()
        if u < 0.15:
            return self.node("MatMul", [x, self.param([k], scale)])
        if u < 0.25 and len(s) >= 2:
            return self.node("MatMul", [self.param([s[-2]], 1 / math.sqrt(s[-2])), x])
        if u < 0.4 and len(s) >= 2:
            return self.node("MatMul", [self.param([n, s[-2]], 1 / math.sqrt(s[-2])), x])
        if u < 0.6 and len(s) >= 3:
            b = [d if r.random() < 0.5 else 1 for d in s[:-2]][r.randint(0, len(s) - 2):]
            return self.node("MatMul", [x, self.param(b + [k, n], scale)])
        if u < 0.65 and len(s) == 2:
            return self.node("MatMul", [x, self.param([3, k, n], scale)])
        y = self.node("MatMul", [x, self.param([k, n], scale)])
        if r.random() < 0.6:
            y = self.node("Add", [y, self.param([n], 0.3)] if r.random() < 0.5 else [self.param([n], 0.3), y])
        return y

    def s_unary(self, x):
        r = self.rng
        op = r.choice(["Neg", "Exp", "Sqrt", "Relu", "Relu", "LeakyRelu", "Elu", "Sigmoid", "Tanh", "Softplus",
                       "HardSwish", "HardSigmoid", "Clip", "Erf", "Pow", "Abs", "Identity", "Log", "Reciprocal",
                       "Cast", "Dropout", "PRelu", "Sin", "Cos"])
        if op == "HardSwish" and self.opset < 14:
            y = self.clip(self.node("Add", [x, self.floats(3)]), 0.0, 6.0)
            return self.node("Div", [self.node("Mul", [x, y]), self.floats(6)])
        if op == "Erf" and self.opset < 9:
            raise Reject("opset")
        if op == "Clip":
            lo, hi = r.choice([(-0.5, 0.7), (None, 0.5), (-0.3, None), (0.0, 6.0), (0.0, 1.0)])
            return self.clip(x, lo, hi)
        if op in ("Sqrt", "Log", "Reciprocal"):
            return self.node(op, [self.node("Add", [self.node("Mul", [x, x]), self.floats(0.5)])])
        if op == "Exp":
            return self.node("Exp", [self.node("Tanh", [x])])
        if op == "LeakyRelu":
            return self.node(op, [x], alpha=r.choice([0.01, 0.2])) if r.random() < 0.7 else self.node(op, [x])
        if op == "Elu":
            return self.node(op, [x], alpha=r.choice([1.0, 0.7, 1.5])) if r.random() < 0.7 else self.node(op, [x])
        if op == "HardSigmoid":
            return self.node(op, [x], alpha=r.choice([1 / 6, 0.3]), beta=0.5) if r.random() < 0.7 else self.node(op, [x])
        if op == "Pow":
            e = r.choice([2.0, 3.0, 0.5, 1.5, -1.0, 1.0, 4.0])
            if e not in (2.0, 3.0, 1.0, 4.0):
                x = self.node("Add", [self.node("Abs", [x]), self.floats(0.5)])
            return self.node("Pow", [x, self.floats(e)])
        if op == "Cast":
            return self.node("Cast", [x], to=TensorProto.FLOAT)
        if op == "Dropout":
            if self.opset < 12:
                return self.node("Dropout", [x], ratio=0.3)
            return self.node("Dropout", [x, self.floats(0.3)])
        if op == "PRelu":
            s = self.shape(x)
            return self.node("PRelu", [x, self.param(r.choice([[1], [s[1]] + [1] * (len(s) - 2) if len(s) > 1 else [1]]), 0.2)])
        return self.node(op, [x])

    def s_binary(self, x):
        """With a weight, a constant or another value, broadcast in any way."""
        s, r = self.shape(x), self.rng
        op = r.choice(["Add", "Sub", "Mul", "Div", "Add", "Mul", "Min", "Max", "Pow", "Sum", "Where"])
        u = r.random()
        if u < 0.35:
            fit = [v for v in self.live if self.fits(self.shape(v), s)]
            if not fit:
                raise Reject("no partner")
            y = r.choice(fit)
        else:
            t = [d if r.random() < 0.6 else 1 for d in s][r.randint(0, len(s)):]
            if r.random() < 0.1 and int(np.prod(s)) < 500:
                t = [r.choice([1, 2])] + [1] * (len(s) - len(t)) + t
            y = self.floats(self.np.randn(*t) + 2.0) if u < 0.5 else self.param(t, 0.5)
        if op in ("Min", "Max") and self.opset < 8:
            raise Reject("opset")
        if op == "Sum":
            if self.opset < 8:
                raise Reject("opset")
            return self.node("Sum", [x, y, r.choice([x, y])])
        if op == "Where":
            if self.opset < 9:
                raise Reject("opset")
            c = self.node("Greater", [r.choice([x, y]), self.floats(0.1)])
            return self.node("Where", [c] + r.choice([[x, y], [y, x]]))
        if op == "Div":
            y = self.node("Add", [self.node("Mul", [y, y]), self.floats(1.0)])
        if op == "Pow":
            x = self.node("Add", [self.node("Abs", [x]), self.floats(0.5)])
            y = self.node("Tanh", [y])
        pair = [x, y] if op == "Pow" or r.random() < 0.6 else [y, x]
        if op == "Div":
            pair = [x, y]
        return self.node(op, pair)

    def fits(self, a, b):
        for x, y in zip(reversed(a), reversed(b)):
            if x != y and 1 not in (x, y):
                return False
        return True

    def s_move(self, x):
        s, r = self.shape(x), self.rng
        rank = len(s)
        if rank == 0:
            return self.node("Reshape", [x, self.ints([1])])
        op = r.choice(["Flatten", "Reshape", "Reshape", "Transpose", "Transpose", "Concat", "Concat", "Split", "Slice",
                       "Slice", "Gather", "Gather", "Squeeze", "Unsqueeze", "Pad", "Expand", "ShapeReshape"])
        k = r.randrange(rank)
        neg = k - rank if self.opset >= 11 and r.random() < 0.3 else k
        if op == "Flatten":
            axis = r.randint(-rank, rank) if self.opset >= 11 else r.randint(0, rank)
            return self.node("Flatten", [x], axis=axis)
        if op == "Reshape":
            want = self.regroup(s)
            for i in range(min(len(want), rank)):
                if want[i] == s[i] and r.random() < 0.4:
                    want[i] = 0
            if r.random() < 0.5:
                want[r.randrange(len(want))] = -1
            return self.node("Reshape", [x, self.ints(want)])
        if op == "ShapeReshape":
            n = self.node("Gather", [self.node("Shape", [x]), self.ints(0)], axis=0)
            n = self.unsqueeze(n, [0])
            return self.node("Reshape", [x, self.node("Concat", [n, self.ints([-1])], axis=0)])
        if op == "Transpose":
            perm = list(range(rank))
            r.shuffle(perm)
            return self.node("Transpose", [x], perm=perm) if r.random() < 0.85 else self.node("Transpose", [x])
        if op == "Concat":
            same = [v for v in self.live if len(self.shape(v)) == rank
                    and all(i == k or a == b for i, (a, b) in enumerate(zip(s, self.shape(v))))]
            parts = [x] + [r.choice(same + [x]) for _ in range(r.randint(1, 2))]
            if r.random() < 0.2:
                t = list(s)
                t[k] = r.randint(1, 3)
                parts.append(self.param(t))
            r.shuffle(parts)
            return self.node("Concat", parts, axis=neg)
        if op == "Split":
            if s[k] < 2:
                raise Reject("small")
            a = r.randint(1, s[k] - 1)
            parts = self.split(x, neg if self.opset >= 11 else k, [a, s[k] - a])
            u = r.random()
            if u < 0.3:
                return r.choice(parts)
            if u < 0.6:
                return self.node("Concat", [parts[1], self.node("Tanh", [parts[0]])], axis=k)
            if 2 * a == s[k]:
                return self.node("Mul", [parts[0], self.node("Sigmoid", [parts[1]])])
            return self.node("Concat", parts[::-1], axis=k)
        if op == "Slice":
            axes = sorted(r.sample(range(rank), r.randint(1, min(2, rank))))
            starts, ends, steps = [], [], []
            for q in axes:
                if self.opset >= 10 and r.random() < 0.35:
                    steps.append(r.choice([-1, -1, -2]))
                    starts.append(r.choice([-1, s[q] - 1, s[q] + 5]))
                    ends.append(r.choice([-s[q] - 1, -2**62, 0 if s[q] > 1 else -9]))
                else:
                    steps.append(r.choice([1, 1, 2]) if self.opset >= 10 else 1)
                    lo = r.randint(0, s[q] - 1)
                    starts.append(r.choice([lo, lo - s[q]]))
                    ends.append(r.choice([s[q], 2**62, lo + 1 + (s[q] - lo) // 2]))
            return self.slice(x, starts, ends, axes, steps if self.opset >= 10 else None)
        if op == "Gather":
            shape = r.choice([[], [1], [3], [2, 2], [s[k]], [1, 3]])
            lo = -s[k] if self.opset >= 11 else 0
            at = self.np.randint(lo, s[k], shape) if shape else np.int64(r.randint(lo, s[k] - 1))
            return self.node("Gather", [x, self.ints(at)], axis=neg)
        if op == "Squeeze":
            ones = [i for i in range(rank) if s[i] == 1]
            if not ones:
                raise Reject("none")
            return self.squeeze(x, [r.choice(ones)])
        if op == "Unsqueeze":
            return self.unsqueeze(x, sorted(r.sample(range(rank + 1), 1)))
        if op == "Expand":
            if self.opset < 8:
                raise Reject("opset")
            want = [r.choice([2, 3]) if d == 1 else r.choice([1, d]) for d in s]
            return self.node("Expand", [x, self.ints(want)])
        mode = r.choice(["constant", "constant", "reflect", "edge"])
        pads = [r.choice([0, 0, 1, 2, -1 if mode == "constant" else 0]) for _ in range(2 * rank)]
        if mode == "reflect":
            pads = [min(p, s[i % rank] - 1) for i, p in enumerate(pads)]
        return self.pad(x, pads, mode, r.choice([0.0, 0.5]))

    def regroup(self, s):
        """Other sizes with the same product."""
        primes = []
        for d in s:
            while d > 1:
                p = next(q for q in range(2, d + 1) if d % q == 0)
                primes.append(p)
                d //= p
        if self.rng.random() < 0.5:
            self.rng.shuffle(primes)
        out = [1] * self.rng.randint(1, 4)
        if self.rng.random() < 0.6 and len(s) > 1:  # keep the first axis
            out = [1] * max(2, len(out))
            rest = self.regroup_rest(int(np.prod(s[1:])), len(out) - 1)
            return [s[0]] + rest
        cut = sorted(self.rng.randint(0, len(primes)) for _ in range(len(out) - 1))
        for i, (a, b) in enumerate(zip([0] + cut, cut + [len(primes)])):
            out[i] = int(np.prod(primes[a:b]))
        return out

    def regroup_rest(self, n, k):
        out = []
        for _ in range(k - 1):
            d = self.rng.choice([q for q in range(1, n + 1) if n % q == 0])
            out.append(d)
            n //= d
        return out + [n]

    def s_reduce(self, x):
        s, r = self.shape(x), self.rng
        if not s:
            raise Reject("scalar")
        axes = sorted(r.sample(range(len(s)), r.randint(1, len(s))))
        op = r.choice(["ReduceMean", "ReduceMean", "ReduceSum"])
        if self.opset >= 11 and r.random() < 0.3:
            axes = [k - len(s) for k in axes]
        y = self.reduce(op, x, axes if r.random() < 0.9 else [], r.choice([0, 1]))
        return self.node("Mul", [y, self.floats(0.3)]) if op == "ReduceSum" else y

    def s_softmax(self, x):
        s, r = self.shape(x), self.rng
        if not s:
            raise Reject("scalar")
        op = r.choice(["Softmax", "Softmax", "LogSoftmax"])
        axis = r.randrange(len(s)) - (len(s) if self.opset >= 11 and r.random() < 0.5 else 0)
        y = self.node(op, [x]) if r.random() < 0.15 else self.node(op, [x], axis=axis)
        return self.node("Mul", [y, self.floats(3.0)]) if op == "Softmax" else y

    def s_layer_norm(self, x):
        s, r = self.shape(x), self.rng
        if not s:
            raise Reject("scalar")
        axis = r.randrange(len(s)) if r.random() < 0.4 else len(s) - 1
        inner = s[axis:]
        if int(np.prod(inner)) < 3:
            raise Reject("few")
        if self.opset >= 17 and r.random() < 0.6:
            ins = [x, self.param(inner, 0.3, 1)] + ([self.param(inner, 0.3)] if r.random() < 0.8 else [])
            a = {"axis": r.choice([axis, axis - len(s)]), "epsilon": r.choice([1e-5, 1e-3])}
            return self.node("LayerNormalization", ins, **a)
        axes = list(range(axis, len(s)))
        if r.random() < 0.15:
            axes = sorted(r.sample(range(len(s)), len(axes)))  # over other axes: not a LayerNorm
        m = self.node("ReduceMean", [x], axes=axes, keepdims=1)
        d = self.node("Sub", [x, m])
        d2 = d if r.random() < 0.7 else self.node("Sub", [x, m])
        sq = self.node("Pow", [d2, self.floats(2.0)]) if r.random() < 0.6 else self.node("Mul", [d2, d2])
        v = self.node("ReduceMean", [sq], axes=axes, keepdims=1)
        e = [v, self.floats(1e-5)]
        y = self.node("Div", [d, self.node("Sqrt", [self.node("Add", e if r.random() < 0.6 else e[::-1])])])
        if r.random() < 0.8:
            w = self.param(r.choice([inner, inner, [1] * (len(s) - len(inner)) + inner, inner[-1:], [1]]), 0.3, 1)
            y = self.node("Mul", [y, w] if r.random() < 0.5 else [w, y])
        if r.random() < 0.8:
            w = self.param(r.choice([inner, inner, [1]]), 0.3)
            y = self.node("Add", [y, w] if r.random() < 0.5 else [w, y])
        if r.random() < 0.1:
            y = self.node("Add", [y, self.node("Tanh", [r.choice([d, v, m])])])
        return y

    def s_pattern(self, x):
        r = self.rng
        k = r.choice(["gelu", "gelu_tanh", "silu", "hswish", "hswish2", "rms", "conv_relu", "scale_chain", "near_gelu"])
        if k in ("gelu", "near_gelu"):
            if self.opset < 9:
                raise Reject("opset")
            root = math.sqrt(2) if k == "gelu" else 1.5
            inner = self.node("Div", [x, self.floats(root)]) if r.random() < 0.5 else self.node(
                "Mul", [x, self.floats(1 / root)])
            e = self.node("Erf", [inner])
            one = self.node("Add", [e, self.floats(1)] if r.random() < 0.5 else [self.floats(1), e])
            f = r.choice(["half_last", "half_x", "half_one", "none", "three"])
            if f == "half_x":
                return self.node("Mul", [self.node("Mul", [x, self.floats(0.5)]), one])
            if f == "half_one":
                return self.node("Mul", [x, self.node("Mul", [one, self.floats(0.5)])])
            y = self.node("Mul", [x, one] if r.random() < 0.5 else [one, x])
            return y if f == "none" else self.node("Mul", [y, self.floats(0.5 if f == "half_last" else 3.0)])
        if k == "gelu_tanh":
            c = self.node("Pow", [x, self.floats(3.0)])
            i = self.node("Add", [x, self.node("Mul", [c, self.floats(0.044715)])])
            t = self.node("Tanh", [self.node("Mul", [i, self.floats(math.sqrt(2 / math.pi))])])
            return self.node("Mul", [self.node("Mul", [x, self.floats(0.5)]), self.node("Add", [t, self.floats(1)])])
        if k == "silu":
            s = self.node("Sigmoid", [x])
            y = self.node("Mul", [x, s] if r.random() < 0.5 else [s, x])
            return self.node("Add", [y, s]) if r.random() < 0.2 else y
        if k == "hswish":
            h = self.node("HardSigmoid", [x], alpha=r.choice([1 / 6, 1 / 6, 0.2]), beta=0.5)
            return self.node("Mul", [x, h])
        if k == "hswish2":
            h = self.clip(self.node("Add", [x, self.floats(3)]), 0.0, 6.0)
            if r.random() < 0.5:
                return self.node("Mul", [x, self.node("Div", [h, self.floats(6)])])
            return self.node("Div", [self.node("Mul", [h, x]), self.floats(r.choice([6.0, 3.0]))])
        if k == "rms":
            n = len(self.shape(x))
            if not n:
                raise Reject("scalar")
            v = self.node("ReduceMean", [self.node("Mul", [x, x])], axes=[n - 1], keepdims=1)
            q = self.node("Sqrt", [self.node("Add", [v, self.floats(1e-3)])])
            return self.node("Mul", [self.node("Div", [x, q]), self.param(self.shape(x)[-1:], 0.3, 1)])
        if k == "scale_chain":
            for _ in range(3):
                c = self.floats(r.choice([0.5, 2.0, -1.5, 1.0, 0.0]) if r.random() < 0.8 else self.np.randn(1))
                x = self.node(r.choice(["Add", "Mul", "Sub"]), [x, c] if r.random() < 0.5 else [c, x])
            return x
        y = self.s_conv(x)
        if r.random() < 0.5:
            y = self.s_batch_norm(y)
        z = self.node("Relu", [y])
        return self.node("Add", [z, y]) if r.random() < 0.2 else z

    def s_attention(self, x):
        r, s = self.rng, self.shape(x)
        if len(s) == 4 and r.random() < 0.5:  # image to rows
            x = self.node("Transpose", [self.node("Reshape", [x, self.ints([s[0], s[1], -1])])], perm=[0, 2, 1])
            s = self.shape(x)
        if len(s) != 3 or s[1] > 24:
            raise Reject("shape")
        b, t, d = s
        h = r.choice([q for q in (1, 2, 3, 4) if d % q == 0])
        fused = r.random() < 0.5
        if fused:
            qkv = self.node("MatMul", [x, self.param([d, 3 * d], 1 / math.sqrt(d))])
            qkv = self.node("Add", [qkv, self.param([3 * d], 0.1)])
            if r.random() < 0.5:
                q, k, v = self.split(qkv, 2, [d, d, d])
            else:
                y = self.node("Reshape", [qkv, self.ints([b, t, 3, h, d // h])])
                y = self.node("Transpose", [y], perm=[2, 0, 3, 1, 4])
                q, k, v = [self.node("Gather", [y, self.ints(i)], axis=0) for i in range(3)]
        else:
            q, k, v = [self.node("MatMul", [x, self.param([d, d], 1 / math.sqrt(d))]) for _ in range(3)]
        if len(self.shape(q)) == 3:
            q, k, v = [self.node("Transpose", [self.node("Reshape", [z, self.ints([0, 0, h, d // h])])],
                                 perm=[0, 2, 1, 3]) for z in (q, k, v)]
        kt = self.node("Transpose", [k], perm=[0, 1, 3, 2])
        a = self.node("MatMul", [q, kt])
        a = self.node("Div", [a, self.floats(math.sqrt(d // h))]) if r.random() < 0.5 else self.node(
            "Mul", [a, self.floats(1 / math.sqrt(d // h))])
        self.loose += 1
        mask = r.random()
        if mask < 0.25 and self.ids and self.shape("ids") == [b, t] and self.opset >= 9:
            c = self.unsqueeze(self.node("Equal", ["ids", self.ints(0)]), [1, 2])
            a = self.node("Where", [c, self.floats(r.choice([-1e9, -30.0])), a])
        elif mask < 0.6:
            a = self.node("Add", [a, self.floats(np.triu(np.full((t, t), r.choice([-30.0, -1e9, -np.inf])), 1))])
        a = self.softmax(a, -1)
        self.loose -= 1
        y = self.node("MatMul", [a, v])
        y = self.node("Reshape", [self.node("Transpose", [y], perm=[0, 2, 1, 3]), self.ints([0, 0, d])])
        return self.node("Add", [x, y]) if r.random() < 0.7 else y

    def s_ids(self, x):
        """Token ids as numbers: masks and counts."""
        r, s = self.rng, self.shape(x)
        if not self.ids or s[:2] != self.shape("ids"):
            raise Reject("no ids")
        if r.random() < 0.5:
            m = self.node("Cast", [self.node("Equal", ["ids", self.ints(r.randrange(self.vocab))])], to=TensorProto.FLOAT)
        else:
            m = self.node("Mul", [self.node("Cast", ["ids"], to=TensorProto.FLOAT), self.floats(0.1)])
        if len(s) > 2:
            m = self.unsqueeze(m, list(range(2, len(s))))
        return self.node(r.choice(["Add", "Mul"]), [x, m])

    def s_squeeze_excite(self, x):
        s, r = self.shape(x), self.rng
        if len(s) != 4:
            raise Reject("rank")
        c = s[1]
        y = self.node("GlobalAveragePool", [x]) if r.random() < 0.5 else self.node("ReduceMean", [x], axes=[2, 3], keepdims=1)
        if r.random() < 0.6:
            y = self.node("Conv", [y, self.param([2, c, 1, 1], 0.5), self.param([2], 0.2)])
            y = self.node("Relu", [y])
            y = self.node("Conv", [y, self.param([c, 2, 1, 1], 0.5), self.param([c], 0.2)])
        else:
            y = self.node("Gemm", [self.node("Flatten", [y]), self.param([c, c], 0.5), self.param([c], 0.2)], transB=1)
            y = self.node("Reshape", [y, self.ints([0, c, 1, 1])])
        return self.node("Mul", [x, self.node(r.choice(["Sigmoid", "HardSigmoid"]), [y])])

    def s_residual(self, x):
        s, r = self.shape(x), self.rng
        y = x
        if len(s) in (3, 4) and r.random() < 0.7:
            for i in range(r.randint(1, 2)):
                nd = len(s) - 2
                y = self.node("Conv", [y, self.param([s[1], s[1]] + [3] * nd, 0.3)], pads=[1] * (2 * nd))
                if r.random() < 0.5:
                    y = self.s_batch_norm(y)
                if i == 0:
                    y = self.node("Relu", [y])
        else:
            for f in r.sample([self.s_unary, self.s_layer_norm, self.s_pattern], 2):
                y = f(y)
            if self.shape(y) != s:
                raise Reject("shape")
        z = self.node("Add", [y, x] if r.random() < 0.5 else [x, y])
        return self.node("Relu", [z]) if r.random() < 0.5 else z

    def s_shared(self, x):
        """One initializer read by a Conv or MatMul and by something else."""
        s, r = self.shape(x), self.rng
        if len(s) == 4:
            w = self.raw_param([s[1], s[1], 1, 1], 0.5)
            y = self.node("Conv", [x, w])
            u = r.random()
            if u < 0.35:
                return self.node("Conv", [self.node("Relu", [y]), w])
            if u < 0.7:
                p = self.node("ReduceSum", [self.node("Mul", [w, w])], keepdims=0)
                return self.node("Add", [y, p])
            m = self.node("Reshape", [w, self.ints([s[1], s[1]])])
            g = self.node("Flatten", [self.node("GlobalAveragePool", [y])])
            g = self.node("Reshape", [self.node("MatMul", [g, m]), self.ints([0, s[1], 1, 1])])
            return self.node("Add", [y, g])
        if len(s) < 2:
            raise Reject("rank")
        w = self.raw_param([s[-1], s[-1]], 1 / math.sqrt(s[-1]))
        y = self.node("Tanh", [self.node("MatMul", [x, w])])
        if r.random() < 0.5:
            return self.node("MatMul", [y, self.node("Transpose", [w], perm=[1, 0])])
        return self.node("Add", [self.node("MatMul", [y, w]), self.reduce("ReduceMean", w, [0], 0)])

    # ---- whole models ----

    def start(self):
        r = self.rng
        n = r.choice([1, 2, 3, 4, 5])
        odd = [1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 17]
        if self.large:
            n, odd = r.choice([4, 7, 16]), [16, 17, 24, 31]
        self.batch = n
        if self.kind == "tokens":
            self.vocab, d, t = r.choice([5, 11, 19]), r.choice([3, 4, 6, 8]), r.choice([1, 3, 5, 7])
            if self.large:
                d, t = r.choice([32, 60]), r.choice([16, 23])
            ids = self.add_input("ids", [n, t], self.vocab)
            self.ids = True
            table = self.raw_param([self.vocab, d], 0.7)
            x = self.node("Gather", [table, ids], axis=0)
            if r.random() < 0.5:
                x = self.node("Add", [x, self.param([1, t, d], 0.5)])
            self.table = table
            return x
        shape = {"image": [r.choice([1, 2, 3, 4, 5, 8]), r.choice(odd), r.choice(odd)],
                 "rows": [r.choice([64, 100, 257] if self.large else [1, 3, 7, 10])], "audio": [r.choice([1, 2, 3, 4, 8]), r.choice([7, 16, 25, 33])],
                 "volume": [r.choice([1, 2, 4]), r.choice([2, 3, 5]), r.choice([3, 4, 7]), r.choice([3, 5])],
                 "free": [r.choice([1, 2, 3, 4, 6]) for _ in range(r.randint(0, 4))]}[self.kind]
        x = self.add_input("x", [n] + shape)
        if r.random() < 0.15:
            x2 = self.add_input("y", [n] + shape)
            x = self.node(r.choice(["Add", "Mul", "Sub"]), [x, x2])
        return x

    def add_input(self, name, shape, vocab=0):
        if vocab:
            v = torch.from_numpy(self.np.randint(0, vocab, shape))
        else:
            v = torch.from_numpy(self.np.randn(*shape)).to(torch.float32).to(torch.float64)
        self.value[name] = v
        self.inputs.append((name, shape, vocab))
        if not vocab:
            self.live.append(name)
        return name

    def mark(self):
        return len(self.nodes), len(self.inits), len(self.params), len(self.live)

    def back(self, m):
        self.loose = 0
        del self.nodes[m[0]:], self.inits[m[1]:], self.params[m[2]:], self.live[m[3]:]

    def tame(self, v):
        """Rescales what is too small or large; refuses the rest."""
        x = self.value[v]
        if x.numel() > 1 and float(x.std()) < 1e-3:
            raise Reject("constant")
        if float(x.abs().max()) > 20:
            v = self.node("Mul", [v, self.floats(float("%.2g" % (5 / float(x.abs().max()))))])
        return v

    def steps(self):
        image = [self.s_conv, self.s_conv, self.s_pattern, self.s_pool, self.s_batch_norm, self.s_squeeze_excite,
                 self.s_residual, self.s_shared]
        rows = [self.s_linear, self.s_linear, self.s_attention, self.s_attention, self.s_ids, self.s_layer_norm, self.s_shared, self.s_residual]
        common = [self.s_unary, self.s_unary, self.s_binary, self.s_binary, self.s_move, self.s_move, self.s_reduce,
                  self.s_softmax, self.s_layer_norm, self.s_pattern]
        u = self.rng.random()
        if self.kind in ("image", "audio", "volume") and u < 0.55:
            return self.rng.choice(image)
        if self.kind in ("rows", "tokens") and u < 0.5:
            return self.rng.choice(rows)
        return self.rng.choice(common + image + rows if self.kind == "free" else common + rows[:2])

    def build(self):
        r = self.rng
        x = self.start()
        self.live.append(x)
        want, tries = r.randint(3, 10), 0
        while want and tries < 200:
            tries += 1
            m = self.mark()
            try:
                y = self.steps()(x if r.random() < 0.85 else r.choice(self.live))
                y = self.tame(y)
            except Reject:
                self.back(m)
                continue
            x = y
            self.live.append(x)
            want -= 1
        return self.finish(x)

    def finish(self, x):
        r = self.rng
        for _ in range(50):
            m = self.mark()
            try:
                return self.head(x)
            except Reject:
                self.back(m)
        raise Reject("head")

    def head(self, x):
        """Makes sure that something is trained, and chooses the loss."""
        r = self.rng
        used = {n for node in self.nodes for n in node.input}
        if not any(p in used for p in self.params) or r.random() < 0.3:
            y = self.s_linear(x) if self.shape(x) else self.node("Mul", [x, self.raw_param([])])
            x = self.tame(y)
        if self.kind == "tokens" and r.random() < 0.4 and self.shape(x)[-1:] == self.shape(self.table)[1:]:
            x = self.node("MatMul", [x, self.node("Transpose", [self.table], perm=[1, 0])])
            x = self.tame(x)
        if self.nodes[-1].output[0] != x:
            x = self.node("Mul", [x, self.floats(0.75)])
        s = self.shape(x)
        kinds = ["mse", "l1", "bce_with_logits", "output"]
        if s:
            kinds += ["cross_entropy"] * 4 + ["nll"]
        loss = {"kind": r.choice(kinds)}
        if loss["kind"] == "output":
            y = self.node("Mul", [x, x])
            x = self.node("ReduceMean" if r.random() < 0.5 else "ReduceSum", [y], keepdims=r.choice([0, 1]))
            if self.value[x].abs() > 100:
                raise Reject("large")
            s = []
        if loss["kind"] == "nll":
            x = self.softmax(x, 1 if len(s) > 1 and r.random() < 0.6 else -1, "LogSoftmax")
        if loss["kind"] in ("cross_entropy", "nll"):
            loss["class_axis"] = r.choice([1, 1, -1]) if len(s) > 1 else r.choice([0, -1])
            if s[loss["class_axis"]] < 2 and r.random() < 0.9:
                raise Reject("one class")
            if r.random() < 0.3:
                loss["ignore_index"] = r.choice([-100, 0, 1])
            if loss["kind"] == "cross_entropy" and r.random() < 0.3:
                loss["label_smoothing"] = r.choice([0.1, 0.25])
        self.loss, self.output = loss, x
        return x

    def optimizer(self):
        r = self.rng
        k = r.choice(["sgd", "sgd", "sgd", "adam", "adamw"])
        o = {"kind": k}
        if k == "sgd":
            if r.random() < 0.6:
                o["momentum"] = r.choice([0.9, 0.5])
                u = r.random()
                if u < 0.3:
                    o["nesterov"] = True
                elif u < 0.5:
                    o["dampening"] = 0.3
            lr = r.choice([0.01, 0.05, 0.002])
        else:
            lr = r.choice([0.001, 0.003])
            if r.random() < 0.3:
                o["betas"] = [0.8, 0.95]
            if r.random() < 0.3:
                o["eps"] = 1e-5
        if r.random() < 0.4:
            o["weight_decay"] = r.choice([0.01, 0.1])
        return o, lr

    def prune(self):
        """Only what the output needs, and what training batch norms update."""
        need, keep = {self.output}, []
        for n in reversed(self.nodes):
            if any(o in need for o in n.output):
                keep.append(n)
                need.update(i for i in n.input if i)
        self.nodes = keep[::-1]
        self.inits = [t for t in self.inits if t.name in need]
        self.params = [p for p in self.params if p in need]
        self.inputs = [i for i in self.inputs if i[0] in need]

    def data(self, steps):
        out = {}
        for name, shape, vocab in self.inputs:
            low = -vocab if vocab and self.opset >= 11 and self.rng.random() < 0.2 else 0
            out[name] = (self.np.randint(low, vocab, [steps] + shape).astype(np.int64) if vocab else
                         self.np.randn(steps, *shape).astype(np.float32))
        s, kind = self.shape(self.output), self.loss["kind"]
        if kind in ("cross_entropy", "nll"):
            axis = self.loss["class_axis"] % len(s)
            t = self.np.randint(0, s[axis], [steps] + s[:axis] + s[axis + 1:]).astype(np.int64)
            ignore = self.loss.get("ignore_index")
            if ignore is not None and t[0].size > 1:
                t[self.np.rand(*t.shape) < 0.2] = ignore
                for i in range(steps):
                    t[i].reshape(-1)[0] = 2 % s[axis] if ignore != 2 % s[axis] else (3 % s[axis])
            out["target"] = t
        elif kind == "bce_with_logits":
            out["target"] = self.np.rand(steps, *s).astype(np.float32)
        elif kind != "output":
            out["target"] = self.np.randn(steps, *s).astype(np.float32)
        return out

    def model(self):
        dynamic = self.rng.random() < 0.3
        ins = [helper.make_tensor_value_info(n, TensorProto.INT64 if v else TensorProto.FLOAT,
                                             ["N"] + s[1:] if dynamic else s) for n, s, v in self.inputs]
        out = helper.make_tensor_value_info(
            self.output, TensorProto.FLOAT, [f"d{i}" for i in range(len(self.shape(self.output)))] if dynamic
            else self.shape(self.output))
        outs = [out]
        made = [n for n in self.live if n != self.output and any(n in node.output for node in self.nodes)]
        if made and self.rng.random() < 0.3:
            n = self.rng.choice(made)
            outs.insert(self.rng.randint(0, 1), helper.make_tensor_value_info(
                n, TensorProto.FLOAT, [f"e{i}" for i in range(len(self.shape(n)))] if dynamic else self.shape(n)))
        g = helper.make_graph(self.nodes, "fuzz", ins, outs, self.inits)
        m = helper.make_model(g, opset_imports=[helper.make_opsetid("", self.opset)])
        m.ir_version = 7
        self.dynamic = dynamic
        return m


def case(seed, opset=None, kind=None, large=False, steps=3):
    """(model, data, settings as in trace.json)"""
    g = Gen(seed, opset, kind, large)
    g.build()
    g.prune()
    if not g.params or not g.inputs:
        raise Reject("nothing to train or to feed")
    model = g.model()
    opt, lr = g.optimizer()
    frozen = [p for p in g.params if g.rng.random() < 0.12] if g.rng.random() < 0.4 else []
    if len(frozen) == len(g.params):
        frozen = []
    data = g.data(steps)
    loss = dict(g.loss, output=g.output)
    return model, data, {"name": f"s{seed}", "opset": g.opset, "kind": g.kind, "loss": loss, "optimizer": opt, "lr": lr,
                         "steps": steps, "dynamic_batch": g.dynamic, "batch": g.batch,
                         "params": [p for p in g.params if p not in frozen], "frozen": frozen,
                         "threads": g.rng.choice([1, 2]), "select": g.rng.random() < 0.15, "ops": [n.op_type for n in g.nodes]}
