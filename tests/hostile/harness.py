"""What the hostile tests share: running a program with its time and memory measured, and small models."""
import concurrent.futures
import os
import resource
import signal
import subprocess
import tempfile
import time

import numpy as np
from onnx import TensorProto, helper, numpy_helper

TRACES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data", "traces")
SECONDS, MIB = 1.0, 256  # to refuse an input
TESTS = []


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


class Result:
    def __init__(self, status, out, err, seconds, rss):
        self.status, self.out, self.err, self.seconds, self.rss = status, out, err, seconds, rss


class Env:
    """Where the programs are, and a folder for the test at hand."""

    def __init__(self, opt):
        self.dtrc, self.sanitized = os.path.abspath(opt.dtrc), opt.sanitized
        self.tmp = tempfile.mkdtemp(prefix="dtrc-hostile-")

    def path(self, *names):
        return os.path.join(self.tmp, *names)

    def run(self, *cmd, limits=None, env=None, cwd=None, timeout=None):
        """Runs to the end; kills after a generous time, which is a failure."""
        limit = timeout or (120 if self.sanitized else 60)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            start = time.monotonic()
            p = subprocess.Popen(list(cmd), stdout=out, stderr=err, stdin=subprocess.DEVNULL, preexec_fn=limits,
                                 cwd=cwd, env=dict(os.environ, OMP_WAIT_POLICY="passive", **(env or {})))
            while True:
                pid, status, usage = os.wait4(p.pid, os.WNOHANG)
                if pid:
                    break
                if time.monotonic() - start > limit:
                    p.kill()
                    os.wait4(p.pid, 0)
                    p.returncode = -9
                    raise Failed(f"no end after {limit} s: {' '.join(map(repr, cmd))}")
                time.sleep(0.002)
            p.returncode = os.waitstatus_to_exitcode(status)
            seconds = usage.ru_utime + usage.ru_stime  # of the processor: others may be busy too
            out.seek(0)
            err.seek(0)
            r = Result(p.returncode, out.read().decode(errors="replace"), err.read().decode(errors="replace"), seconds,
                       usage.ru_maxrss / 1024)
        if r.status < 0:
            raise Failed(f"killed by signal {-r.status}: {' '.join(map(repr, cmd))}\n{r.err[-800:]}")
        for word in ("Sanitizer", "runtime error:"):
            if word in r.err:
                raise Failed(f"{' '.join(map(repr, cmd))}\n{r.err[-3000:]}")
        return r

    def refused(self, *cmd, status=1, says=(), **more):
        """The program must end with `status`, quickly, small, and say what is wrong."""
        r = self.run(*cmd, **more)
        what = " ".join(map(repr, cmd))
        wanted = status if isinstance(status, tuple) else (status,)
        if r.status not in wanted:
            raise Failed(f"exit status {r.status}, expected {status}: {what}\n{r.err[-800:]}")
        if r.status and "error" not in r.err:
            raise Failed(f"status {r.status} without an error message: {what}\n{r.err[-800:]}")
        for word in [says] if isinstance(says, str) else says:
            if word not in r.err:
                raise Failed(f"the message does not say '{word}': {what}\n{r.err[-800:]}")
        if not self.sanitized and r.status in (1, 2, 3) and (r.seconds > SECONDS or r.rss > MIB):
            raise Failed(f"{r.seconds:.2f} s and {r.rss:.0f} MiB to refuse: {what}")
        return r

    def save(self, model, name="model.onnx"):
        path = self.path(name)
        with open(path, "wb") as f:
            f.write(model if isinstance(model, bytes) else model.SerializeToString())
        return path

    def plan_refused(self, model, says=(), status=1):
        """A model that dtrc must refuse."""
        path = model if isinstance(model, str) else self.save(model)
        return self.refused(self.dtrc, "plan", path, "--budget", "100%", status=status, says=says)

    def all_refused(self, cases):
        """cases: names and models."""
        for name, model in cases.items():
            try:
                self.plan_refused(self.save(model, name.replace(" ", "_") + ".onnx"))
            except Failed as e:
                raise Failed(f"{name}: {e}")

    def compile(self, path, *options, out="trainer", **more):
        out = self.path(out)
        r = self.run(self.dtrc, path, "-o", out, "--threads", "1", *options, **more)
        if r.status:
            raise Failed(f"did not compile (status {r.status}):\n{r.err[-2000:]}")
        return out


def test(fn):
    TESTS.append(fn)
    return fn


def file_limit(size):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def many(env, jobs):
    """Runs jobs (argument lists for `refused`) on two threads."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for f in [pool.submit(env.refused, *j, status=(0, 1)) for j in jobs]:
            f.result()


# ---- models and data ----------------------------------------------------------------------------

def mlp(names=("x", "w1", "b1", "w2", "y"), widths=(4, 8, 3)):
    """x [N,4] -> Gemm -> Relu -> MatMul -> y; the names are given."""
    x, w1, b1, w2, y = names
    rng = np.random.RandomState(7)
    a, b, c = widths
    init = [numpy_helper.from_array(rng.randn(a, b).astype(np.float32), w1),
            numpy_helper.from_array(np.zeros(b, np.float32), b1),
            numpy_helper.from_array(rng.randn(b, c).astype(np.float32), w2)]
    nodes = [helper.make_node("Gemm", [x, w1, b1], [y + "_h"], name=y + "_gemm"),
             helper.make_node("Relu", [y + "_h"], [y + "_r"], name=y + "_relu"),
             helper.make_node("MatMul", [y + "_r", w2], [y], name=y + "_mm")]
    return build(nodes, [(x, [2, a])], [(y, [2, c])], init)


def build(nodes, inputs, outputs, init=(), opset=13):
    def info(n, s):
        return helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
    g = helper.make_graph(nodes, "g", [info(*i) for i in inputs], [info(*o) for o in outputs], list(init))
    m = helper.make_model(g, opset_imports=[helper.make_opsetid("", opset)])
    m.ir_version = 8
    return m


def one_node(op, inputs, constants, **attributes):
    """A trainable weight times the output of one node, so that the node matters."""
    init = [numpy_helper.from_array(v, k) for k, v in constants.items()]
    init.append(numpy_helper.from_array(np.ones((1,), np.float32), "w"))
    nodes = [helper.make_node(op, inputs, ["t"], **attributes), helper.make_node("Mul", ["t", "w"], ["y"])]
    return build(nodes, [("x", [2, 4])], [("y", ["a", "b"])], init)


def trace_model(name):
    return open(os.path.join(TRACES, name, "model.onnx"), "rb").read()


def npz(env, name="data.npz", **arrays):
    path = env.path(name)
    np.savez(path, **arrays)
    return path
