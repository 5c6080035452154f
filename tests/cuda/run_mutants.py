#!/usr/bin/env python3
"""run_mutants.py - do the tests of the CUDA kernels need each barrier? By hand; minutes.

    python3 tests/cuda/run_mutants.py [--build build/release] [FILE[:N]...]

Drops each __syncthreads() of runtime/cuda/kernels in turn, in a copy, and runs the test_kernels_* programs
whose source names the file (all of them for prelude.cuh) until one fails. The last line is
"N passed, N failed, N skipped"; failed is a barrier that no test misses. Where a barrier is the contract of a
function and no caller needs it, KNOWN says so: skipped."""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

BARRIER = "__syncthreads();"
KNOWN = {("prelude.cuh", "block_max", 2): "frees part for a second call, which no kernel makes",
         ("gather.cu", "gather_sort_near", 1): "the first distance is a multiple of the block: places are the thread's own"}


def function_at(text, at):
    """Name of the function that the place is in: the last line without indentation that has one."""
    names = re.findall(r"^[^\s#/}][^;\n]*?(\w+)\([^;]*?\)\s*\{", text[:at], re.M)
    return names[-1] if names else "?"


def barriers(path):
    text = open(path).read()
    count = {}
    for match in re.finditer(re.escape(BARRIER), text):
        name = function_at(text, match.start())
        count[name] = count.get(name, 0) + 1
        yield name, count[name], text[: match.start()] + ";" + text[match.end() :]


def tests_of(root, build, file):
    for source in sorted(glob.glob(f"{root}/tests/cuda/test_kernels_*.c")):
        program = f"{build}/tests/" + os.path.basename(source)[:-2]
        if file == "prelude.cuh" or f'"{file[:-3]}"' in open(source).read():
            if os.path.exists(program):
                yield program


def caught(root, build, copy, file):
    """The first finding of the first test that fails, or None."""
    for program in tests_of(root, build, file):
        run = subprocess.run([program, f"{copy}/build"], cwd=copy, capture_output=True, text=True, timeout=600)
        if run.returncode:
            lines = [line for line in run.stderr.splitlines() if "race" in line or "read before written" in line]
            return (lines or run.stderr.splitlines() or ["it failed"])[0]
    return None


def main():
    root = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--build", default="build/release")
    options.add_argument("files", nargs="*")
    args = options.parse_args()
    build = os.path.abspath(args.build)
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory() as copy:
        kernels = f"{copy}/runtime/cuda/kernels"
        shutil.copytree(f"{root}/runtime/cuda", f"{copy}/runtime/cuda")
        shutil.copytree(f"{root}/runtime/core", f"{copy}/runtime/core")
        os.makedirs(f"{copy}/build/cudasim/cache")
        for path in sorted(glob.glob(f"{root}/runtime/cuda/kernels/*")):
            file = os.path.basename(path)
            if not list(tests_of(root, build, file)):
                continue
            for number, (name, nth, text) in enumerate(barriers(path), 1):
                if args.files and file not in args.files and f"{file}:{number}" not in args.files:
                    continue
                what = f"{file}:{number} ({name}, its number {nth})"
                if (file, name, nth) in KNOWN:
                    print(f"known  {what}: {KNOWN[file, name, nth]}", flush=True)
                    skipped += 1
                    continue
                open(f"{kernels}/{file}", "w").write(text)
                finding = caught(root, build, copy, file)
                print(f"{'caught' if finding else 'MISSED'} {what}: {finding or ''}"[:200], flush=True)
                passed, failed = (passed + 1, failed) if finding else (passed, failed + 1)
            shutil.copy(path, f"{kernels}/{file}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
