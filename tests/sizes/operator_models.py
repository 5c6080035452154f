"""Small models with a symbolic batch, one for each kind of newer operator: for run_sizes.py."""
import numpy as np
from onnx import TensorProto, helper, numpy_helper


class Builder:
    def __init__(self, seed):
        self.rng, self.nodes, self.init = np.random.default_rng(seed), [], []

    def weight(self, *shape):
        return self.value((self.rng.standard_normal(shape) * 0.4).astype(np.float32))

    def value(self, v):
        self.init.append(numpy_helper.from_array(np.asarray(v), f"w{len(self.init)}"))
        return self.init[-1].name

    def constant(self, v):
        return self.op("Constant", value=numpy_helper.from_array(np.asarray(v)))

    def op(self, kind, *args, outputs=1, **attr):
        out = [f"v{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(args), out, **attr))
        return out[0] if outputs == 1 else out

    def conv(self, x, ci, co):
        return self.op("Conv", x, self.weight(co, ci, 3, 3), kernel_shape=[3, 3], pads=[1, 1, 1, 1])

    def model(self, y, x_shape, y_shape, opset=13):
        graph = helper.make_graph(self.nodes, "operators", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x_shape)],
                                  [helper.make_tensor_value_info(y, TensorProto.FLOAT, y_shape)], self.init)
        m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        m.ir_version = 8
        return m


def resize(b, mode):
    scales = b.value(np.array([1, 1, 2, 1.5], np.float32))
    y = b.op("Resize", b.conv("x", 3, 4), b.value(np.zeros(0, np.float32)), scales, mode=mode)
    return b.model(b.conv(y, 4, 2), ["batch", 3, 5, 6], ["batch", 2, 10, 9])


def group_norm(b):
    y = b.op("GroupNormalization", b.conv("x", 3, 4), b.weight(4), b.weight(4), num_groups=2)
    return b.model(b.conv(b.op("Relu", y), 4, 2), ["batch", 3, 5, 6], ["batch", 2, 5, 6], 21)


def attention(b):
    shape = b.value(np.array([0, 7, 2, 4], np.int64))

    def heads(perm):
        return b.op("Transpose", b.op("Reshape", b.op("MatMul", "x", b.weight(8, 8)), shape), perm=perm)

    s = b.op("Mul", b.op("MatMul", heads([0, 2, 1, 3]), heads([0, 2, 3, 1])), b.constant(np.float32(0.5)))
    s = b.op("Where", b.value(np.triu(np.ones((7, 7), bool), 1)), b.constant(np.float32(-np.inf)), s)
    y = b.op("MatMul", b.op("Softmax", s, axis=-1), heads([0, 2, 1, 3]))
    y = b.op("Reshape", b.op("Transpose", y, perm=[0, 2, 1, 3]), b.value(np.array([0, 7, 8], np.int64)))
    return b.model(b.op("MatMul", y, b.weight(8, 3)), ["batch", 7, 8], ["batch", 7, 3])


def recurrent(b, kind, gates):
    x = b.op("Transpose", "x", perm=[1, 0, 2])
    y = b.op(kind, x, b.weight(2, gates * 4, 3), b.weight(2, gates * 4, 4), b.weight(2, gates * 8), outputs=1,
             hidden_size=4, direction="bidirectional")
    y = b.op("ReduceMean", y, axes=[0, 1], keepdims=0)
    return b.model(b.op("MatMul", y, b.weight(4, 2)), ["batch", 5, 3], ["batch", 2])


def top_k(b):
    y = b.op("TopK", b.op("MatMul", "x", b.weight(6, 9)), b.value(np.array([3], np.int64)), outputs=2, axis=-1)[0]
    return b.model(b.op("MatMul", y, b.weight(3, 2)), ["batch", 6], ["batch", 2])


def einsum(b):
    q = b.op("Einsum", "x", b.weight(4, 5), equation="bij,jk->bik")
    y = b.op("Einsum", q, q, equation="bik,bjk->bij")
    return b.model(b.op("Einsum", y, b.weight(6), equation="bij,j->bi"), ["batch", 6, 4], ["batch", 6])


def norms(b):
    y = b.op("LRN", b.conv("x", 3, 4), size=3)
    y = b.op("LpNormalization", y, axis=1, p=2)
    y = b.op("PRelu", y, b.weight(4, 1, 1))
    return b.model(b.op("DepthToSpace", y, blocksize=2), ["batch", 3, 4, 4], ["batch", 1, 8, 8])


def scatter(b):
    x = b.op("MatMul", "x", b.weight(6, 5))
    at = b.op("ArgMax", x, axis=1, keepdims=1)
    one = b.op("GatherElements", x, at, axis=1)
    y = b.op("ScatterElements", x, at, b.op("Mul", one, one), axis=1)
    return b.model(b.op("CumSum", y, b.value(np.array(1, np.int64))), ["batch", 6], ["batch", 5])


def models():
    """(name, model)"""
    makers = {"linear resize": lambda b: resize(b, "linear"), "cubic resize": lambda b: resize(b, "cubic"),
              "group norm": group_norm, "attention": attention, "LSTM": lambda b: recurrent(b, "LSTM", 4),
              "GRU": lambda b: recurrent(b, "GRU", 3), "top k": top_k, "einsum": einsum, "norms": norms, "scatter": scatter}
    for seed, (name, make) in enumerate(makers.items()):
        yield name, make(Builder(seed))
