"""The command lines of dtrc and of a trainer: wrong options, wrong data, full disks, a kill while saving."""
import json
import os
import random
import signal
import stat
import subprocess
import time

import numpy as np
from onnx import helper

from harness import TRACES, Failed, Skipped, file_limit, mlp, npz, test


@test
def usage(env):
    m = env.save(mlp())
    for args in (["--budget", "x"], ["--budget", ""], ["--budget", "-1"], ["--budget", "10Q"], ["--budget", "nan"],
                 ["--budget", "99999999999999999999G"], ["--budget", "-5%"], ["--budget"], ["--batch", "0"],
                 ["--batch", "-1"], ["--batch", "x"], ["--dim", "N"], ["--loss", "nonsense"],
                 ["--loss", "cross-entropy:nokey=1"], ["--loss", "cross-entropy:label_smoothing=7"],
                 ["--optimizer", "magic"], ["--optimizer", "sgd:momentum=x"], ["--optimizer", "adam:betas=0.9"],
                 ["--planner", "best"], ["--effort", "9"], ["--target", "tpu"], ["--init", "zero"], ["--nope"],
                 ["--threads", "0"], ["--gpu-arch", "80"], ["--gpu-arch", "compute_"], ["--gpu-arch", "sm_80,"],
                 ["--gpu-arch", ""], ["--math", "f16"], ["--target", "cuda", "--threads", "2"], ["--gpu-arch", "sm_90"],
                 ["--math", "tf32"], ["--target", "null", "--gpu-arch", "sm_90"], ["second.onnx"], ["-s", "never"]):
        # Last, so that an option without its value is the last word.
        env.refused(env.dtrc, m, "-o", env.path("t"), *args, status=2)
    env.refused(env.dtrc, m, "--freeze", "no_such_*", "--budget", "100%", "-o", env.path("t"), status=(1, 2),
                says="no_such_*")
    env.refused(env.dtrc, m, "--loss", "cross-entropy:output=absent", "--budget", "100%", "-o", env.path("t"),
                status=(1, 2), says="absent")
    env.refused(env.dtrc, m, "--budget", "1K", "-o", env.path("t"), status=3)
    if os.path.exists(env.path("t")):
        raise Failed("a trainer was written after an error")
    model = open(m, "rb").read()
    os.symlink(m, env.path("link"))
    for verb in ([], ["plan"]):
        for out in (m, env.path("link")):
            env.refused(env.dtrc, *verb, m, "--budget", "100%", "-o", out, status=2, says="is the model")
            if open(m, "rb").read() != model:
                raise Failed(f"the model was overwritten: -o {out}")


@test
def cuda_without_driver(env):
    """A program for a GPU starts on a machine without one, and says what is missing."""
    m, out = env.save(mlp()), env.path("t")
    r = env.run(env.dtrc, m, "--target", "cuda", "--gpu-arch", "sm_80", "--budget", "100%", "-o", out)
    if r.status == 4 and ("built without" in r.err or "libnvrtc" in r.err):
        raise Skipped("dtrc has no target cuda, or no NVRTC, here")
    if r.status:
        raise Failed(f"status {r.status}: {r.err}")
    r = env.run(out, "--synthetic", "--steps", "1")
    if r.status == 0:
        raise Skipped("there is a GPU")
    if r.status != 4 or "libcuda" not in r.err and "GPU" not in r.err:
        raise Failed(f"status {r.status}: {r.err}")


@test
def cudnn_too_old(env):
    """Convolutions are planned all the same, but not without a word."""
    with open(env.path("old.c"), "w") as f:
        f.write("unsigned long cudnnGetVersion(void) { return 80900; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", env.path("old.c"), "-o", env.path("libcudnn.so.9")], check=True)
    model = os.path.join(TRACES, "lenet_mnist", "model.onnx")
    old = {"DTRT_CUDA_PATH": env.tmp}
    r = env.run(env.dtrc, "plan", model, "--batch", "4", "--budget", "100%", "--target", "cuda", env=old)
    if r.status or "cuDNN 9 cannot be asked" not in r.err:
        raise Failed(f"status {r.status}, nothing was said of the library: {r.err}")
    r = env.run(env.dtrc, "plan", env.save(mlp()), "--budget", "100%", "--target", "cuda", env=old)
    if r.status or r.err:
        raise Failed(f"without convolutions there is nothing to say: status {r.status}, {r.err}")


