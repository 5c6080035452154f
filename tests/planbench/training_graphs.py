#!/usr/bin/env python3
"""Writes a training graph of a known kind as node-link JSON, which `dtrc plan` reads.

    tests/planbench/training_graphs.py KIND [SIZE] >GRAPH.json

KIND and what SIZE counts: chain (layers of one unit of time and memory), varied (layers of random ones), mlp (layers),
resnet (blocks), densenet (layers), unet (levels), transformer (blocks), lstm (steps). Times are in units of 1 us and bytes
in KiB, both as rough numbers of an accelerator make them. The forward operators come first, then for each of them, from the
last to the first: the sum of the gradients that its readers made, the gradient of its weight, those of its operands;
weights are updated at the end of the step, or at once (mlp, densenet). Same arguments, same graph. Standard library only.
"""
import json
import random
import sys

KIB_PER_US = 800.0  # memory traffic of an elementwise operator


def traffic(kib, passes=2):
    return passes * kib / KIB_PER_US


class Op:
    """One forward operator. reads: what its gradient needs: 'i' its operands, 'o' its result, '' neither. weight: KiB of its
    parameters. passes_on: its gradient is that of its operands (a sum)."""

    def __init__(self, node, operands, time, kib, reads, weight, passes_on):
        self.node, self.operands, self.time, self.kib = node, operands, time, kib
        self.reads, self.weight, self.passes_on = reads, weight, passes_on


class Step:
    def __init__(self):
        self.nodes, self.links, self.kib, self.ops = [], [], [], []

    def node(self, name, operands, time, kib, backward=False):
        n = len(self.nodes)
        self.nodes.append({"id": n, "name": name, "cost_cpu": max(1, round(time)), "cost_ram": 1024 * round(kib),
                           "backward": backward})
        self.kib.append(kib)
        self.links += [{"source": p, "target": n} for p in sorted(set(operands))]
        return n

    def op(self, name, operands, time, kib, reads="i", weight=0, passes_on=False):
        n = self.node(name, operands, time, kib)
        self.ops.append(Op(n, operands, time, kib, reads, weight, passes_on))
        return n

    def operand_gradient(self, op, grad, operand, saved):
        """The gradient of a product needs the other operands; of an operator without weights of one operand, that one."""
        needs = [grad] + ([op.node] if "o" in op.reads else [])
        if "i" in op.reads:
            others = [x for x in op.operands if x != operand]
            needs += others if others else [] if op.weight else saved
        return self.node(f"d_{self.nodes[op.node]['name']}", needs, op.time, self.kib[operand], True)

    def backward(self, loss, updates_last=True):
        grads = {loss: [self.node("d_loss", [loss], 1, self.kib[loss], True)]}
        updates = []
        for op in reversed(self.ops):
            if op.node not in grads:
                continue
            grad, *more = grads[op.node]
            name = self.nodes[op.node]["name"]
            for other in more:
                grad = self.node(f"sum_{name}", [grad, other], traffic(op.kib, 3), op.kib, True)
            saved = op.operands if "i" in op.reads else []
            if op.weight:
                needs = [grad] + saved + ([op.node] if "o" in op.reads else [])
                made = self.node(f"w_{name}", needs, op.time, op.weight, True)
                updates.append((f"u_{name}", made, op.weight))
                if not updates_last:
                    self.update(*updates.pop())
            for operand in op.operands:
                got = grad if op.passes_on else self.operand_gradient(op, grad, operand, saved)
                grads.setdefault(operand, []).append(got)
        for update in updates:
            self.update(*update)

    def update(self, name, grad, weight):
        self.node(name, [grad], traffic(weight), 0, True)

    def json(self, name):
        return {"directed": True, "multigraph": False, "graph": {"name": name}, "nodes": self.nodes, "links": self.links}


def chain(layers, rnd=None):
    """A gradient needs the next gradient and the operand of its layer."""
    s = Step()
    time = [rnd.choice([5, 10, 20, 50, 100]) if rnd else 1 for _ in range(layers)]
    kib = [rnd.randint(1, 8) if rnd else 1 for _ in range(layers)]
    for i in range(layers):
        s.node(f"f{i}", [i - 1] if i else [], time[i], kib[i])
    last = s.node("loss", [layers - 1], 1, 1)
    for i in reversed(range(layers)):
        last = s.node(f"b{i}", [last] + ([i - 1] if i else []), 2 * time[i] if rnd else 1, kib[i - 1] if i else 1, True)
    return s


def varied(layers):
    return chain(layers, random.Random(1))


def mlp(layers):
    s, x, kib = Step(), [], 16384
    for i in range(layers):
        x = [s.op(f"fc{i}", x, 400, kib, weight=4096)]
        x = [s.op(f"relu{i}", x, traffic(kib), kib, "o")]
    s.backward(s.op("loss", x, 20, 1), updates_last=False)
    return s


