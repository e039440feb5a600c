#!/usr/bin/env bash
# Miri over what is unsafe, what is counted and what parses, by hand: fuzz/miri.sh [CRATE...], by default terms memory
# wire. Properties are tried with two cases, since Miri is a thousand times slower; the larger tests shrink themselves
# under cfg(miri).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

if ! cargo +nightly miri --version >/dev/null 2>&1; then
    echo "skipped: Miri needs the nightly compiler; get it with: rustup toolchain install nightly --component miri"
    exit 0
fi

crates=("$@")
[ ${#crates[@]} -gt 0 ] || crates=(terms memory wire)
# The host's clock and files: proptest asks for both.
export MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=2

failed=()
for crate in "${crates[@]}"; do
    echo "== $crate"
    started=$SECONDS
    if cargo +nightly miri test --locked -p "ropewalk-$crate" --lib 2>&1 |
        grep --line-buffered -E '^(test |error)|panicked|Undefined Behavior'
    then
        echo "-- $crate: good, $((SECONDS - started)) s"
    else
        echo "-- $crate: FAILED, $((SECONDS - started)) s"
        failed+=("$crate")
    fi
done

[ ${#failed[@]} = 0 ] && { echo "miri: good (${crates[*]})"; exit 0; }
echo "miri: FAILED in ${failed[*]}"
exit 1
