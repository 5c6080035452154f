#!/bin/sh
# check.sh - all that only a GPU can show, in at most 9 minutes, ending in a table.
#
#     sh tests/gpu/check.sh               builds, then checks on the GPU of this machine
#     sh tests/gpu/check.sh bundle DIR    builds, and puts all that the checks need into DIR
#     sh DIR/tests/gpu/check.sh run DIR   checks, on a machine that need not have dtrc's packages
#
# A machine that runs a bundle needs: NVIDIA's driver, cuBLAS, cuDNN 9 and NVRTC (folders can be named in
# DTRT_CUDA_PATH), a C compiler, python3 with numpy. PyTorch is compared with where it is there.
#
# Checks: convolutions, products and attention against loops in double; kernels of runtime/cuda and tests/cudasim
# bit for bit against their translation on the CPU, and against the CPU target; every kernel of whole programs bit
# for bit in their steps (tests/cudasim/standin/twin.c); small models against PyTorch's traces, with steps replayed,
# enqueued, static and dynamic the same bits; the same bits from two runs; memory beside the budget; step time and
# peak of ResNet-50 and GPT-2 at 100, 50 and 30 %, beside PyTorch eager, torch.compile and torch.utils.checkpoint
# at the same peak.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
python=${PYTHON:-python3}

build() {
    cmake -S . -B build/release -G Ninja -DCMAKE_BUILD_TYPE=Release >/dev/null && ninja -C build/release >/dev/null
}

# Shared libraries of the bundled programs that another machine may lack, with the names that linkers want.
bundle_libraries() {
    to=$1
    mkdir -p "$to"
    for file in build/release/bin/dtrc build/release/tests/test_cuda_conv; do ldd "$file"; done |
        awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
        grep -v -E '/(libc|libm|ld-linux[^/]*|libdl|librt|libpthread|libstdc\+\+|libgcc_s)\.so' |
        while read -r lib; do
            name=$(basename "$lib")
            cp -L "$lib" "$to/$name"
            case $name in
            libcjson.so.* | libz.so.* | libgomp.so.*) ln -sf "$name" "$to/${name%%.so*}.so" ;;
            esac
        done
}

bundle() {
    dir=$1
    mkdir -p "$dir/build/release/bin" "$dir/build/release/tests" "$dir/models" || exit 1
    cp build/release/bin/dtrc "$dir/build/release/bin/"
    cp -r build/release/lib build/release/include "$dir/build/release/"
    cp build/release/tests/test_cuda_conv build/release/tests/test_cuda_matmul build/release/tests/test_cuda_attention \
        build/release/tests/test_kernels_rows build/release/tests/test_kernels_movement \
        build/release/tests/test_kernels_images build/release/tests/cudasim_gpu "$dir/build/release/tests/"
    mkdir -p "$dir/build/release/cudasim/cache" "$dir/runtime/cuda" "$dir/runtime/core" "$dir/tests/data"
    cp -RP build/release/cudasim/twin "$dir/build/release/cudasim/" # a library and a symbolic link
    cp -r runtime/cuda/kernels runtime/cuda/params.h "$dir/runtime/cuda/"
    cp runtime/core/*.h "$dir/runtime/core/"
    cp -r tests/gpu tests/traces "$dir/tests/"
    cp -r tests/data/traces "$dir/tests/data/"
    cp -r tests/cudasim "$dir/tests/"
    for graph in resnet50 gpt2_small; do
        [ -f "../shared/graphs/$graph.onnx" ] && cp "../shared/graphs/$graph.onnx" "$dir/models/"
    done
    bundle_libraries "$dir/lib"
    du -sh "$dir"
}

table=
failed=0
# row NAME STATUS DETAIL
row() {
    table="$table$(printf '%-34s %-8s %s' "$1" "$2" "$3")
"
    [ "$2" = FAILED ] && failed=1
    printf '%-34s %-8s %s\n' "$1" "$2" "$3"
}

# timed SECONDS NAME COMMAND...: one row; the last line that the command says is the detail.
timed() {
    limit=$1 name=$2
    shift 2
    out=$(timeout "$limit" "$@" 2>&1)
    rc=$?
    detail=$(printf '%s\n' "$out" | tail -n 1 | cut -c1-150)
    case $rc in
    0) row "$name" ok "$detail" ;;
    77) row "$name" skipped "$detail" ;;
    124) row "$name" FAILED "no end after $limit s" ;;
    *)
        printf '%s\n' "$out" | tail -n 15
        row "$name" FAILED "status $rc: $detail"
        ;;
    esac
}

run() {
    begun=$(date +%s)
    release=$root/build/release
    export LD_LIBRARY_PATH="$root/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export LIBRARY_PATH="$root/lib${LIBRARY_PATH:+:$LIBRARY_PATH}"
    # Wheels of PyTorch bring the libraries in folders of their own.
    if [ -z "${DTRT_CUDA_PATH:-}" ]; then
        DTRT_CUDA_PATH=$("$python" -c '
import glob, site
print(":".join(f for d in site.getsitepackages() for f in sorted(glob.glob(d + "/nvidia/*/lib"))))' 2>/dev/null)
        export DTRT_CUDA_PATH
    fi
    export LD_LIBRARY_PATH="$LD_LIBRARY_PATH${DTRT_CUDA_PATH:+:$DTRT_CUDA_PATH}" # NVRTC, for tests
    command -v nvidia-smi >/dev/null &&
        row device - "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | head -n 1)"
    for kind in conv matmul attention; do
        timed 40 "calls: $kind" "$release/tests/test_cuda_$kind" "$release"
    done
    for kind in rows movement images; do
        timed 40 "kernels, bit for bit: $kind" "$release/tests/test_kernels_$kind" "$release" gpu
    done
    timed 40 "instructions, bit for bit" "$release/tests/cudasim_gpu" "$release"
    # Every kernel of whole programs, generated ones too.
    timed 60 "programs, bit for bit" "$python" tests/traces/run_cuda.py --dtrc "$release/bin/dtrc" --gpu \
        --twin "$release/cudasim/twin" --jobs 8 mlp_relu lenet_mnist mobilenetv2_mini unet_mini gpt_mini vit_mini \
        lstm_classifier groupnorm_cnn
    timed 120 "small models" "$python" tests/traces/run_cuda.py --dtrc "$release/bin/dtrc" --gpu --jobs 4 \
        mlp_relu lenet_mnist resnet_mini unet_mini mobilenetv2_mini gpt_mini vit_mini lstm_classifier dropout_stats
    # What is left of the time; the checks above take half of theirs on an idle machine.
    "$python" tests/gpu/bench.py --dtrc "$release/bin/dtrc" --models "$models" \
        --seconds $((535 - $(date +%s) + begun)) >/tmp/dtrc-gpu-$$ 2>&1 || failed=1
    while IFS='|' read -r name status detail; do row "$name" "$status" "$detail"; done </tmp/dtrc-gpu-$$
    rm -f "/tmp/dtrc-gpu-$$"
    printf '\n%s' "$table"
    exit $failed
}

case ${1:-} in
bundle) build && bundle "${2:?bundle needs a folder}" ;;
run)
    models=$root/models
    run
    ;;
*)
    models=$root/../shared/graphs
    build && run
    ;;
esac
