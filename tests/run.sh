#!/bin/sh
# run.sh - everything that is checked, in one command, on a fresh Debian 12:
#
#     sh tests/run.sh [PART...]
#
# Without arguments all parts run, cheap ones first. Parts:
#   build     configure and build the release preset
#   unit      unit tests of the release build (ctest)
#   includes  include directions between rooms
#   format    clang-format
#   traces    train the models in tests/data/traces at several budgets, compare with PyTorch
#   graphs    compile and train every graph in ../shared/graphs at half its memory (half an hour; only when asked for)
#   sizes     programs at other sizes than they were compiled for
#   cuda      the same for the target cuda, on stand-ins of NVIDIA's libraries (cuda-traces); failures of their calls
#             (cuda-programs)
#   ops       operator tests of ONNX (libonnx-testdata), forward
#   hostile   broken models, hostile names, full disks, killed programs, wrong data
#   export    the models that trainers write
#   failures  every few allocations of a trainer fail in turn; too little free memory
#   planbench plans for ../shared/planbench and random logs, replayed by its score.py
#   report    pages of dtrc plan and dtrc compare in headless Chromium (skipped where it does not run)
#   install   install to a folder, compile and train from there
#   dev       the same unit tests, some traces and the hostile tests under ASan and UBSan
#   fuzz      each fuzz target for FUZZ_SECONDS (default 10)
#   fast      build, unit, includes, format
# Missing Debian packages are installed when root, else listed. Logs: build/logs. The last line sums up:
# "N passed, N failed, N skipped"; the exit status is 1 when anything failed.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/packages.sh
python=/usr/bin/python3
logs=build/logs
jobs=$(nproc 2>/dev/null || echo 2)
passed=0 failed=0 skipped=0

say() { printf '%s\n' "$*"; }

# count NAME P F S: adds to the sum and prints a line for the part.
count() {
    passed=$((passed + $2)) failed=$((failed + $3)) skipped=$((skipped + $4))
    say "$(printf '%-18s' "$1") $2 passed, $3 failed, $4 skipped  ($(($(date +%s) - started)) s)"
}

# step NAME COMMAND...: one check; its output goes to a log that is shown when it fails. Status 77: skipped.
step() {
    name=$1
    shift
    started=$(date +%s)
    "$@" >"$logs/$name.log" 2>&1
    status=$?
    case $status in
    0) count "$name" 1 0 0 ;;
    77) count "$name" 0 0 1 ;;
    *)
        tail -n 40 "$logs/$name.log"
        say "(all of it: $logs/$name.log)"
        count "$name" 0 1 0
        ;;
    esac
    return $status
}

