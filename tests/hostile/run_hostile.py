#!/usr/bin/python3
"""Broken and malicious input, full disks and killed programs, through the command lines of dtrc and of a trainer.

    run_hostile.py --dtrc build/release/bin/dtrc [--sanitized] [NAME...]

Whatever the input, a program ends by itself with a documented exit status and a message that starts with "error",
within a second (of processor time) and 256 MiB (not measured in the sanitized build, where any finding of a sanitizer fails the test).
Last line: "N passed, N failed, N skipped".
"""
import argparse
import shutil
import sys
import time
import traceback

import broken_models
import broken_traces
import compares
import hostile_names
import programs
import reports
from harness import TESTS, Env, Failed, Skipped

SUITES = (broken_models, broken_traces, compares, hostile_names, programs, reports)  # importing them registers their tests


def main():
    ap = argparse.ArgumentParser(description="Hostile input, end to end.")
    ap.add_argument("name", nargs="*", help="tests to run (default: all)")
    ap.add_argument("--dtrc", required=True)
    ap.add_argument("--sanitized", action="store_true", help="dtrc was built with ASan and UBSan")
    opt = ap.parse_args()
    unknown = set(opt.name) - {t.__name__ for t in TESTS}
    if unknown:
        ap.error(f"no such test: {', '.join(sorted(unknown))}")
    passed = failed = skipped = 0
    for t in TESTS:
        if opt.name and t.__name__ not in opt.name:
            continue
        env, start = Env(opt), time.monotonic()
        try:
            t(env)
            passed += 1
            print(f"ok   {t.__name__} ({time.monotonic() - start:.1f} s)", flush=True)
        except Skipped as e:
            skipped += 1
            print(f"skip {t.__name__}: {e}", flush=True)
        except Failed as e:
            failed += 1
            print(f"FAIL {t.__name__}: {e}", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL {t.__name__}: {traceback.format_exc()}", flush=True)
        shutil.rmtree(env.tmp, ignore_errors=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
