"""Planning traces that are none, or that lie: refused in time and space, with the file in the message."""
import os
import random
import zlib

from harness import Failed, many, test

DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data", "planning")


def data(name):
    with open(os.path.join(DATA, name), "rb") as f:
        return f.read()


def refuse(env, name, content, says=()):
    path = env.save(content, name)
    env.refused(env.dtrc, "plan", path, "--budget", "100%", says=[name, *says])


def bomb(byte, mebibytes):
    """A gzip file of that many equal bytes; in pieces, since a large tester makes its children look large."""
    z = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(z.compress(byte * (1 << 20)) for _ in range(mebibytes)) + z.flush()


@test
def no_traces(env):
    for end in (".log", ".json", ".log.gz"):
        for i, content in enumerate((b"", b"this is no trace\n" * 50, bytes(4096), b"\xff" * 4096, b"\x1f\x8b", b"[]", b"{}")):
            refuse(env, f"case{i}{end}", content)
        os.mkfifo(env.path("pipe" + end))
        env.refused(env.dtrc, "plan", env.path("pipe" + end), "--budget", "100%", says="cannot read")
        env.refused(env.dtrc, "plan", env.path("absent" + end), "--budget", "100%", says="cannot read")
    env.refused(env.dtrc, os.path.join(DATA, "views.log"), "--budget", "100%", says="not compiled")
    own = env.save(data("views.log"), "own.log")
    env.refused(env.dtrc, "plan", own, "--emit-log", own, status=2, says="overwritten")


@test
def large_traces(env):
    constant = b'{"INSTRUCTION":"CONSTANT","NAME":"x"}\n{"INSTRUCTION":"MEMORY","MEMORY":"8"}\n'
    refuse(env, "bomb.log.gz", bomb(b"\n", 100), ["too large"])
    refuse(env, "bomb.json", bomb(b" ", 100), ["too large"])
    refuse(env, "deep.json", b'{"nodes":' + b"[" * 1000000, ["not JSON"])
    refuse(env, "wide.json", b'{"nodes":[' + b"0," * 2000000 + b'0],"links":[]}')
    refuse(env, "deep.log", b'{"INSTRUCTION":' + b"[" * 900000, ["line 1"])
    refuse(env, "long.log", constant + b'{"INSTRUCTION":"' + b"a" * 2000000 + b'"}', ["line 3"])
    refuse(env, "keys.log", b"{" + b'"a":1,' * 100000 + b'"INSTRUCTION":"CALL"}', ["line 1"])
    mutate = b'{"INSTRUCTION":"MUTATE","NAME":"m","ARGS":["x"],"MUTATE":[0],"TIME":"1"}\n'
    refuse(env, "names.log", constant + mutate * 5000, ["line 4098"])
    heavy = b'{"INSTRUCTION":"CONSTANT","NAME":"c%d"}\n{"INSTRUCTION":"MEMORY","MEMORY":"1099511627776"}\n'
    refuse(env, "heavy.log", b"".join(heavy % i for i in range(1100)), ["too large together", "line 2050"])


@test
def mangled_traces(env):
    rng = random.Random(9)
    jobs = []
    for name in ("views.log", "mutate.log", "diamond.json", "layered.json"):
        whole = data(name)
        for i in range(20 if env.sanitized else 50):
            bad = bytearray(whole)
            for _ in range(rng.choice((1, 1, 2, 4))):
                at, kind = rng.randrange(len(bad)), rng.randrange(4)
                if kind == 0:
                    bad[at] = rng.randrange(256)
                elif kind == 1:
                    del bad[at:at + rng.randrange(1, 60)]
                elif kind == 2:
                    bad[at:at] = bad[rng.randrange(len(bad)):][:rng.randrange(1, 90)]
                else:
                    bad[at:at + 1] = rng.choice((b"-", b"9" * 19, b'"', b"\\", b"\xed\xa0\x80", b"1e99", b"\\u0000"))
                if len(bad) < 2:
                    bad = bytearray(whole)
            jobs.append((env.dtrc, "plan", env.save(bytes(bad), f"{i}{name}"), "--budget", "100%"))
    many(env, jobs)


@test
def hostile_trace_names(env):
    """Names come back as they were in the plan, and without their control characters in messages."""
    name = "</script>\\u001b[2J\\\"\\\\$(id)é"
    log = ('{"INSTRUCTION":"CALL","NAME":"%s","ARGS":[],"RESULT":["%s"],"TIME":"5"}\n'
           '{"INSTRUCTION":"MEMORY","MEMORY":"8"}\n{"INSTRUCTION":"ALIAS","ALIAS":"-1"}\n' % (name, name)).encode()
    path, plan = env.save(log, "names.log"), env.path("plan.json")
    r = env.run(env.dtrc, "plan", path, "--budget", "100%", "-o", plan, "--explain", "--report", env.path("r.html"))
    if r.status or "\x1b" in r.out + r.err:
        raise Failed(f"status {r.status}\n{r.out}{r.err}")
    with open(env.path("r.html")) as f:
        if "</script>\\u001b" in f.read():
            raise Failed("a name is markup in the report")
    r = env.run(env.dtrc, "verify", path, plan)
    if r.status:
        raise Failed(f"verify: {r.err}")
    r = env.run(env.dtrc, "plan", env.save(log + log, "twice.log"), "--budget", "100%")
    if r.status != 1 or "\x1b" in r.err:
        raise Failed(f"status {r.status}\n{r.err}")
