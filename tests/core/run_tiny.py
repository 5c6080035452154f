#!/usr/bin/python3
"""Runs tests/core/tiny.c, a program written by hand, with data files of every format, good and bad, and compares
with the same training in numpy. Arguments: the build folder. Exit status 77: numpy is not there."""
import gzip
import hashlib
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

try:
    import numpy as np
except ImportError:
    sys.exit(77)

N, D, C = 4, 3, 2
W0 = np.arange(6, dtype=np.float32).reshape(C, D) / 10
B0 = np.array([0.1, -0.1], np.float32)
tmp = tempfile.mkdtemp()
failed = 0


def path(name):
    return os.path.join(tmp, name)


def check(what, ok, more=""):
    global failed
    if not ok:
        failed += 1
        print(f"FAILED {what} {more}")


def with_payload(exe, payload):
    out = path("tiny")
    with open(out, "wb") as f:
        f.write(open(exe, "rb").read() + payload + struct.pack("<Q8s", len(payload), b"DTRTPAY1"))
    os.chmod(out, 0o755)
    return out


def run(*args, env=None, limit=None):
    def before():
        if limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    p = subprocess.run([trainer, *args], capture_output=True, env={**os.environ, **(env or {})}, preexec_fn=before)
    p.out, p.err = p.stdout.decode(), p.stderr.decode()
    return p


def summary(*args, **more):
    p = run("--json", *args, **more)
    check(f"run {args}", p.returncode == 0, p.err)
    return json.loads(p.out.splitlines()[-1]) if p.returncode == 0 else {"losses": [], "weights_sha256": ""}


def refused(status, *args, says=(), **more):
    p = run(*args, **more)
    ok = p.returncode == status and all(s in p.err for s in says) and p.err.count("\n") < 12
    check(f"{args}: status {p.returncode}, expected {status}, saying {says}", ok, p.err)


def npz(name="d.npz", save=np.savez, **arrays):
    save(path(name), **arrays)
    return path(name)


def read_safetensors(p):
    raw = open(p, "rb").read()
    n = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8:8 + n])
    check("safetensors header is padded", n % 8 == 0)
    out, end = {}, 0
    for k, e in head.items():
        if k != "__metadata__":
            lo, hi = e["data_offsets"]
            check(f"{k} follows the one before", lo == end)
            end = hi
            out[k] = np.frombuffer(raw[8 + n + lo:8 + n + hi], "<f4").reshape(e["shape"])
    check("safetensors length", len(raw) == 8 + n + end)
    return out, head["__metadata__"]


def train(x, t, lr, momentum=0.9):
    """The same training in float64: losses, first gradients, w, b, stat, v."""
    w, b, stat, v, losses, first = W0.astype(float), B0.astype(float), np.zeros(C), np.zeros((C, D)), [], None
    for k in range(len(lr)):
        xb, tb = x[k].astype(float), t[k]
        z = xb @ w.T + b
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        losses.append(-np.log(p[np.arange(N), tb]).mean())
        d = (p - np.eye(C)[tb]) / N
        stat = 0.9 * stat + 0.1 * z.mean(0)
        dw, db = d.T @ xb, d.sum(0)
        first = first or (dw, db)
        v = momentum * v + dw
        w, b = w - lr[k] * v, b - lr[k] * db
    return losses, first, w, b, stat, v


def near(a, b):
    return np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=1e-5, atol=1e-6)


