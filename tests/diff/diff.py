#!/usr/bin/python3
"""Differential fuzzing: random models trained by dtrc and, in float64, by PyTorch must agree.

    diff.py --dtrc build/release/bin/dtrc [--from 0] [--count 100] [--opset N] [--kind K] [--keep DIR] [--check-grad P]

Needs PyTorch and the onnx package.  generate.py makes a model from a seed; onnx_torch.py runs it.  Compared are the
losses of three steps, the gradients of the first, the final weights and running statistics; tolerances are
2e-5 relative to the norm, or twenty times what PyTorch itself loses in float32 or by rounding noise in the weights.  A second program at the smallest
budget, run in hard mode, must give the same bits as the one at 100 %.  The generated C must compile without warnings.
A failing case stays in the folder of --keep: model.onnx, data.npz, case.json, report.txt.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import generate
from onnx_torch import run_graph, to_torch


class Failed(Exception):
    pass


def loss_of(y, t, loss):
    kind = loss["kind"]
    if kind == "output":
        return y.reshape(())
    if kind == "mse":
        return ((y - t) ** 2).mean()
    if kind == "l1":
        return (y - t).abs().mean()
    if kind == "bce_with_logits":
        return F.binary_cross_entropy_with_logits(y, t)
    axis = loss["class_axis"] % y.dim()
    z = torch.movedim(y, axis, -1).reshape(-1, y.shape[axis])
    logp = torch.log_softmax(z, 1) if kind == "cross_entropy" else z
    t = t.reshape(-1)
    keep = t != loss["ignore_index"] if "ignore_index" in loss else torch.ones_like(t, dtype=torch.bool)
    logp, t, e = logp[keep], t[keep], loss.get("label_smoothing", 0.0)
    picked = -logp.gather(1, t[:, None])[:, 0]
    return ((1 - e) * picked - e * logp.mean(1)).mean()


class Optimizer:
    """The formulas of tests/data/traces/README.md."""

    def __init__(self, spec, lr):
        self.o, self.lr, self.t, self.state = spec, lr, 0, {}

    def step(self, weights, grads):
        self.t += 1
        o, lr = self.o, self.lr
        decay = o.get("weight_decay", 0.01 if o["kind"] == "adamw" else 0.0)
        for n, g in grads.items():
            w = weights[n].detach()
            if o["kind"] == "sgd":
                g = g + decay * w
                m = o.get("momentum", 0.0)
                if m:
                    v = self.state.get(n)
                    v = g.clone() if v is None else m * v + (1 - o.get("dampening", 0.0)) * g
                    self.state[n] = v
                    g = g + m * v if o.get("nesterov") else v
                weights[n] = w - lr * g
                continue
            b1, b2 = o.get("betas", [0.9, 0.999])
            if o["kind"] == "adamw":
                w = w * (1 - lr * decay)
            else:
                g = g + decay * w
            m, v = self.state.get(n, (0.0, 0.0))
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
            self.state[n] = (m, v)
            t = self.t
            weights[n] = w - lr * (m / (1 - b1 ** t)) / (v.sqrt() / (1 - b2 ** t) ** 0.5 + o.get("eps", 1e-8))


def reference(model, data, c, dtype, noise=0.0):
    """(losses, gradients of step 0, final weights and buffers)"""
    params = {t.name: to_torch(numpy_helper.to_array(t), dtype) for t in model.graph.initializer}
    if noise:
        gen = torch.Generator().manual_seed(1)
        for n, v in params.items():
            if v.is_floating_point():
                params[n] = v * (1 + noise * (torch.rand(v.shape, generator=gen, dtype=dtype) - 0.5))
    opt, losses, grad0 = Optimizer(c["optimizer"], c["lr"]), [], None
    for i in range(c["steps"]):
        leaf = {n: v.clone().requires_grad_(n in c["params"]) for n, v in params.items()}
        feeds = {k: data[k][i] for k in data if k != "target"}
        values, buffers = run_graph(model, feeds, leaf, dtype)
        t = to_torch(data["target"][i], dtype) if "target" in data else None
        loss = loss_of(values[c["loss"]["output"]], t, c["loss"])
        losses.append(float(loss))
        got = torch.autograd.grad(loss, [leaf[n] for n in c["params"]], allow_unused=True)
        grads = {n: torch.zeros_like(leaf[n]) if g is None else g for n, g in zip(c["params"], got)}
        if grad0 is None:
            grad0 = {n: g.detach().to(torch.float64).numpy() for n, g in grads.items()}
        with torch.no_grad():
            opt.step(params, grads)
        params.update(buffers)
    final = {n: v.detach().to(torch.float64).numpy() for n, v in params.items() if v.is_floating_point()}
    return np.array(losses), grad0, final


def safetensors(path):
    raw = open(path, "rb").read()
    n = int.from_bytes(raw[:8], "little")
    head, out = json.loads(raw[8:8 + n]), {}
    for name, e in head.items():
        if name == "__metadata__":
            continue
        lo, hi = e["data_offsets"]
        kind = {"F32": np.float32, "I64": np.int64, "I32": np.int32, "BOOL": np.bool_}[e["dtype"]]
        out[name] = np.frombuffer(raw[8 + n + lo:8 + n + hi], kind).reshape(e["shape"])
    return out


def run(cmd, status=0, timeout=120):
    env = dict(os.environ, OMP_WAIT_POLICY="passive")
    try:
        p = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, env=env)
    except subprocess.TimeoutExpired:
        raise Failed(f"no end after {timeout} s: {' '.join(cmd)}")
    out, err = p.stdout.decode(errors="replace"), p.stderr.decode(errors="replace")
    if p.returncode != status:
        raise Failed(f"exit status {p.returncode}: {' '.join(cmd)}\n{err[-1500:]}{out[-300:]}")
    return out, err


def options(c):
    loss, opt = c["loss"], c["optimizer"]
    kind = {"cross_entropy": "cross-entropy", "bce_with_logits": "bce-logits"}.get(loss["kind"], loss["kind"])
    keys = [f"{k}={loss[k]}" for k in ("output", "class_axis", "ignore_index", "label_smoothing") if k in loss]
    args = ["--loss", f"{kind}:{','.join(keys)}"]
    keys = [f"betas={v[0]}/{v[1]}" if k == "betas" else f"{k}={int(v) if v is True else v}"
            for k, v in opt.items() if k != "kind"]
    args += ["--optimizer", opt["kind"] + (":" + ",".join(keys) if keys else "")]
    if c.get("select"):
        args += ["--freeze", "*"]
        for n in c["params"]:
            args += ["--train", n]
    for n in c["frozen"]:
        args += ["--freeze", n]
    if c["dynamic_batch"]:
        args += ["--batch", str(c["batch"])]
    return args + ["--threads", str(c["threads"])]


def l2(x):
    return float(np.sqrt((np.asarray(x, np.float64) ** 2).sum()))


def compare(c, got, ref, low):
    """low: the same in float32, several runs; raises Failed."""
    problems = []
    losses, grads, final = got
    allowed = lambda i, f: max([f(r[i]) for r in low] + [0.0]) * 20
    rel = lambda x, y: float(np.max(np.abs(x - y) / (np.abs(y) + 1e-6)))
    tol = max(1e-5, allowed(0, lambda x: rel(x, ref[0])))
    if not rel(losses, ref[0]) <= tol:
        problems.append(f"losses {losses.tolist()} expected {ref[0].tolist()} tol {tol:.1e}")
    total = l2([l2(g) for g in ref[1].values()])
    tiny = set()
    for n, g in ref[1].items():
        if n not in grads:
            problems.append(f"no gradient of {n}")
            continue
        if grads[n].shape != g.shape:
            problems.append(f"gradient of {n} has shape {grads[n].shape}, expected {g.shape}")
            continue
        scale = max(l2(g), 1e-2 * total, 1e-7)
        if l2(g) < 1e-6 * total:
            tiny.add(n)
        err, tol = l2(grads[n] - g) / scale, max(2e-5, 20 * max(l2(r[1][n] - g) for r in low) / scale)
        if not err <= tol:
            problems.append(f"gradient of {n} {list(g.shape)}: error {err:.2e} tol {tol:.1e}, norm {l2(g):.3g} of {total:.3g}")
    for n, w in ref[2].items():
        if n not in final:
            if n in ref[1]:
                problems.append(f"{n} is not saved")
            continue
        if final[n].shape != w.shape:
            problems.append(f"{n} is saved with shape {final[n].shape}, expected {w.shape}")
            continue
        scale = max(l2(w), 1e-3 * np.sqrt(w.size))
        err, tol = l2(final[n] - w) / scale, max(2e-5, 20 * max(l2(r[2][n] - w) for r in low) / scale)
        if n in tiny and c["optimizer"]["kind"] != "sgd":
            tol = 3 * c["lr"] * c["steps"] * np.sqrt(w.size) / scale
        if not err <= tol:
            problems.append(f"final {n} {list(w.shape)}: error {err:.2e} tol {tol:.1e}")
    if problems:
        raise Failed("\n".join(problems))


def train(trainer, folder, c, *more):
    out, err = run([trainer, "--data", os.path.join(folder, "data.npz"), "--batched", "--steps", str(c["steps"]), "--lr",
                    repr(c["lr"]), "--save", trainer + ".w", "--save-grads", trainer + ".g", "--json", *more])
    s = json.loads(out.strip().splitlines()[-1])
    if s["peak_bytes"] > s["budget_bytes"]:
        raise Failed(f"peak {s['peak_bytes']} over budget {s['budget_bytes']}")
    return s, safetensors(trainer + ".w"), safetensors(trainer + ".g")


def check_gradients(trainer, folder):
    """--check-grad; rounding noise in place of a zero is not held against it."""
    cmd = [trainer, "--data", os.path.join(folder, "data.npz"), "--batched", "--check-grad"]
    p = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    rows = [x.split() for x in p.stdout.decode(errors="replace").splitlines() if x.startswith('"')]
    sizes = [abs(float(r[2])) for r in rows if r[-1] in ("ok", "WRONG")]
    wrong = [r for r in rows if r[-1] == "WRONG" and abs(float(r[2])) > 1e-4 * max(sizes)]
    if wrong or p.returncode not in (0, 1) or not rows:
        raise Failed(f"--check-grad: {p.returncode} {wrong} {p.stderr.decode()[-300:]}")


def run_case(opt, folder, model, data, c):
    onnx.save(model, os.path.join(folder, "model.onnx"))
    np.savez(os.path.join(folder, "data.npz"), **data)
    json.dump(c, open(os.path.join(folder, "case.json"), "w"), indent=1)
    onnx.checker.check_model(model)
    ref = reference(model, data, c, torch.float64)
    if not np.isfinite(ref[0]).all() or max(map(l2, ref[1].values())) > 1e4:
        return "wild"
    low = [reference(model, data, c, torch.float32), reference(model, data, c, torch.float64, 2e-7),
           reference(model, data, c, torch.float32, 4e-7)]
    if max(l2(r[1][n] - g) for r in low for n, g in ref[1].items()) > 1e-3 * l2([l2(g) for g in ref[1].values()]):
        return "ill-conditioned"
    path = os.path.join(folder, "model.onnx")
    big, emit = os.path.join(folder, "big"), os.path.join(folder, "emit")
    _, err = run([opt.dtrc, path, "--emit", emit, "-o", big] + options(c))
    warned = [x for x in err.splitlines() if "warn" in x.lower()]
    if warned:
        print("   warning:", c["name"], warned[0], flush=True)
    run(["make", "-s", "-n", "-C", emit])
    if opt.strict:
        _, err = run(["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-fopenmp",
                      "-I" + opt.include, os.path.join(emit, "program.c")])
    s, w, g = train(big, folder, c)
    compare(c, (np.array(s["losses"]), g, w), ref, low)
    out, _ = run([opt.dtrc, "plan", path, "--budget", "100%", "--json"] + options(c))
    plan = json.loads(out.strip().splitlines()[-1])
    small = os.path.join(folder, "small")
    if plan["min_budget_bytes"] < plan["peak_without_budget_bytes"] or opt.always_small:
        run([opt.dtrc, path, "--budget", str(plan["min_budget_bytes"]), "-o", small] + options(c))
    else:
        small = big
    s2, w2, g2 = train(small, folder, c, "--hard")
    if s2["weights_sha256"] != s["weights_sha256"] or s2["losses"] != s["losses"]:
        bad = [n for n in w if w[n].tobytes() != w2[n].tobytes()]
        raise Failed(f"other bits at the smallest budget, hard: {bad[:5]} {s['losses']} {s2['losses']}")
    for n in g:
        if g[n].tobytes() != g2[n].tobytes():
            raise Failed(f"other gradient bits at the smallest budget: {n}")
    if opt.check_grad and int(c["name"][1:]) % opt.check_grad == 0:
        check_gradients(big, folder)
    return f"ok {s2['recomputed_runs']} again"


def main():
    ap = argparse.ArgumentParser(description="Differential fuzzing of dtrc against PyTorch.")
    ap.add_argument("--dtrc", required=True)
    ap.add_argument("--from", dest="first", type=int, default=0)
    ap.add_argument("--count", type=int, default=100)
    ap.add_argument("--stride", type=int, default=1)
    ap.add_argument("--opset", type=int)
    ap.add_argument("--kind")
    ap.add_argument("--keep", default=None)
    ap.add_argument("--check-grad", type=int, default=10, help="every N-th case also runs --check-grad")
    ap.add_argument("--strict", action="store_true", help="compile the generated C with -Wall -Wextra -Werror too")
    ap.add_argument("--always-small", action="store_true")
    ap.add_argument("--large", action="store_true", help="sizes at which loops run on several threads")
    ap.add_argument("--rerun", help="a kept folder")
    opt = ap.parse_args()
    torch.set_num_threads(1)
    opt.dtrc = os.path.abspath(opt.dtrc)
    opt.include = os.path.join(os.path.dirname(os.path.dirname(opt.dtrc)), "include", "dtrc")
    keep = opt.keep or tempfile.mkdtemp(prefix="dtrc-diff-")
    counts = {}
    if opt.rerun:
        c = json.load(open(os.path.join(opt.rerun, "case.json")))
        print(run_case(opt, opt.rerun, onnx.load(os.path.join(opt.rerun, "model.onnx")),
                       dict(np.load(os.path.join(opt.rerun, "data.npz"))), c))
        return 0
    failed = 0
    for seed in range(opt.first, opt.first + opt.count * opt.stride, opt.stride):
        try:
            model, data, c = generate.case(seed, opt.opset, opt.kind, opt.large)
        except generate.Reject:
            counts["rejected"] = counts.get("rejected", 0) + 1
            continue
        folder = os.path.join(keep, c["name"])
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        try:
            result = run_case(opt, folder, model, data, c)
            shutil.rmtree(folder)
        except Exception as e:
            failed += 1
            text = str(e) if isinstance(e, Failed) else traceback.format_exc()
            open(os.path.join(folder, "report.txt"), "w").write(text)
            print(f"FAIL {c['name']} opset {c['opset']} {c['kind']} {c['loss']} {c['optimizer']['kind']} {' '.join(c['ops'])}\n"
                  + "\n".join("     " + x for x in text.splitlines()[:6]), flush=True)
            result = "failed"
        key = result.split()[0]
        counts[key] = counts.get(key, 0) + 1
    print(counts, "kept in", keep if failed else "nothing")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