# suite NAME COMMAND...: many checks; the last line of the output says how many passed.
suite() {
    name=$1
    shift
    started=$(date +%s)
    "$@" >"$logs/$name.log" 2>&1
    status=$?
    last=$(tail -n 1 "$logs/$name.log")
    # shellcheck disable=SC2046
    set -- $(printf '%s\n' "$last" | sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p')
    if [ $# -ne 3 ]; then
        tail -n 40 "$logs/$name.log"
        say "$name ended early (status $status): $logs/$name.log"
        set -- 0 1 0
    elif [ "$2" -ne 0 ]; then
        grep -E '^ *FAIL|failed' "$logs/$name.log" | head -n 60
        say "(all of it: $logs/$name.log)"
    elif [ "$status" -ne 0 ]; then
        say "$name: exit status $status although nothing failed: $logs/$name.log"
        set -- "$1" 1 "$3"
    fi
    count "$name" "$1" "$2" "$3"
}

# beside "PART..." "PART...": two lists of parts at once, of suites that use one processor each.
beside() {
    rm -f "$logs/beside.sum"
    (
        passed=0 failed=0 skipped=0
        for p in $1; do part "$p"; done
        echo "passed=\$((passed + $passed)) failed=\$((failed + $failed)) skipped=\$((skipped + $skipped))" >"$logs/beside.sum"
    ) >"$logs/beside.txt" 2>&1 &
    other=$!
    for p in $2; do part "$p"; done
    wait $other
    cat "$logs/beside.txt"
    if [ -f "$logs/beside.sum" ]; then
        . "$logs/beside.sum"
    else
        say "ended early: $1"
        failed=$((failed + 1))
    fi
}

# ctest, with its summary in our form.
unit_tests() {
    ctest --test-dir "build/$1" -E "${2:-^$}" -j "$jobs" --output-on-failure --timeout 300 --no-tests=error >"$logs/ctest-$1.txt" 2>&1
    cat "$logs/ctest-$1.txt"
    p=$(grep -cE '^ *[0-9]+/[0-9]+ Test .* Passed ' "$logs/ctest-$1.txt")
    s=$(grep -cE '^ *[0-9]+/[0-9]+ Test .*\*\*\*Skipped ' "$logs/ctest-$1.txt")
    all=$(grep -cE '^ *[0-9]+/[0-9]+ Test ' "$logs/ctest-$1.txt")
    [ "$all" -eq 0 ] && echo "FAIL ctest ran no tests"
    [ "$all" -eq 0 ] && all=1
    say "$p passed, $((all - p - s)) failed, $s skipped"
}

# build PRESET [TARGET...]
build() {
    preset=$1
    shift
    cmake --preset "$preset" && cmake --build --preset "$preset" -j "$jobs" ${1:+--target "$@"}
}

no_warnings() {
    ! grep -E 'warning:' "$logs/build-$1.log"
}

# A part that needs a build makes it once; when that fails, so does the run.
built=
need_build() {
    case " $built " in *" $1 "*) return 0 ;; esac
    if step "build-$1" build "$1"; then
        built="$built $1"
        step "warnings-$1" no_warnings "$1"
        return 0
    fi
    finish
}

installed_trainer() {
    prefix=$PWD/build/installed
    rm -rf "$prefix"
    cmake --install build/release --prefix "$prefix" &&
        "$python" tests/traces/run_traces.py --dtrc "$prefix/bin/dtrc" --smoke mlp_relu &&
        test -s "$prefix/share/man/man1/dtrc.1"
}

fuzzers="fuzz_onnx fuzz_ir fuzz_plan fuzz_trace fuzz_data"

# Small valid inputs to start from.
fuzz_seeds() {
    dir=$1
    rm -rf "$dir"
    for target in $fuzzers; do mkdir -p "$dir/$target"; done
    dtrc=build/release/bin/dtrc
    for case in mlp_relu multi_input label_smoothing_ce dropout_stats adamw_decay; do
        from=tests/data/traces/$case
        cp "$from/model.onnx" "$dir/fuzz_onnx/$case"
        cp "$from/data.npz" "$dir/fuzz_data/$case"
        for stage in import fuse; do
            "$dtrc" "$from/model.onnx" --batch 2 -d $stage -s $stage >"$dir/fuzz_ir/$case-$stage" || return 1
        done
    done
    for case in tests/simplify/cases/*.in; do cp "$case" "$dir/fuzz_ir/$(basename "$case" .in)"; done
    # Operators with many attributes, from the operator tests where they are installed.
    for case in resize_upsample_sizes_cubic resize_tf_crop_and_resize einsum_batch_matmul scatternd_add \
        gathernd_example_int32_batch_dim1 scatter_elements_with_axis top_k onehot_with_axis tile maxunpool_export_with_output_shape \
        lrn depthtospace_crd_mode cumsum_2d_axis_0 compress_0 lstm_with_peepholes convtranspose_output_shape \
        bitshift_left_uint8 maxpool_with_argmax_2d_precomputed_strides; do
        from=/usr/share/libonnx-testdata/data/node/test_$case/model.onnx
        [ ! -f "$from" ] || cp "$from" "$dir/fuzz_onnx/op-$case"
    done
    cp tests/data/planning/*.log tests/data/planning/*.json "$dir/fuzz_trace"
    gzip -c tests/data/planning/views.log >"$dir/fuzz_trace/views.log.gz"
    for planner in none dtr static; do
        "$dtrc" plan tests/fuzz/step.ir --budget 100% --threads 1 --planner $planner -o "$dir/fuzz_plan/$planner" || return 1
    done
}

fuzz() {
    need_packages $packages_fuzz && build fuzz $fuzzers && fuzz_seeds build/fuzz/seeds || return 1
    found=0 bad=0
    for fuzzer in $fuzzers; do
        target=build/fuzz/tests/$fuzzer
        found=$((found + 1))
        corpus=build/fuzz/corpus/$fuzzer
        mkdir -p "$corpus"
        # Messages about broken input are not of interest: stdout and stderr of the target are closed.
        if timeout 300 "$target" -max_total_time="${FUZZ_SECONDS:-10}" -timeout=10 -rss_limit_mb=1024 -close_fd_mask=3 \
            -artifact_prefix="$corpus-" "$corpus" "build/fuzz/seeds/$fuzzer" >"$logs/$fuzzer.log" 2>&1; then
            echo "pass $fuzzer: $(tail -n 1 "$logs/$fuzzer.log")"
        else
            echo "FAIL $fuzzer: $logs/$fuzzer.log"
            tail -n 30 "$logs/$fuzzer.log"
            bad=$((bad + 1))
        fi
    done
    say "$((found - bad)) passed, $bad failed, 0 skipped"
}

has_standins() {
    [ -f build/release/cudasim/lib/libcuda.so.1 ] && return 0
    step "$1" sh -c 'echo "the headers of CUDA and cuDNN 9 are not installed"; exit 77'
    return 1
}

part() {
    case $1 in
    build) need_build release ;;
    unit) need_build release && suite unit unit_tests release ;;
    includes)
        step includes sh tests/check_includes.sh
        step includes-selftest sh tests/check_includes.sh --self-test
        ;;
    format) step format sh tests/check_format.sh ;;
    traces) need_build release && suite traces "$python" tests/traces/run_traces.py --dtrc build/release/bin/dtrc ;;
    cuda) part cuda-traces && part cuda-programs ;;
    cuda-traces)
        need_build release
        if has_standins cuda-traces; then
            suite cuda-traces "$python" tests/traces/run_cuda.py --dtrc build/release/bin/dtrc \
                --standins build/release/cudasim/lib
        fi
        ;;
    cuda-programs)
        need_build release
        if has_standins cuda-programs; then
            suite cuda-programs "$python" tests/cudasim/run_programs.py --dtrc build/release/bin/dtrc \
                --standins build/release/cudasim/lib --graphs ../shared/graphs
        fi
        ;;
    graphs)
        need_build release
        suite graphs "$python" tests/traces/run_graphs.py --dtrc build/release/bin/dtrc
        ;;
    ops)
        need_build release
        suite onnx-ops "$python" tests/onnx_ops/run_onnx_ops.py --dtrc build/release/bin/dtrc --at-least 900
        suite onnx-later "$python" tests/onnx_ops/later_ops.py --dtrc build/release/bin/dtrc
        suite onnx-listed "$python" tests/onnx_ops/listed_ops.py --dtrc build/release/bin/dtrc
        suite onnx-joined "$python" tests/onnx_ops/joined_ops.py --dtrc build/release/bin/dtrc
        ;;
    hostile)
        need_build release
        suite hostile "$python" tests/hostile/run_hostile.py --dtrc build/release/bin/dtrc
        ;;
    export)
        need_build release
        suite export "$python" tests/export/run_export.py --dtrc build/release/bin/dtrc
        ;;
    failures)
        need_build release
        suite failures "$python" tests/core/run_failures.py --dtrc build/release/bin/dtrc
        ;;
    sizes)
        need_build release
        suite sizes "$python" tests/sizes/run_sizes.py --dtrc build/release/bin/dtrc
        ;;
    planbench)
        need_build release
        suite planbench "$python" tests/planbench/check.py --dtrc build/release/bin/dtrc
        ;;
    report)
        need_build release
        # shellcheck disable=SC2086
        need_packages $packages_browser || say "without Chromium the pages are not opened"
        suite report "$python" tests/report/run_report.py --dtrc build/release/bin/dtrc
        ;;
    install) need_build release && step install installed_trainer ;;
    dev)
        need_build dev
        # The simulator of kernels is slow with sanitizers, and noise in costs is nothing new to them; by hand:
        # ctest --test-dir build/dev.
        suite unit-dev unit_tests dev 'cudasim_(standin|kernels|mutants|gpu)|test_kernel|test_cuda_(conv|attention_large)|test_conv_plans|plan_noise'
        beside hostile-dev "traces-dev sizes-dev"
        ;;
    traces-dev)
        suite traces-dev "$python" tests/traces/run_traces.py --dtrc build/dev/bin/dtrc --quick \
            mlp_relu lenet_mnist resnet_mini transformer_encoder dropout_stats
        ;;
    sizes-dev)
        suite sizes-dev "$python" tests/sizes/run_sizes.py --dtrc build/dev/bin/dtrc sequences names mlp_relu \
            resnet_frozen_bn
        ;;
    hostile-dev) suite hostile-dev "$python" tests/hostile/run_hostile.py --dtrc build/dev/bin/dtrc --sanitized ;;
    fuzz) need_build release && suite fuzz fuzz ;;
    fast) part build && part unit && part includes && part format ;;
    *)
        say "unknown part '$1': build unit includes format traces graphs cuda sizes ops hostile export failures planbench report install dev fuzz fast"
        exit 2
        ;;
    esac
}

finish() {
    say "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
    exit
}

mkdir -p "$logs"
# shellcheck disable=SC2086
need_packages $packages_build $packages_python $packages_test || {
    say "0 passed, 1 failed, 0 skipped"
    exit 1
}
if [ $# -gt 0 ]; then
    for p in "$@"; do part "$p"; done
    finish
fi
for p in build unit includes format traces cuda-traces; do part "$p"; done
beside cuda-programs "hostile export planbench report"
for p in sizes ops failures install dev fuzz; do part "$p"; done
finish