def test_training(x, t):
    data = npz(x=x.reshape(-1, D), target=t.reshape(-1))
    lr = [0.5, 0.25, 0.25]
    losses, first, w, b, stat, v = train(x, t, lr)
    s = summary("--data", data, "--shuffle", "off", "--lr", "0.5,0.25", "--save", path("o.safetensors"),
                "--save-grads", path("g.safetensors"), "--log", path("log.jsonl"), "--profile", path("p.json"))
    check("losses", near(s["losses"], losses), str(s["losses"]))
    check("steps", s["steps"] == 3 and s["mode"] == "static" and s["metric"] == "accuracy")
    check("bytes", s["peak_bytes"] == s["planned_peak_bytes"] == 704 and s["budget_bytes"] == 1024)
    got, meta = read_safetensors(path("o.safetensors"))
    for name, want in (("w", w), ('bias "quoted"', b), ("stat", stat), ("optim.m.w", v)):
        check(f"final {name}", near(got[name], want), str(got.get(name)))
    check("metadata", meta["step"] == "3" and meta["epoch"] == "1" and meta["position"] == "0")
    digest = hashlib.sha256(got["w"].tobytes() + got['bias "quoted"'].tobytes() + got["stat"].tobytes()).hexdigest()
    check("weights_sha256", s["weights_sha256"] == digest)
    grads, _ = read_safetensors(path("g.safetensors"))
    check("gradients", near(grads["w"], first[0]) and near(grads['bias "quoted"'], first[1]))
    log = [json.loads(line) for line in open(path("log.jsonl"))]
    check("log", [r["step"] for r in log] == [0, 1, 2] and near([r["loss"] for r in log], losses)
          and [r["lr"] for r in log] == [0.5, 0.25, 0.25])
    prof = json.load(open(path("p.json")))
    check("profile", len(prof["nodes"]) == 8 and all(n["runs"] == 3 for n in prof["nodes"]))
    check("profile's head", prof["format"] == "dtrc-profile" and prof["version"] == 1 and prof["threads"] >= 1
          and len(prof["graph"]) == 16 and prof["batch"] == 4 and "command" in prof)
    batched = summary("--data", npz("b.npz", x=x, target=t), "--batched", "--lr", "0.5,0.25")
    check("batched equals unshuffled samples", batched["weights_sha256"] == digest)
    hard = summary("--data", data, "--shuffle", "off", "--lr", "0.5,0.25", "--hard")
    check("hard mode changes nothing", hard["weights_sha256"] == digest)
    dynamic = summary("--data", data, "--shuffle", "off", "--lr", "0.5,0.25", "--mode", "dynamic", "--budget", "2K",
                      "--hard")
    check("dynamic mode changes nothing", dynamic["weights_sha256"] == digest and dynamic["losses"] == s["losses"])
    check("dynamic mode", dynamic["mode"] == "dynamic" and dynamic["peak_bytes"] <= dynamic["budget_bytes"] == 2048)
    ample = summary("--data", data, "--mode", "dynamic", "--budget", "1G")
    check("an ample budget is not taken", ample["peak_bytes"] <= 2048 and not ample["recomputed_runs"])
    refused(5, "--data", data, "--hard", env={"TINY_STALE": "1"}, says=["loss"])
    refused(5, "--data", data, env={"TINY_STALE": "1", "DTRT_HARD": "1"})
    return data, digest


def test_formats(x, t, digest):
    flat, labels = x.reshape(-1, D), t.reshape(-1)
    args = ("--shuffle", "off", "--lr", "0.5,0.25")
    np.save(path("x.npy"), flat)
    np.save(path("t.npy"), labels)
    np.save(path("t8.npy"), labels.astype(np.uint8))
    np.save(path("x1.npy"), flat[:5])
    np.save(path("x2.npy"), flat[5:])
    np.save(path("x64.npy"), flat.astype(np.float64))
    gzip.open(path("x.npy.gz"), "wb").write(open(path("x.npy"), "rb").read())
    X, T = path("x.npy"), path("t.npy")
    for spec in (f"{X},{T}", f"target={T},x={X}", f"x={X},{path('t8.npy')}", f"{path('x.npy.gz')},{T}",
                 f"{path('x64.npy')},{T}", f"x={path('x1.npy')},x={path('x2.npy')},target={T}",
                 npz("c.npz", np.savez_compressed, x=flat, target=labels),
                 npz("i32.npz", x=flat, target=labels.astype(np.int32), unused=np.zeros(3, complex))):
        check(spec, summary("--data", spec, *args)["weights_sha256"] == digest)
    z64 = path("z64.npz")
    with zipfile.ZipFile(z64, "w") as z:
        for name, a in (("x", flat), ("target", labels)):
            with z.open(name + ".npy", "w", force_zip64=True) as f:
                np.lib.format.write_array(f, a)
    check("zip64", summary("--data", z64, *args)["weights_sha256"] == digest)
    pixels = (np.arange(24).reshape(8, 3) * 10).astype(np.uint8)
    small = np.array([0, 1] * 4, np.uint8)
    def idx(name, a):
        raw = struct.pack(">BBBB", 0, 0, 8, a.ndim) + struct.pack(f">{a.ndim}I", *a.shape) + a.tobytes()
        (gzip.open if name.endswith("gz") else open)(path(name), "wb").write(raw)
        return path(name)
    want = summary("--data", npz(x=pixels / np.float32(255), target=small.astype(np.int64)), *args)
    for spec in (npz("u8.npz", x=pixels, target=small), f"{idx('i', pixels.reshape(8, 3, 1))},{idx('l', small)}",
                 f"{idx('i.gz', pixels)},{idx('l.gz', small)}"):
        check(spec, summary("--data", spec, *args)["weights_sha256"] == want["weights_sha256"])


