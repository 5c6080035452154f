"""Names and paths that try to become code, markup or files."""
import json
import os

import numpy as np

from harness import Failed, mlp, npz, test

HOSTILE_NAMES = [
    '"; system("touch PWNED"); //', "*/ system(\"touch PWNED\"); /*", "a\nb\n#include </etc/passwd>\n", "\\", "\\\"",
    "%s%n%s%n", "??/\"; system(\"touch PWNED\"); //", "$(touch PWNED)", "`touch PWNED`", "'; touch PWNED; '",
    "\u202e\u0000x"[:1] + "name", "\x01\x1b[31m", "../../PWNED", "name with spaces", "int", "main", "é" * 300,
    "x" * 5000, "\r\n", "</script><script>", "\"}, {\"x\": \"", "__metadata__", "\t",
]


@test
def hostile_names(env):
    data = {"target": np.zeros((4,), np.int64)}
    for i in range(0, len(HOSTILE_NAMES), 4):
        names = (HOSTILE_NAMES[i:i + 4] + ["spare", "more", "extra"])[:4]
        x = "x"
        model = env.save(mlp((x, names[0], names[1], names[2], names[3])))
        trainer = env.compile(model, "--budget", "100%", "--emit", env.path("emitted"), "--loss",
                              "cross-entropy:class_axis=1", cwd=env.tmp)
        weights = env.path("w.safetensors")
        r = env.run(trainer, "--data", npz(env, x=np.ones((4, 4), np.float32), **data), "--steps", "2", "--lr", "0.1",
                    "--save", weights, "--log", env.path("log.jsonl"), "--json", cwd=env.tmp)
        if r.status:
            raise Failed(f"{names!r}: status {r.status}\n{r.err[-800:]}")
        json.loads(r.out.strip().splitlines()[-1])
        raw = open(weights, "rb").read()
        head = json.loads(raw[8:8 + int.from_bytes(raw[:8], "little")])
        missing = [n for n in names[:3] if n not in head or (n == "__metadata__" and "dtype" not in head[n])]
        if missing and missing != ["__metadata__"]:
            raise Failed(f"saved weights lack {missing!r}: {list(head)!r}")
        for line in open(env.path("log.jsonl"), encoding="utf-8"):
            json.loads(line)
        r = env.run(env.dtrc, "plan", model, "--budget", "100%", "--json", "-o", env.path("plan.json"), "--report",
                    env.path("plan.html"))
        if r.status:
            raise Failed(f"plan: {r.err}")
        json.load(open(env.path("plan.json"), encoding="utf-8"))
        if "<script><" in open(env.path("plan.html"), encoding="utf-8").read():
            raise Failed("a name gets into the report as markup")
        json.loads(env.run(env.dtrc, "inspect", model, "--json").out)
    for folder, _, files in os.walk(env.tmp):
        if any("PWNED" in f for f in files):
            raise Failed(f"a name was executed: {folder}")


@test
def names_that_are_no_text(env):
    """Bytes that are not UTF-8, NUL bytes: refused or quoted, never passed on."""
    data = mlp(names=("x", "WEIGHT_1", "b1", "w2", "y")).SerializeToString()
    for bad in (b"\xff\xfe\xfd\xfcHT_1", b"WE\0GHT_1", b"\xed\xa0\x80GHT_1", b"\x1b[31mT_1"):
        path = env.save(data.replace(b"WEIGHT_1", bad))
        r = env.refused(env.dtrc, path, "--budget", "100%", "-o", env.path("t"), status=(0, 1))
        if "\x1b" in r.err or "\x1b" in r.out:
            raise Failed("a control character reaches the terminal")
        if r.status == 0:
            r = env.run(env.dtrc, "inspect", path, "--json")
            json.loads(r.out)
            plan = env.path("plan.json")
            for args in (["plan", path, "--budget", "100%", "-o", plan], ["verify", path, plan]):
                r = env.run(env.dtrc, *args)
                if r.status:
                    raise Failed(f"{args[0]} ends with status {r.status}: {bad!r}\n{r.err[-800:]}")


@test
def hostile_paths(env):
    folder = env.path('a b"$(touch PWNED)`touch PWNED`;\'%s\n*/')
    os.makedirs(folder)
    model = os.path.join(folder, "m$(touch PWNED);.onnx")
    with open(model, "wb") as f:
        f.write(mlp().SerializeToString())
    trainer = os.path.join(folder, "t r&;.out")
    r = env.run(env.dtrc, model, "--budget", "100%", "-o", trainer, cwd=env.tmp,
                env={"TMPDIR": folder})
    if r.status or not os.access(trainer, os.X_OK):
        raise Failed(f"status {r.status}\n{r.err[-800:]}")
    emitted = os.path.join(folder, "em it")
    r = env.run(env.dtrc, model, "--budget", "100%", "--emit", emitted, cwd=env.tmp)
    if r.status:
        raise Failed(r.err)
    for where, _, files in os.walk(env.tmp):
        if "PWNED" in files:
            raise Failed(f"a path was executed in {where}")
    leftovers = [f for f in os.listdir(folder) if f.startswith("dtrc-")]
    if leftovers:
        raise Failed(f"left behind in TMPDIR: {leftovers}")
