#!/usr/bin/env python3
"""run_standin.py - the stand-ins find what they are made to find, and nothing else.

    run_standin.py skip REASON
    run_standin.py names FOLDER REAL-LIBRARIES... -- ARCHIVES...
    run_standin.py PROGRAM FOLDER CASE

PROGRAM is cudasim_program, FOLDER has the stand-ins. CASE is one of the functions below that begin
with case_, or a mistake of MISTAKES, which is made in both modes of the program. Status 0, 1 with what
was wrong, 77 when the program says that it cannot run here.
"""
import os
import re
import subprocess
import sys
import tempfile


FINDINGS, FAILED_CALL, SKIPPED = 86, 4, 77

# Mistake: (modes, what a finding must say; None: the result is wrong instead).
BOTH, GRAPH = ("plain", "graph"), ("graph",)
MISTAKES = {
    "no-wait-load": (BOTH, r"race: .*convolution.* reads .*cuMemcpyHtoDAsync"),
    "no-wait-reuse": (BOTH, r"race: cuMemcpyHtoDAsync .* writes .* (entropy|convolution)"),
    "no-wait-join": (BOTH, r"race.*bias_back"),
    "early-host": (BOTH, r"the host changed its pinned source"),
    "no-sync": (BOTH, None),
    "one-too-many": (BOTH, r"memory: sgd .* in no storage .*in step SGD"),
    "freed-buffer": (BOTH, r"relu_back.*freed buffer"),
    "leaked-memory": (BOTH, r"leak: device buffer"),
    "leaked-module": (BOTH, r"leak: 1 modules"),
    "double-free": (BOTH, r"cuMemFree: freed buffer .* is not the start of a living"),
    "small-ld": (BOTH, r"cublasSgemm: lda is less"),
    "large-ld": (BOTH, r"cublasSgemm: C .* writes .*(in no storage|dead since)"),
    "big-workspace": (BOTH, r"convolution: workspace .* writes"),
    "large-block": (BOTH, r"launch of bias_relu with a block beyond the limits"),
    "forgotten-workspace": (BOTH, r"the handle has no workspace"),
    "dead-storage": (BOTH, r"memory: relu_back .*dead since the end of storage hidden"),
    "unwritten-read": (BOTH, r"read before written: sgd .*step SGD"),
    "overlap": (BOTH, r"gradient of w1 becomes live at .* where logits is alive"),
    "undeclared-write": (BOTH, r"entropy .*step entropy does not write there"),
    "copy-past-end": (BOTH, r"cuMemcpyHtoDAsync: source: .* not inside a living buffer"),
    "tf32-product": (BOTH, None),
    "tf32-convolution": (BOTH, None),
    "capture-alloc": (GRAPH, r"cuMemAlloc.* not allowed during a capture"),
    "capture-sync": (GRAPH, r"the host cannot wait for work that is being captured"),
    "capture-pageable": (GRAPH, r"cuMemcpyHtoDAsync is not allowed during a capture"),
    "capture-unjoined": (GRAPH, r"work of a joined stream is not waited for"),
}