def test_order(data):
    a, b = (summary("--data", data, "--epochs", "3", "--seed", s) for s in ("1", "1"))
    c = summary("--data", data, "--epochs", "3", "--seed", "2")
    check("one seed, one order", a["weights_sha256"] == b["weights_sha256"])
    check("another seed, another order", a["weights_sha256"] != c["weights_sha256"])
    check("synthetic", summary("--synthetic", "--steps", "3")["steps"] == 3)


def test_bad_data(x, t):
    flat, labels = x.reshape(-1, D), t.reshape(-1)
    def bad(*says, status=1, more=(), **arrays):
        refused(status, "--data", npz("bad.npz", **arrays), *more, says=says)
    bad('no array named "target"', 'int64 [N]', 'has "x"', x=flat)
    bad("[N,3]", "[12,5]", x=np.ones((12, 5), np.float32), target=labels)
    bad("--batched", x=x, target=labels)
    bad("--batched", x=flat, target=labels, more=["--batched"])
    bad("reshape(", x=flat.reshape(12, 3, 1), target=labels)
    bad("one-hot", x=flat, target=np.eye(2, dtype=np.int64)[labels])
    bad("float32", "int64", x=flat, target=labels.astype(np.float32))
    bad("int64", "float32", x=flat.astype(np.int64), target=labels)
    bad("label 2", "[0,2)", "count from 1", x=flat, target=labels + 1)
    bad("label -100", "ignore_index=-100", x=flat, target=np.where(labels == 0, -100, 1))
    bad("different lengths", "12", "11", x=flat, target=labels[:11])
    bad("empty", x=flat[:0], target=labels[:0])
    bad("fewer than one batch", "3", "4", x=flat[:3], target=labels[:3])
    bad("big-endian", x=flat.astype(">f4"), target=labels)
    bad("Fortran", x=np.asfortranarray(flat), target=labels)
    bad("object", x=np.array([[None] * 3] * 12), target=labels)
    bad("c8", x=flat.astype(np.complex64), target=labels)
    bad("NaN", status=5, x=np.where(flat > 0, np.nan, flat).astype(np.float32), target=labels)
    refused(1, "--data", path("absent.npz"), says=["absent.npz"])
    refused(1, "--data", tmp)
    open(path("text"), "w").write("hello, this is no data file")
    refused(1, "--data", path("text"), says=["text"])
    refused(2, "--data", f"{path('x.npy')},{path('t.npy')},{path('t.npy')}", says=["more files"])
    good = open(npz(x=flat, target=labels), "rb").read()
    for i in range(0, len(good), 97):
        open(path("cut.npz"), "wb").write(good[:i])
        refused(1, "--data", path("cut.npz"))
    packed = bytearray(open(npz("c.npz", np.savez_compressed, x=np.tile(flat, (50, 1)), target=np.tile(labels, 50)),
                            "rb").read())
    packed[100] ^= 0x55
    open(path("bad.npz"), "wb").write(packed)
    refused(1, "--data", path("bad.npz"), says=["damaged"])
    refused(4, "--data", path("c.npz"), env={"TMPDIR": "/no/such/folder"}, says=["TMPDIR"])


def test_usage(data):
    d = ("--data", data)
    refused(2, says=["--data"])
    refused(2, *d, "--nope", says=["--nope"])
    refused(2, *d, "--steps", says=["needs a value"])
    for args in (["--steps", "0"], ["--steps", "x"], ["--lr", "fast"], ["--lr", "1,"], ["--lr", "-1"], ["--seed", "-1"],
                 ["--shuffle", "maybe"], ["--metric", "f1"], ["--budget", "10Q"], ["--json=1"], ["--synthetic"],
                 ["--steps", "1", "--epochs", "1"], ["--betas", "0.9/0.99"], ["--eps", "1"], ["--mode", "fast"]):
        refused(2, *d, *args)
    refused(2, *d, "--val", "f", says=["not available in this version"])
    refused(2, *d, "--export", "f", says=["cannot write its model"])
    refused(2, *d, "--batch", "8", says=["batch 4"])
    refused(2, *d, "--threads", "2", says=["at most 1"])
    refused(3, *d, "--budget", "703", says=["703", "704", "1152"]) # 384 + 3 x 256: logits, loss, and a gradient
    refused(3, *d, "--budget", "703", "--mode", "static", says=["703", "--mode static"])
    refused(3, *d, "--mode", "dynamic", says=["1.00 KiB", "1152"])
    refused(2, *d, "--heuristic", "best", says=["dtr-eq"])
    for args in (["--batch", "4"], ["--threads", "1"], ["--budget", "1K"], ["--budget=704"], ["--mode", "auto"],
                 ["--momentum", "0"], ["--nesterov"], ["--weight-decay", "0"]):
        summary(*d, *args)
    p = run("--help")
    check("help", p.returncode == 0 and "--save-grads" in p.out and '"x" float32 [N,3]' in p.out)
    refused(1, *d, env={"TINY_FAIL": "1"}, says=["fc", "index 7"])
    refused(5, *d, "--epochs", "20", "--lr", "1e38", says=["diverged", "loss"])