@test
def dtrc_machine_faults(env):
    m = env.save(mlp())
    os.makedirs(env.path("tmp"))
    old = env.path("trainer")
    open(old, "w").write("old")
    for args, more in ((["-o", env.path("no", "such", "folder", "t")], {}), (["-o", env.tmp], {}),
                       (["-o", old], {"env": {"CC": "/bin/false"}}), (["-o", old], {"env": {"CC": "no-such-compiler"}}),
                       (["-o", old], {"env": {"TMPDIR": "/no/such/folder"}}),
                       (["-o", old], {"limits": lambda: file_limit(20000)})):
        more["env"] = {"TMPDIR": env.path("tmp"), **more.get("env", {})}
        env.refused(env.dtrc, m, "--budget", "100%", *args, status=4, **more)
        if os.listdir(env.path("tmp")):
            raise Failed(f"left behind in TMPDIR: {os.listdir(env.path('tmp'))} ({args} {more})")
        if open(old).read() != "old":
            raise Failed(f"an older trainer was damaged: {args} {more}")
    r = env.run("/bin/sh", "-c", f"'{env.dtrc}' ops >/dev/full")
    if r.status != 4:
        raise Failed(f"output to a full device: status {r.status}, expected 4")


@test
def wrong_data(env):
    trainer = env.compile(env.save(mlp()), "--budget", "100%")
    x, t = np.ones((6, 4), np.float32), np.zeros((6,), np.int64)

    def refuse(path, *says, status=1, more=()):
        saved = env.path("never.safetensors")
        env.refused(trainer, "--data", path, "--epochs", "1", "--lr", "0.1", "--save", saved, *more, status=status, says=says)
        if os.path.exists(saved):
            raise Failed(f"weights were saved after an error in the data: {says}")
    ok = env.run(trainer, "--data", npz(env, x=x, target=t), "--epochs", "1", "--lr", "0.1")
    if ok.status:
        raise Failed(f"good data is refused: {ok.err}")
    refuse(env.path("absent.npz"), "absent.npz")
    refuse(env.tmp)
    refuse(npz(env, x=x), "target")
    refuse(npz(env, target=t), "x")
    refuse(npz(env, x=np.ones((6, 5), np.float32), target=t), "4", "5")
    refuse(npz(env, x=np.ones((6, 4, 1), np.float32), target=t), "x")
    refuse(npz(env, x=np.ones((4,), np.float32), target=t), "x")
    refuse(npz(env, x=x, target=np.zeros((5,), np.int64)), "5", "6")
    refuse(npz(env, x=x, target=np.zeros((6, 2), np.int64)), "target")
    refuse(npz(env, x=x, target=t + 3), "3", "target")
    refuse(npz(env, x=x, target=t - 1), "-1", "target")
    refuse(npz(env, x=x.astype(complex), target=t), "x")
    refuse(npz(env, x=np.array([[object()] * 4] * 6), target=t), "x")
    refuse(npz(env, x=np.array([["a"] * 4] * 6), target=t), "x")
    refuse(npz(env, x=x, target=np.zeros((6,), np.float32) + 0.5), "target")
    refuse(npz(env, x=x[:1], target=t[:1]), "1")
    refuse(npz(env, x=x[:0], target=t[:0]))
    good = open(npz(env, x=x, target=t), "rb").read()
    rng = random.Random(5)
    for i in range(10):
        refuse(env.save(good[:len(good) * i // 10], "cut.npz"))
    for i in range(60):
        bad = bytearray(good)
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        env.refused(trainer, "--data", env.save(bytes(bad), "flip.npz"), "--epochs", "1", "--lr", "0.1",
                    status=(0, 1, 5)) # 5: the flip made a number infinite
    head = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little")
    for text in ("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999, 4), }",
                 "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4), }", "{'descr': '|O', 'shape': ((((((",
                 "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }", "{" * 117):
        refuse(env.save(head + text.ljust(117).encode() + b"\n" + bytes(96), "x.npy"))


@test
def training_that_diverges(env):
    trainer = env.compile(env.save(mlp()), "--budget", "100%", "--loss", "mse")
    data = npz(env, x=np.full((6, 4), 1e30, np.float32), target=np.zeros((6, 3), np.float32))
    saved = env.path("w.safetensors")
    open(saved, "w").write("old")
    r = env.refused(trainer, "--data", data, "--steps", "3", "--lr", "1e30", "--save", saved, status=5)
    if not any(n in r.err for n in ("y_gemm", "y_relu", "y_mm", "loss", "'y'", "grad")):
        raise Failed(f"no node is named:\n{r.err}")
    if open(saved).read() != "old":
        raise Failed("diverged weights replaced the older file")


@test
def gradient_of_a_weight_without_one(env):
    """--save-grads writes zeros for a weight that the loss does not depend on."""
    m = mlp()
    m.graph.node[0].attribute.append(helper.make_attribute("beta", 0.0))
    trainer = env.compile(env.save(m))
    data = npz(env, x=np.ones((2, 4), np.float32), target=np.zeros(2, np.int64))
    r = env.run(trainer, "--data", data, "--steps", "1", "--save-grads", env.path("g"))
    if r.status:
        raise Failed(f"status {r.status}: {r.err}")
    raw = open(env.path("g"), "rb").read()
    n = int.from_bytes(raw[:8], "little")
    entry = json.loads(raw[8:8 + n])["b1"]
    low, high = (8 + n + x for x in entry["data_offsets"])
    if entry["shape"] != [8] or raw[low:high] != bytes(32):
        raise Failed(f"the gradient of b1: {entry}, {raw[low:high].hex()}")


@test
def trainer_usage(env):
    trainer = env.compile(env.save(mlp()), "--budget", "100%")
    data = npz(env, x=np.ones((6, 4), np.float32), target=np.zeros((6,), np.int64))
    for args in (["--nope"], ["--data", data], ["--data", data, "--steps", "-1"], ["--data", data, "--steps", "x"],
                 ["--data", data, "--steps", "1", "--lr", "fast"], ["--steps", "1"], ["--data"],
                 ["--data", data, "--steps", "1", "--epochs", "1"]):
        r = env.run(trainer, *args)
        if r.status not in (0, 2) or (r.status and not r.err):
            raise Failed(f"{args}: status {r.status}\n{r.err}")
        if r.status == 0 and args != ["--data", data]:
            raise Failed(f"{args}: accepted")
    os.symlink(data, env.path("link"))
    old = open(data, "rb").read()
    for args in (["--save", data], ["--log", env.path("link")], ["--export", trainer], ["--save", "a", "--export", "a"]):
        env.refused(trainer, "--data", data, "--steps", "1", *args, status=2, says="would overwrite")
    if open(data, "rb").read() != old:
        raise Failed("the data was overwritten")


def whole(path):
    """A complete safetensors file: header, and bytes for every tensor."""
    raw = open(path, "rb").read()
    n = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8:8 + n])
    end = max(e["data_offsets"][1] for k, e in head.items() if k != "__metadata__")
    if len(raw) != 8 + n + end:
        raise Failed(f"{path}: {len(raw)} bytes, the header says {8 + n + end}")
    return raw


def saver(env, widths=(4, 8, 3)):
    trainer = env.compile(env.save(mlp(widths=widths)), "--budget", "100%")
    data = npz(env, x=np.ones((8, widths[0]), np.float32), target=np.zeros((8,), np.int64))
    return [trainer, "--data", data, "--lr", "0.01"]


@test
def save_on_full_disk(env):
    cmd = saver(env, (64, 256, 3))
    good = env.path("good.safetensors")
    if env.run(*cmd, "--steps", "1", "--save", good).status:
        raise Failed("does not save")
    old = whole(good)
    # A limit on the size of files stops the write in the middle, as a full disk does.
    env.refused(*cmd, "--steps", "3", "--save", good, status=4, limits=lambda: file_limit(10000), says="good.safetensors")
    if whole(good) != old:
        raise Failed("the older file was damaged")
    left = [f for f in os.listdir(env.tmp) if f.startswith("good.safetensors") and f != "good.safetensors"]
    left += [f for f in os.listdir(env.tmp) if ".tmp" in f]
    if left:
        raise Failed(f"left behind: {left}")


@test
def save_on_full_tmpfs(env):
    if os.getuid() != 0:
        raise Skipped("needs root")
    disk = env.path("disk")
    os.makedirs(disk)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", disk], stderr=subprocess.DEVNULL).returncode:
        raise Skipped("cannot mount a tmpfs")
    try:
        cmd = saver(env, (64, 256, 3)) # 69 KB of weights and as much momentum: one copy fits, two do not
        good = os.path.join(disk, "w.safetensors")
        if env.run(*cmd, "--steps", "1", "--save", good).status:
            raise Failed("does not save")
        old = whole(good)
        env.refused(*cmd, "--steps", "3", "--save", good, status=4, says="w.safetensors")
        if whole(good) != old or os.listdir(disk) != ["w.safetensors"]:
            raise Failed(f"the older file was damaged, or something was left: {os.listdir(disk)}")
        env.refused(env.dtrc, env.save(mlp()), "--budget", "100%", "-o", os.path.join(disk, "trainer"), status=4)
        if os.listdir(disk) != ["w.safetensors"]:
            raise Failed(f"dtrc left a part of a trainer: {os.listdir(disk)}")
    finally:
        subprocess.run(["umount", disk], check=False)


@test
def save_into_nowhere(env):
    cmd = saver(env)
    for path in (env.path("no", "folder", "w.safetensors"), env.tmp):
        env.refused(*cmd, "--steps", "1", "--save", path, status=4)
    if os.getuid() == 0:
        # Root may write anywhere: give up the rights first.
        def give_up():
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
    else:
        def give_up():
            pass
    locked = env.path("locked")
    os.makedirs(locked)
    saved = os.path.join(locked, "w.safetensors")
    open(saved, "w").write("old")
    os.chmod(locked, stat.S_IRUSR | stat.S_IXUSR | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
    for folder in (env.tmp,):
        os.chmod(folder, 0o755)
    env.refused(*cmd, "--steps", "1", "--save", saved, status=4, limits=give_up)
    if open(saved).read() != "old":
        raise Failed("the older file was damaged")


@test
def killed_while_saving(env):
    cmd = saver(env, (256, 2048, 3)) # 2 MB of weights
    saved = env.path("w.safetensors")
    if env.run(*cmd, "--steps", "1", "--save", saved).status:
        raise Failed("does not save")
    start = time.monotonic()
    if env.run(*cmd, "--steps", "20", "--save", saved).status:
        raise Failed("does not save")
    seconds = time.monotonic() - start
    rng = random.Random(6)
    killed = 0
    for i in range(40):
        p = subprocess.Popen([*cmd, "--steps", "20", "--seed", str(i), "--save", saved], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
        # Most of them near the end, where the file is written.
        time.sleep(seconds * (rng.uniform(0.5, 1.05) if i % 4 else rng.uniform(0, 0.5)))
        p.kill()
        killed += p.wait() == -signal.SIGKILL
        whole(saved)
    if killed < 10:
        raise Failed(f"only {killed} of 40 were killed in time")