class Run:
    """One run of the program: its status, output, and the report of the stand-ins."""

    def __init__(self, program, folder, arguments=(), **environment):
        with tempfile.TemporaryDirectory() as temporary:
            report = os.path.join(temporary, "report")
            env = dict(os.environ, DTRC_SIM_REPORT=report)
            env.update({"DTRC_SIM_" + k.upper(): str(v) for k, v in environment.items()})
            done = subprocess.run([program, folder, *arguments], env=env, text=True, timeout=120,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.status, self.out, self.err = done.returncode, done.stdout, done.stderr
            self.report = open(report).read() if os.path.exists(report) else ""
        if self.status == SKIPPED:
            print(self.out.strip())
            sys.exit(SKIPPED)

    def number(self, name):
        return int(re.search(rf"^{name} (\d+)$", self.report, re.M)[1])

    def text(self):
        return f"status {self.status}\n{self.out}{self.err}{self.report}"


def expect(condition, what, run):
    if not condition:
        print(f"expected: {what}\n{run.text()}")
        sys.exit(1)


def is_clean(run):
    return run.status == 0 and "match, " in run.out and run.number("findings") == 0


def mistake(program, folder, name):
    modes, finding = MISTAKES[name]
    if finding and finding.startswith("race"):  # whatever the order was, work at once included
        for seed in (0, 2, 3, 4, 5):
            run = Run(program, folder, [name], seed=seed)
            expect(run.status == FINDINGS and re.search(finding, run.report), f"{name}, seed {seed}", run)
    for mode in modes:
        arguments = (["graph"] if mode == "graph" else []) + [name]
        run = Run(program, folder, arguments, check=1)
        if finding is None:
            expect(run.status == 1 and "MISMATCH" in run.out, f"{name}, {mode}: another result", run)
        else:
            expect(run.status == FINDINGS and re.search(finding, run.report),
                   f"{name}, {mode}: {finding}", run)


def case_clean(program, folder):
    """No mistake, no finding, the same bits in every order of streams, threads and blocks."""
    outputs = set()
    for mode in ([], ["graph"]):
        for seed in range(7):
            for check in (0, 1):
                run = Run(program, folder, mode, seed=seed, check=check)
                expect(is_clean(run), f"seed {seed} check {check} {mode}: no finding", run)
                outputs.add(run.out)
    expect(len(outputs) == 1, "the same losses in all runs", run)


def case_eager_hides(program, folder):
    """Why work runs late: at once (seed 0) the host reads the right losses without waiting."""
    expect(Run(program, folder, ["no-sync"], seed=0).status == 0, "eager: no difference", None)
    for seed in (1, 2):
        run = Run(program, folder, ["no-sync"], seed=seed)
        expect(run.status == 1 and "nan" in run.out, f"seed {seed}: NaN", run)


def case_unchecked(program, folder):
    """What is found without looking at every access: races, dead operands, use after free."""
    for name in ("no-wait-load", "no-wait-reuse", "no-wait-join", "freed-buffer", "large-ld"):
        run = Run(program, folder, [name])
        expect(run.status == FINDINGS, f"{name}, unchecked: findings", run)


def case_memory_cap(program, folder):
    """Less memory than the block needs: cuMemAlloc fails; just enough: it does not."""
    peak = Run(program, folder).number("peak")
    expect(is_clean(Run(program, folder, memory=peak)), "the peak is enough", None)
    run = Run(program, folder, memory=peak - 512 * 512)
    expect(run.status == FAILED_CALL and "gave 2" in run.err, "out of memory", run)


def case_capability(program, folder):
    """PTX for compute_80 does not load where the device is older."""
    run = Run(program, folder, cc=75)
    expect(run.status == FAILED_CALL and "gave 209" in run.err, "no binary for this device", run)
    expect(is_clean(Run(program, folder, cc=80)), "the same capability is enough", None)


def case_failures(program, folder):
    """Every function fails once, at its first and at a later call: the program ends with its own
    status and message, and not by a signal."""
    with tempfile.NamedTemporaryFile("r") as trace:
        Run(program, folder, ["graph"], trace=trace.name)
        names = [line.strip() for line in trace]
    count = {name: names.count(name) for name in names}
    run = Run(program, folder, ["graph"], fail=100)
    expect(f"planned failure of {names[99]}" in run.report, "the 100th call fails", run)
    expect(len(count) > 30, "a trace of the calls", Run(program, folder))
    for name, n in sorted(count.items()):
        for k in {1} if name == "cuInit" else {1, n}:  # NVRTC calls cuInit too, and does not mind
            run = Run(program, folder, ["graph"], fail=f"{name}:{k}")
            expect(f"planned failure of {name}" in run.report, f"{name}:{k} is called", run)
            expect(run.status == FAILED_CALL and run.number("findings") == 0,
                   f"{name}:{k}: status {FAILED_CALL}", run)


def exports(library):
    done = subprocess.run(["nm", "-D", "--defined-only", library], text=True, check=True,
                          stdout=subprocess.PIPE)
    return {line.split()[-1].split("@")[0] for line in done.stdout.splitlines()}


def names(folder, *rest):
    """Every function that the CUDA runtime names, for dlsym or in a message, is in NVIDIA's libraries,
    and in the stand-ins under this name or its second version's."""
    real, archives = rest[:rest.index("--")], rest[rest.index("--") + 1:]
    real = set().union(*map(exports, real))
    ours = set().union(*(exports(os.path.join(folder, f)) for f in os.listdir(folder)))
    named = set()
    for archive in archives:
        with tempfile.NamedTemporaryFile() as bare:  # debug information names types, too
            subprocess.run(["objcopy", "--strip-debug", archive, bare.name], check=True)
            text = open(bare.name, "rb").read()
        named |= set(re.findall(rb"\0((?:cu|cublas|cudnn)[A-Z][a-z][A-Za-z0-9_]*)(?=\0)", text))
    named = sorted(n.decode() for n in named)
    missing = [f"NVIDIA's libraries have no {n}" for n in named if n not in real]
    missing += [f"the stand-ins have no {n}" for n in named if not {n, n + "_v2"} & ours]
    print("\n".join(missing + [f"{len(named)} names"]))
    return 1 if missing or len(named) < 40 else 0


def main():
    if sys.argv[1] == "names":
        return names(*sys.argv[2:])
    if sys.argv[1] == "skip":
        print("skipped: " + sys.argv[2])
        return SKIPPED
    program, folder, case = sys.argv[1:]
    if case in MISTAKES:
        mistake(program, folder, case)
    else:
        globals()["case_" + case](program, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