def test_machine(data):
    d = ("--data", data, "--lr", "0.1")
    saved = path("s.safetensors")
    summary(*d, "--save", saved)
    old = open(saved, "rb").read()
    refused(4, *d, "--epochs", "2", "--save", saved, limit=300, says=["s.safetensors"])
    check("the older file is whole", open(saved, "rb").read() == old)
    check("nothing left", not [f for f in os.listdir(tmp) if ".tmp" in f])
    refused(4, *d, "--save", path("no/folder"))
    refused(4, *d, "--save", tmp)
    refused(4, *d, "--save", "/dev/full")
    refused(4, *d, "--log", "/dev/full", says=["/dev/full"])
    refused(4, *d, "--profile", path("no/folder"))
    with open("/dev/full", "w") as full:
        p = subprocess.run([trainer, *d, "--json"], stdout=full, stderr=subprocess.PIPE)
    check("full stdout", p.returncode == 4, str(p.returncode))
    for i in range(20):
        p = subprocess.Popen([trainer, *d, "--epochs", "2000", "--save", saved], stderr=subprocess.DEVNULL)
        try:  # killed at some point before, while or after saving
            p.wait(timeout=0.01 * i)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
        read_safetensors(saved)


def rewrite(source, name, change):
    """A copy of a safetensors file whose header went through `change`."""
    raw = open(source, "rb").read()
    n = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8:8 + n])
    head = change(head) or head
    text = json.dumps(head).encode()
    open(path(name), "wb").write(len(text).to_bytes(8, "little") + text + raw[8 + n:])
    return path(name)


def test_resume(data):
    """Interrupted and resumed runs make the bits of one that was not; broken files are refused."""
    d = ("--data", data, "--lr", "0.3", "--epochs", "4", "--seed", "5")
    whole, half, rest, log = path("whole.st"), path("half.st"), path("rest.st"), path("log.jsonl")
    for more in ([], ["--schedule", "cosine", "--warmup", "2"], ["--schedule", "linear"]):
        s = summary(*d, *more, "--log", log)
        lr = [json.loads(line)["lr"] for line in open(log)]
        want = {0: [0.3] * 12,  # 12 steps; cosine: 0.3 (1 + cos(pi t)) / 2 with t = (step - 2) / 10
                4: [0.15, 0.3] + [0.15 * (1 + np.cos(np.pi * i / 10)) for i in range(10)],
                2: [0.3 * (1 - i / 12) for i in range(12)]}[len(more)]
        check("rates", near(lr, want), str(lr))
    s = summary(*d, "--save", whole)
    every = summary(*d, "--save", half, "--save-every", "7")
    check("saving on the way changes nothing", every["weights_sha256"] == s["weights_sha256"]
          and open(half, "rb").read() == open(whole, "rb").read())
    # The loss of the tenth step is not finite: what was written after the seventh stays.
    p = run(*d, "--save", half, "--save-every", "7", env={"TINY_BREAK": "1"})
    check("diverged", p.returncode == 5 and "step 9" in p.err)
    s = summary(*d, "--resume", half, "--save", rest, "--log", log)
    check("resumed", open(rest, "rb").read() == open(whole, "rb").read() and s["steps"] == 5)
    check("steps of the log", [json.loads(line)["step"] for line in open(log)] == [7, 8, 9, 10, 11])
    got = summary(*d[:-2], "--resume", half, "--mode", "dynamic", "--budget", "2K")
    check("the seed is the file's", got["seed"] == 5 and got["weights_sha256"] == s["weights_sha256"])
    def notes(*args):
        return "".join(x for x in run(*args, "--resume", half).err.splitlines(True) if x.startswith("note: "))
    # seven steps of three per epoch; synthetic data has no epochs
    check("as before: no notes", not notes(*d), notes(*d))
    said = notes("--synthetic", "--steps", "9")
    check("another place", "epoch 2 after 4 samples" in said and "epoch 0 after 28" in said and 'shuffle "on"' in said, said)
    sgd = notes(*d, "--shuffle", "off")
    check("another order", 'shuffle "on"' in sgd and sgd.count("note: ") == 1, sgd)
    adam = run(*d, "--resume", rewrite(half, "adam.st", lambda head: head["__metadata__"].update(optimizer="adam")))
    check("another optimizer", "adam" in adam.err and adam.returncode == 0, adam.err)
    p = run(*d, "--resume", whole)
    check("nothing is left to do", p.returncode == 0 and "12 of 12" in p.err)
    return half


