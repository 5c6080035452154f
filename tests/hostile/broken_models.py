"""Files that are no models, and models that lie: refused in time and space, whatever they ask for."""
import os
import random

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from harness import Failed, build, many, mlp, one_node, test, trace_model


@test
def no_models(env):
    cases = {"empty": b"", "text": b"this is not a model\n" * 50, "zeros": bytes(4096), "ones": b"\xff" * 4096,
             "png": b"\x89PNG\r\n\x1a\n" + bytes(100)}
    env.all_refused(cases)
    env.plan_refused(env.path("absent.onnx"))
    env.plan_refused(env.tmp)
    env.plan_refused("/dev/null")


@test
def special_files(env):
    os.mkfifo(env.path("pipe.onnx"))
    env.plan_refused(env.path("pipe.onnx"))
    with open(env.path("sparse.onnx"), "wb") as f:
        f.truncate(3 << 30)
    env.plan_refused(env.path("sparse.onnx"))
    env.plan_refused("/dev/zero")


@test
def truncated(env):
    data = trace_model("lenet_mnist")
    n = len(data)
    cuts = sorted({0, 1, 2, 3, 7, 100, n - 1, n - 2, n - 20} | {n * i // 40 for i in range(1, 40)})
    for i, cut in enumerate(cuts):
        env.plan_refused(env.save(data[:cut], "cut.onnx"))


@test
def bit_flips(env):
    rng = random.Random(3)
    jobs = []
    for name in ("mlp_relu", "transformer_encoder", "lenet_mnist"):
        data = trace_model(name)
        # Most bytes are weights, where flips do nothing: aim at the small fields too.
        small = [i for i in range(len(data)) if 32 <= data[i] < 127 or data[i] < 16]
        for i in range(40 if env.sanitized else 80):
            bad = bytearray(data)
            for _ in range(rng.choice([1, 1, 3, 8])):
                bad[rng.choice(small)] ^= 1 << rng.randrange(8)
            jobs.append((env.dtrc, "plan", env.save(bytes(bad), f"{name}{i}.onnx"), "--budget", "100%", "--batch", "2"))
    many(env, jobs)


@test
def swapped_pieces(env):
    rng = random.Random(4)
    data = trace_model("mlp_relu")
    jobs = []
    for i in range(40):
        a, b, k = rng.randrange(len(data)), rng.randrange(len(data)), rng.randrange(1, 200)
        bad = data[:a] + data[b:b + k] + data[a + rng.choice([0, k]):]
        jobs.append((env.dtrc, "inspect", env.save(bad, f"m{i}.onnx")))
    many(env, jobs)


# ---- models that lie ----------------------------------------------------------------------------

@test
def structure(env):
    relu = helper.make_node
    w = [numpy_helper.from_array(np.ones((4, 4), np.float32), "w")]
    io = [("x", [2, 4])], [("y", [2, 4])]
    cases = {
        "cycle": build([relu("Add", ["x", "b"], ["a"]), relu("MatMul", ["a", "w"], ["b"]), relu("Relu", ["b"], ["y"])], *io, w),
        "self": build([relu("Add", ["x", "a"], ["a"]), relu("MatMul", ["a", "w"], ["y"])], *io, w),
        "twice": build([relu("Relu", ["x"], ["a"]), relu("Tanh", ["x"], ["a"]), relu("MatMul", ["a", "w"], ["y"])], *io, w),
        "missing": build([relu("MatMul", ["nowhere", "w"], ["y"])], *io, w),
        "no output": build([relu("MatMul", ["x", "w"], ["z"])], *io, w),
        "no inputs": build([relu("MatMul", [], ["y"])], *io, w),
        "many inputs": build([relu("Relu", ["x"] * 1000, ["y"])], *io, w),
        "unknown": build([relu("Frobnicate", ["x"], ["y"])], *io, w),
        "domain": build([relu("Relu", ["x"], ["y"], domain="com.example")], *io, w),
        "opset": build([relu("MatMul", ["x", "w"], ["y"])], *io, w, opset=13),
        "shapes": build([relu("MatMul", ["x", "w"], ["y"])], [("x", [2, 5])], [("y", [2, 4])], w),
        "empty": build([], *io),
    }
    cases["opset"].opset_import[0].version = 99999
    env.all_refused(cases)


@test
def sizes_that_lie(env):
    def with_tensor(dims, raw=b"\0" * 16, kind=TensorProto.FLOAT):
        m = mlp()
        t = m.graph.initializer[0]
        del t.dims[:]
        t.dims.extend(dims)
        t.raw_data, t.data_type = raw, kind
        return m
    for dims in ([1 << 62, 4], [-1, 4], [1 << 31, 1 << 31, 1 << 31], [4, 8], [0, 4], [1] * 200, [1 << 40]):
        env.plan_refused(with_tensor(dims))
    env.plan_refused(with_tensor([4], kind=999))
    env.plan_refused(with_tensor([2], kind=TensorProto.STRING))
    for shape in ([1 << 40, 4], [-5, 4], [1 << 62, 1 << 62], [0, 4]):
        m = mlp()
        for d, v in zip(m.graph.input[0].type.tensor_type.shape.dim, shape):
            d.dim_value = v
        env.plan_refused(m)


@test
def bombs(env):
    """Small files that ask for huge results at compile time or in a step."""
    i64 = np.int64
    cases = {
        "ConstantOfShape": one_node("ConstantOfShape", ["s"], {"s": np.array([1 << 31, 1 << 31], i64)}),
        "Expand": one_node("Expand", ["x", "s"], {"s": np.array([1 << 40, 2, 4], i64)}),
        "Tile": one_node("Tile", ["x", "s"], {"s": np.array([1 << 40, 1 << 22], i64)}),
        "Range": one_node("Range", ["a", "b", "c"], {"a": np.array(0, i64), "b": np.array(1 << 60, i64),
                                                       "c": np.array(1, i64)}),
        "Range by zero": one_node("Range", ["a", "b", "c"], {"a": np.array(0, i64), "b": np.array(9, i64),
                                                               "c": np.array(0, i64)}),
        "Pad": one_node("Pad", ["x", "p"], {"p": np.array([1 << 60, 0, 1 << 60, 0], i64)}),
        "negative Pad": one_node("Pad", ["x", "p"], {"p": np.array([-9, 0, 0, 0], i64)}),
        "Reshape": one_node("Reshape", ["x", "s"], {"s": np.array([-1, -1], i64)}),
        "Reshape zero": one_node("Reshape", ["x", "s"], {"s": np.array([3, 3], i64)}),
        "Transpose": one_node("Transpose", ["x"], {}, perm=[0, 0]),
        "Transpose far": one_node("Transpose", ["x"], {}, perm=[0, 77]),
        "Concat": one_node("Concat", ["x", "x"], {}, axis=99),
        "Gather": one_node("Gather", ["x", "i"], {"i": np.array([1 << 40], i64)}, axis=0),
        "Slice step": one_node("Slice", ["x", "a", "b", "ax", "st"],
                               {"a": np.array([0], i64), "b": np.array([9], i64), "ax": np.array([0], i64),
                                "st": np.array([0], i64)}),
    }
    env.all_refused(cases)


@test
def convolution_attributes(env):
    w = np.ones((4, 3, 3, 3), np.float32)
    good = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    cases = {}
    for name, bad in {"stride 0": {"strides": [0, 0]}, "stride -1": {"strides": [-1, 1]},
                      "dilation": {"dilations": [0, 1]}, "huge": {"dilations": [1 << 40, 1]},
                      "pads": {"pads": [1 << 62, 1, 1 << 62, 1]}, "few pads": {"pads": [1]}, "group": {"group": 0},
                      "group 2": {"group": 2}, "kernel": {"kernel_shape": [5, 5]}, "pad": {"auto_pad": "MAYBE"}}.items():
        node = helper.make_node("Conv", ["x", "w"], ["y"], **dict(good, **bad))
        cases[name] = build([node], [("x", [2, 3, 8, 8])], [("y", None)], [numpy_helper.from_array(w, "w")])
    env.all_refused(cases)


@test
def deep_subgraphs(env):
    """If inside If, as bytes: python's protobuf could not write it. The stack must hold."""
    def field(number, data):
        n, size = len(data), b""
        while n > 127:
            size += bytes([n & 127 | 128])
            n >>= 7
        return bytes([number << 3 | 2]) + size + bytes([n]) + data
    graph = b""
    for _ in range(20000):
        attribute = field(1, b"then_branch") + field(6, graph) + bytes([20 << 3 & 127 | 128, 1, 5])
        graph = field(1, field(4, b"If") + field(5, attribute))
        if len(graph) > 1 << 19:
            break
    env.plan_refused(bytes([1 << 3, 8]) + field(7, graph) + field(8, bytes([2 << 3, 13])))
    # The same nesting as an unknown group-free field: raw nested messages of the type proto.
    env.plan_refused(bytes([1 << 3, 8]) + field(7, field(1, field(5, field(6, graph)))))


@test
def external_data(env):
    os.makedirs(env.path("in"))
    secret = env.path("secret.bin")
    open(secret, "wb").write(b"S" * 128)
    open(env.path("in", "w.bin"), "wb").write(np.ones((4, 8), np.float32).tobytes())
    os.symlink(secret, env.path("in", "link.bin"))
    os.symlink(env.tmp, env.path("in", "folder"))
    os.mkfifo(env.path("in", "pipe.bin"))

    def model(location, **more):
        m = mlp()
        t = m.graph.initializer[0]
        t.ClearField("raw_data")
        t.data_location = TensorProto.EXTERNAL
        for k, v in dict(location=location, **more).items():
            e = t.external_data.add()
            e.key, e.value = k, str(v)
        return env.save(m, "in/m.onnx")
    ok = env.run(env.dtrc, model("w.bin"), "--budget", "100%", "-o", env.path("t"))
    if ok.status:
        raise Failed(f"plain external data does not compile: {ok.err}")
    bad = [dict(location=x) for x in ("../secret.bin", secret, "link.bin", "folder/secret.bin", "./../in/../secret.bin",
                                       "", ".", "absent.bin", "pipe.bin", "/dev/zero")]
    bad += [dict(location="w.bin", offset=x) for x in ("-4", "4", "999999999999999999999", "18446744073709551612", "x")]
    bad += [dict(location="w.bin", length=x) for x in ("64", "-1", "129", "18446744073709551615")]
    for keys in bad:
        try:
            env.refused(env.dtrc, model(**keys), "--budget", "100%", "-o", env.path("t2"))
        except Failed as e:
            raise Failed(f"{keys}: {e}")
        if os.path.exists(env.path("t2")):
            raise Failed(f"{keys}: a trainer was written")
