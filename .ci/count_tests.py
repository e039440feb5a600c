"""Counts what `cargo test` ran and what tests skipped; fails on an unexpected skip.

    count_tests.py LOG SKIPS EXPECTED SECOND

LOG is cargo's output, SKIPS the file that tests append `skipped: TEST: WHY` to, EXPECTED the list of allowed ones
(`*: WHY` for all that have the same reason), SECOND the names of tests that passed on the second try.
The last line of the output is the sum.
"""

import os
import re
import sys

NEEDS_DATA = "needs ROPEWALK_DATA"


def read_lines(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return [line.rstrip("\n") for line in file]


def is_expected(skip, allowed):
    if skip.endswith(NEEDS_DATA):
        return not os.environ.get("ROPEWALK_DATA")
    return skip in allowed or "*: " + skip.partition(": ")[2] in allowed


def main(log, skips, expected, second):
    result = re.compile(r"test result: \S+ (\d+) passed; (\d+) failed; (\d+) ignored")
    results = [result.match(line) for line in read_lines(log)]
    passed, failed, ignored = (sum(int(found[field]) for found in results if found) for field in (1, 2, 3))
    again = len(read_lines(second))
    passed, failed = passed + again, failed - again
    allowed = {line for line in read_lines(expected) if line and not line.startswith("#")}
    skipped = sorted({line.removeprefix("skipped: ") for line in read_lines(skips) if line})
    unexpected = [skip for skip in skipped if not is_expected(skip, allowed)]
    for skip in skipped:
        print(("unexpected skip: " if skip in unexpected else "skipped as expected: ") + skip)
    if ignored:
        print(f"{ignored} tests are #[ignore]d: let them run, or let them say that they are skipped")
    if not passed:
        print("no test ran")
    skips = f"{len(skipped)} skipped, {len(unexpected)} of them unexpectedly"
    tries = f", {again} of them on a second try" if again else ""
    print(f"{passed - len(skipped)} tests passed{tries}, {failed} failed, {skips}")
    return 1 if unexpected or ignored or failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
