#!/bin/sh
# quickstart.sh - from a fresh checkout to a trained model: builds dtrc, makes a small digits classifier,
# compiles it for a budget that is too small to keep all activations, trains it, and measures the
# accuracy on held-out digits with a program that shares no code with dtrc.
#
#     sh models/quickstart.sh [BUDGET]        (default 60%: of the memory needed without recomputation)
#
# Exit status 1 when the accuracy is below 97 %.
set -eu
cd "$(dirname "$0")/.."
. tests/packages.sh
budget=${1:-60%}
out=models/build
python=/usr/bin/python3

# shellcheck disable=SC2086
need_packages $packages_build $packages_python
mkdir -p "$out"
echo "building dtrc ..."
{ cmake --preset release && cmake --build --preset release --target dtrc dtrt; } >"$out/build.log" 2>&1 || {
    tail -n 30 "$out/build.log"
    exit 1
}
"$python" models/make_digits.py "$out"

run() {
    echo "\$ $*" >&2
    "$@"
}
run build/release/bin/dtrc "$out/digits.onnx" --batch 50 --budget "$budget" --optimizer sgd:momentum=0.9 \
    -o "$out/digits"
run "$out/digits" --data "$out/digits_train.npz" --epochs 20 --lr 0.02 --seed 0 \
    --save "$out/digits.safetensors" --json >"$out/digits.out"
"$python" - "$out/digits.out" <<'PY'
import json, sys
s = json.loads(open(sys.argv[1]).read().strip().splitlines()[-1])
print(f"trained {s['steps']} steps of {s['step_ms']:.2f} ms; peak {s['peak_bytes']} bytes of a budget of "
      f"{s['budget_bytes']}; {s['recomputed_runs']} operations a step run twice")
if s["peak_bytes"] > s["budget_bytes"] or not s["recomputed_runs"]:
    sys.exit("the budget was not kept, or nothing was recomputed")
PY
run "$python" models/eval_digits.py "$out/digits.safetensors" "$out/digits_test.npz" --at-least 97
# Less memory than it was compiled for: the program makes a schedule of its own.
run "$out/digits" --data "$out/digits_train.npz" --epochs 1 --lr 0.02 --budget 840K