def test_bad_checkpoints(data, half):
    d = ("--data", data, "--lr", "0.3", "--epochs", "4")

    def change(key, value):
        def f(head):
            head["w"][key] = value
        return f

    def drop(*names):
        def f(head):
            for name in names:
                del head[name]
        return f

    raw = open(half, "rb").read()
    for k, text in enumerate([b"", raw[:7], raw[:100], b"\xff" * 64, raw[:-1], (2**63).to_bytes(8, "little") + raw[8:],
                              raw[:8] + b"[" + raw[9:], raw[:8] + b"[" * (len(raw) - 8)]):
        open(path("broken.st"), "wb").write(text)
        refused(1, *d, "--resume", path("broken.st"), says=["broken.st"])
    for f, says in ((change("shape", [3, 2]), ["w", "[2,3]"]), (change("shape", [2]), ["w"]),
                    (change("shape", "x"), ["w"]), (change("shape", [2, -3]), ["w"]), (change("shape", [2, 3.5]), ["w"]), (change("dtype", "F64"), ["w", "F32"]),
                    (change("dtype", 3), ["w"]), (change("data_offsets", [0, 20]), ["w", "24 bytes"]),
                    (change("data_offsets", [1e18, 1e18 + 24]), ["w"]), (change("data_offsets", [24, 0]), ["w"]),
                    (change("data_offsets", [len(raw), len(raw) + 24]), ["w"]), (change("data_offsets", None), ["w"]),
                    (drop("w"), ["w", "missing"]), (drop("stat"), ["stat", "missing"]),
                    (lambda head: [1], ["header"])):
        refused(1, *d, "--resume", rewrite(half, "broken.st", f), says=says)
    refused(1, *d, "--resume", path("none.st"), says=["none.st"])
    p = run(*d, "--resume", rewrite(half, "weights.st", drop("optim.m.w", "__metadata__")), "--json")
    check("weights alone", p.returncode == 0 and "no optimizer state" in p.err and "no training state" in p.err
          and json.loads(p.out.splitlines()[-1])["steps"] == 12)
    refused(2, *d, "--save-every", "2", says=["--save"])
    refused(2, *d[:2], "--lr", "1,2", "--schedule", "linear", says=["--schedule"])
    refused(2, *d, "--schedule", "cubic", says=["cosine"])


def test_check_grad(data):
    p = run("--data", data, "--check-grad")
    check("check-grad", p.returncode == 0 and "2 of 2 parameters agree" in p.out, p.out + p.err)
    p = run("--data", data, "--check-grad", env={"TINY_WRONG": "1"})
    check("check-grad finds a wrong gradient", p.returncode == 1 and "WRONG" in p.out, p.out)


def main():
    global trainer
    exe = os.path.join(sys.argv[1], "tests", "core_tiny")
    trainer = exe
    refused(1, "--synthetic", says=["lost its weights"])
    trainer = with_payload(exe, W0.tobytes().ljust(64, b"\0") + B0.tobytes().ljust(64, b"\0"))
    rng = np.random.default_rng(1)
    x, t = rng.standard_normal((3, N, D)).astype(np.float32), rng.integers(0, C, (3, N))
    data, digest = test_training(x, t)
    data = npz("keep.npz", x=x.reshape(-1, D), target=t.reshape(-1))
    test_formats(x, t, digest)
    test_order(data)
    test_bad_data(x, t)
    test_usage(data)
    test_machine(data)
    test_bad_checkpoints(data, test_resume(data))
    test_check_grad(data)
    shutil.rmtree(tmp)
    print(f"{failed} failed" if failed else "ok")
    return failed > 0


sys.exit(main())