def resnet(blocks):
    s, top, stage = Step(), 100352, max(1, blocks // 4)
    x = s.op("conv", [], 800, top, weight=37)
    x = s.op("norm", [x], traffic(top, 3), top, weight=1)
    x = s.op("relu", [x], traffic(top), top, "o")
    for k in range(blocks):
        level = min(3, k // stage)
        kib, weight, skip = 50176 >> level, 144 << (2 * level), x
        y = s.op(f"conv1_{k}", [x], 740, kib, weight=weight)
        y = s.op(f"norm1_{k}", [y], traffic(kib, 3), kib, weight=1)
        y = s.op(f"relu1_{k}", [y], traffic(kib), kib, "o")
        y = s.op(f"conv2_{k}", [y], 740, kib, weight=weight)
        y = s.op(f"norm2_{k}", [y], traffic(kib, 3), kib, weight=1)
        if s.kib[skip] != kib:
            skip = s.op(f"down_{k}", [skip], 100, kib, weight=weight // 9 + 1)
        y = s.op(f"add_{k}", [y, skip], traffic(kib, 3), kib, "", passes_on=True)
        x = s.op(f"relu2_{k}", [y], traffic(kib), kib, "o")
    x = s.op("pool", [x], 20, 64, "")
    x = s.op("fc", [x], 30, 128, weight=2000)
    s.backward(s.op("loss", [x], 5, 1))
    return s


def densenet(layers):
    s, kib, window = Step(), 8192, 6
    made = [s.op("conv", [], 500, kib, weight=9)]
    for k in range(layers):
        wide = min(len(made), window) * kib
        y = s.op(f"concat_{k}", made[-window:], traffic(wide), wide, "")
        y = s.op(f"norm_{k}", [y], traffic(wide, 3), wide, weight=1)
        y = s.op(f"relu_{k}", [y], traffic(wide), wide, "o")
        made.append(s.op(f"conv_{k}", [y], 700, kib, weight=9))
    s.backward(s.op("loss", [made[-1]], 5, 1), updates_last=False)
    return s


def unet(levels):
    s, x, skips, top, time, weight = Step(), [], [], 131072, 1200, 36

    def convs(name, x, kib, weight, first=1.0):
        for k in range(2):
            x = [s.op(f"{name}_conv{k}", x, time * (first if k == 0 else 1), kib, weight=weight)]
            x = [s.op(f"{name}_relu{k}", x, traffic(kib), kib, "o")]
        return x

    for d in range(levels):
        x = convs(f"down{d}", x, top >> d, weight << (2 * d))
        skips += x
        x = [s.op(f"pool{d}", x, traffic(top >> d), (top >> d) >> 2)]
    x = convs("middle", x, top >> levels, weight << (2 * levels))
    for d in reversed(range(levels)):
        kib = top >> d
        x = [s.op(f"up{d}", x, time / 2, kib, weight=weight << (2 * d))]
        x = [s.op(f"concat{d}", x + [skips[d]], traffic(2 * kib), 2 * kib, "")]
        x = convs(f"up{d}", x, kib, weight << (2 * d), 1.5)
    s.backward(s.op("loss", x, 200, 1))
    return s


def transformer(blocks):
    s, kib, square = Step(), 32768, 524288
    x = s.op("embed", [], traffic(kib), kib, weight=8192)
    for k in range(blocks):
        h = s.op(f"norm1_{k}", [x], traffic(kib, 3), kib, weight=4)
        q, key, v = (s.op(f"{n}_{k}", [h], 1700, kib, weight=4096) for n in "qkv")
        a = s.op(f"scores_{k}", [q, key], 1700, square)
        a = s.op(f"softmax_{k}", [a], traffic(square), square, "o")
        a = s.op(f"dropout_{k}", [a], traffic(square), square, "")
        a = s.op(f"context_{k}", [a, v], 1700, kib)
        a = s.op(f"project_{k}", [a], 1700, kib, weight=4096)
        x = s.op(f"add1_{k}", [a, x], traffic(kib, 3), kib, "", passes_on=True)
        h = s.op(f"norm2_{k}", [x], traffic(kib, 3), kib, weight=4)
        h = s.op(f"wide_{k}", [h], 6800, 4 * kib, weight=16384)
        h = s.op(f"gelu_{k}", [h], traffic(4 * kib), 4 * kib)
        h = s.op(f"narrow_{k}", [h], 6800, kib, weight=16384)
        x = s.op(f"add2_{k}", [h, x], traffic(kib, 3), kib, "", passes_on=True)
    x = s.op("norm", [x], traffic(kib, 3), kib, weight=4)
    s.backward(s.op("loss", [x], 3000, 1, weight=8192))
    return s


def lstm(steps):
    s, kib, h, c = Step(), 512, [], []
    for t in range(steps):
        gates = s.op(f"gates{t}", h, 60, 4 * kib, weight=0 if t else 4096)
        act = s.op(f"act{t}", [gates], 4, 4 * kib, "o")
        c = [s.op(f"cell{t}", [act] + c, 3, kib)]
        tanh = s.op(f"tanh{t}", c, 3, kib, "o")
        h = [s.op(f"hidden{t}", [act, tanh], 3, kib)]
    s.backward(s.op("loss", h, 5, 1))
    return s


SIZES = {chain: 16, varied: 16, mlp: 6, resnet: 16, densenet: 60, unet: 4, transformer: 12, lstm: 50}


def main():
    kinds = {k.__name__: k for k in SIZES}
    if not 2 <= len(sys.argv) <= 3 or sys.argv[1] not in kinds:
        sys.exit(__doc__)
    kind = kinds[sys.argv[1]]
    size = int(sys.argv[2]) if len(sys.argv) == 3 else SIZES[kind]
    json.dump(kind(size).json(f"{sys.argv[1]} {size}"), sys.stdout)
    print()


if __name__ == "__main__":
    main()
