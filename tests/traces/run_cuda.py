#!/usr/bin/python3
"""Trains the models of tests/data/traces compiled for the target cuda, on the stand-ins of NVIDIA's libraries
(tests/cudasim) or, with --gpu, on the GPU of this machine, and compares with the PyTorch run stored beside them.

    run_cuda.py --dtrc build/release/bin/dtrc --standins build/release/cudasim/lib [--full | --quick] [CASE...]
    run_cuda.py --dtrc build/release/bin/dtrc --gpu [CASE...]
    run_cuda.py --dtrc build/release/bin/dtrc {--standins FOLDER | --gpu} --twin build/release/cudasim/twin [CASE...]

For each case: the program of 100 % against PyTorch (check_trace.py has the tolerances), with its step captured and
replayed; then, with the same bits: enqueued node by node, and static at 50 % (or the smallest budget, where that is
higher).  For some cases, with --full for all: at 50 % with other orders of the streams and in hard mode, dynamic at as
much, and two steps with every access of every kernel checked.  The stand-ins end a program that does something wrong
with a status of their own.

With --twin only this: two steps in which every kernel runs on the GPU (or the stand-in of one) and, translated, on
the CPU, and leaves the same bits (tests/cudasim/standin/twin.c).

One line per case, then "N passed, N failed, N skipped".
"""
import os
import sys
import tempfile

from run_traces import Case, Failed, must_run, parser, run_all


# One of each kind of network.
DEEP = {"mlp_relu", "lenet_mnist", "mobilenetv2_mini", "unet_mini", "gpt_mini", "lstm_classifier", "groupnorm_cnn"}


class CudaCase(Case):
    def __init__(self, name, opt):
        super().__init__(name, opt)
        self.options = self.options[:-2] + ["--target", "cuda", "--gpu-arch", opt.arch]
        self.settings = []

    # Cases run side by side: what is set is set for the program, not for this process.
    def training(self, trainer):
        return self.settings + super().training(trainer)

    def in_order(self, trainer, budget, seed):
        self.settings = ["env", "DTRC_SIM_SEED=" + seed]
        try:
            return self.same_bits(trainer, budget)
        finally:
            self.settings = []

    def with_accesses_checked(self, trainer):
        t = self.trace
        command = self.training(trainer)
        command[command.index("--steps") + 1] = str(min(2, t["steps"]))
        env = ["env", "DTRC_SIM_CHECK=1"]
        must_run(env + command, self.opt.timeout)

    def beside_twin(self, trainer):
        command = self.training(trainer) + ["--graph", "off"]
        command[command.index("--steps") + 1] = str(min(2, self.trace["steps"]))
        env = ["env", "DTRT_CUDA_PATH=" + ":".join(filter(None, [self.opt.twin, os.environ.get("DTRT_CUDA_PATH")]))]
        if self.opt.standins:
            env.append("LD_LIBRARY_PATH=" + os.path.abspath(self.opt.standins))
        _, err = must_run(env + command, self.opt.timeout)
        self.note = next((line for line in err.splitlines() if "launches of" in line), "")
        if not self.note.endswith(" 0 differ"):
            raise Failed(self.note or "nothing was compared")

    def run_trace(self):
        plan = self.check("plan", self.plan, "static")
        if plan is None:
            return
        if self.opt.twin:
            trainer = self.check("compile", self.compile, "static", plan["min_budget_bytes"])
            if trainer:
                self.check("twin", self.beside_twin, trainer)
            return
        peak = plan["peak_without_budget_bytes"]
        budget = max(peak // 2, plan["min_budget_bytes"])
        whole = self.check("100 %", self.reference, peak)
        if whole is None or self.opt.smoke:
            return
        deep = not self.opt.quick and (self.opt.full or self.opt.gpu or self.name in DEEP)
        self.check("100 %, enqueued", self.same_bits, whole, peak, "--graph", "off")
        if deep and not self.opt.gpu:
            self.check("accesses", self.with_accesses_checked, whole)
        if self.opt.quick:
            return
        half = self.check("50 %", self.compile, "static", budget)
        if half is None:
            return
        s = self.check("50 %, captured", self.same_bits, half, budget)
        if s:
            self.note = f"peak {peak}, run at {budget} ({100 * budget // peak} %), {s['recomputed_runs']} runs again"
        if not deep:
            return
        self.check("50 %, hard mode", self.same_bits, half, budget, "--hard")
        for seed in [] if self.opt.gpu else ["0", "2", "7"]:
            self.check(f"50 %, order {seed} of the streams", self.in_order, half, budget, seed)
        low = self.check("dynamic, 1 byte", self.dynamic_refusal, whole, 1)
        if low:
            at = max(budget, low)
            self.check("dynamic", self.at_dynamic, whole, at, low)
            self.check("dynamic, enqueued", self.at_dynamic, whole, at, low, "--graph", "off")

    def run_dropout(self):
        plan = self.check("plan", self.plan, "static")
        if plan is None:
            return
        whole = self.check("compile", self.compile, "static", plan["peak_without_budget_bytes"])
        if whole is None:
            return
        done = [self.check(f"seed {i}", self.train, whole, None, "--seed", str(i)) for i in range(6)]
        if not all(done):
            return
        self.check("statistics", self.statistics, [s["losses"] for s, _, _ in done])
        self.want = (done[3][1], done[3][2], done[3][0]["losses"], done[3][0]["weights_sha256"])
        low = plan["min_budget_bytes"]
        small = self.check("compile", self.compile, "static", low)
        if small:
            self.check("seed 3, smallest", self.same_bits, small, low, "--seed", "3")


if __name__ == "__main__":
    arguments = parser("Trace tests of the target cuda.")
    where = arguments.add_mutually_exclusive_group(required=True)
    where.add_argument("--standins", help="folder of the stand-in libraries")
    where.add_argument("--gpu", action="store_true", help="run on the GPU of this machine")
    arguments.add_argument("--arch", help="as dtrc --gpu-arch (default sm_90; the stand-ins read PTX only: compute_90)")
    arguments.add_argument("--twin", help="folder of the libcuda that compares each kernel", type=os.path.abspath)
    options = arguments.parse_args()
    options.arch = options.arch or ("compute_90" if options.standins else "sm_90")
    if options.standins:
        os.environ["DTRT_CUDA_PATH"] = os.path.abspath(options.standins)
    with tempfile.TemporaryDirectory(prefix="dtrc-kernels-") as kernels:
        os.environ["DTRC_CACHE"] = kernels
        status = run_all(arguments, options, CudaCase)
    sys.exit(status)
