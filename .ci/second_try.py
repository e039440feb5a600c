"""Runs the tests that failed once more, each alone: a test that measures time can fail beside a compiler.

    second_try.py LOG PASSED

LOG is the output of `cargo test --no-fail-fast`. The names of tests that pass now are written to PASSED and printed. The
status is 0 if all did; 1 if a test fails again, if more than five failed, or if a test program ended without a result.
"""

import re
import subprocess
import sys

MOST = 5
SECONDS = 600


def failures(log):
    """Pairs of arguments for cargo and the name of a failed test, and whether every failed program named its tests."""
    found, names, is_complete = [], [], True
    with open(log, encoding="utf-8", errors="replace") as file:
        for line in file:
            if failed := re.match(r"test (.+) \.\.\. FAILED$", line.rstrip()):
                names.append(failed[1])
            elif program := re.match(r"error: test failed, to rerun pass `(.+)`$", line.rstrip()):
                is_complete &= bool(names)
                found += [(program[1].split(), name) for name in names]
                names = []
    return found, is_complete and not names


def passes(arguments, name):
    try:
        done = subprocess.run(
            ["cargo", "test", "--locked", "--quiet", *arguments, "--", "--exact", name],
            timeout=SECONDS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )
    except subprocess.TimeoutExpired:
        print(f"{name}: no end within {SECONDS} s")
        return False
    if done.returncode == 0 and "1 passed" in done.stdout:
        print(f"failed, and passed alone: {name}")
        return True
    print(f"failed twice: {name}\n{done.stdout[-4000:]}")
    return False


def main(log, passed):
    failed, is_complete = failures(log)
    if not failed or not is_complete or len(failed) > MOST:
        print(f"{len(failed)} tests failed; no second try" + ("" if is_complete else ", a test program broke off"))
        return 1
    good = [name for arguments, name in failed if passes(arguments, name)]
    with open(passed, "w", encoding="utf-8") as file:
        file.writelines(f"{name}\n" for name in good)
    return 0 if len(good) == len(failed) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
