#!/usr/bin/python3
"""Makes the quick-start model and data: handwritten digits, 8x8 pixels (UCI "Optical Recognition of
Handwritten Digits" test set, as packed in Debian's python3-sklearn).

    make_digits.py [OUT_DIR]        (default: models/build)

Writes digits_train.npz (1500 samples) and digits_test.npz (297), split by a fixed permutation, with
arrays `image` float32 [n,1,8,8] in 0..1 and `target` int64 [n]; and digits.onnx, a small convolutional
network with seeded initial weights and the symbolic batch dimension N.  Needs numpy and python3-onnx.
"""
import gzip
import io
import os
import subprocess
import sys
import tarfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CSV = "usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz"
TRAIN = 1500


def find_csv(out_dir):
    """The compressed table: of the installed package, else out of the package file alone (without the many
    packages that it depends on)."""
    if os.path.exists("/" + CSV):
        return open("/" + CSV, "rb").read()
    subprocess.run(["apt-get", "-q", "download", "python3-sklearn"], cwd=out_dir, check=True,
                   stdout=subprocess.DEVNULL)
    deb = next(f for f in sorted(os.listdir(out_dir)) if f.startswith("python3-sklearn_"))
    tar = subprocess.run(["dpkg-deb", "--fsys-tarfile", os.path.join(out_dir, deb)], check=True,
                         stdout=subprocess.PIPE).stdout
    os.remove(os.path.join(out_dir, deb))
    return tarfile.open(fileobj=io.BytesIO(tar)).extractfile("./" + CSV).read()


def write_data(out_dir):
    table = np.loadtxt(io.BytesIO(gzip.decompress(find_csv(out_dir))), delimiter=",")
    table = table[np.random.RandomState(0).permutation(len(table))]
    image = (table[:, :64] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    target = table[:, 64].astype(np.int64)
    np.savez(os.path.join(out_dir, "digits_train.npz"), image=image[:TRAIN], target=target[:TRAIN])
    np.savez(os.path.join(out_dir, "digits_test.npz"), image=image[TRAIN:], target=target[TRAIN:])
    return len(table)


def make_model():
    rng = np.random.RandomState(1)
    weights, nodes = [], []

    def weight(name, *shape):
        fan_in = int(np.prod(shape[1:]))
        bound = np.sqrt(6 / fan_in)
        weights.append(numpy_helper.from_array(rng.uniform(-bound, bound, shape).astype(np.float32), name + ".weight"))
        weights.append(numpy_helper.from_array(np.zeros(shape[0], np.float32), name + ".bias"))
        return [name + ".weight", name + ".bias"]

    def node(op, inputs, output, **attributes):
        nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    x = "image"
    for i, (c_in, c_out) in enumerate([(1, 16), (16, 16), (16, 16), (16, 16), (16, 32), (32, 32)], 1):
        x = node("Conv", [x] + weight(f"conv{i}", c_out, c_in, 3, 3), f"conv{i}", kernel_shape=[3, 3],
                 pads=[1, 1, 1, 1])
        x = node("Relu", [x], f"relu{i}")
        if i in (4, 6):
            x = node("MaxPool", [x], f"pool{i}", kernel_shape=[2, 2], strides=[2, 2])
    x = node("Flatten", [x], "flat", axis=1)
    node("Gemm", [x] + weight("fc", 10, 32 * 2 * 2), "logits", transB=1)
    graph = helper.make_graph(nodes, "digits",
                              [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 10])], weights)
    model = helper.make_model(graph, producer_name="dtrc", opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model


def main():
    out_dir = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "build")
    os.makedirs(out_dir, exist_ok=True)
    n = write_data(out_dir)
    model = make_model()
    onnx.save(model, os.path.join(out_dir, "digits.onnx"))
    count = sum(int(np.prod(w.dims)) for w in model.graph.initializer)
    print(f"{out_dir}: digits.onnx ({count} weights), {TRAIN} samples to train, {n - TRAIN} to test")


if __name__ == "__main__":
    main()
