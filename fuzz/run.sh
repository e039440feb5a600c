#!/usr/bin/env bash
# Fuzzes every target, or the named ones, for this many minutes in total: fuzz/run.sh MINUTES [TARGET...]
#
# Inputs that reach new code are kept in fuzz/corpus, which is not committed; the committed seeds lie in fuzz/seeds.
# An input that fails is kept in fuzz/artifacts/TARGET, and the last lines say how to run it again.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1

minutes=${1:-}
[[ $minutes =~ ^[0-9]+$ ]] || { echo "usage: fuzz/run.sh MINUTES [TARGET...]"; exit 2; }
shift
if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "skipped: fuzzing needs the nightly compiler; get it with: rustup toolchain install nightly"
    exit 0
fi
if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
    echo "skipped: fuzzing needs cargo-fuzz; get it with: cargo install cargo-fuzz --locked"
    exit 0
fi

targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls fuzz_targets | sed 's/\.rs$//')
seconds=$((minutes * 60 / ${#targets[@]}))
[ $seconds -gt 0 ] || seconds=1
cargo +nightly fuzz build || exit 1

failed=()
for target in "${targets[@]}"; do
    mkdir -p "corpus/$target"
    seeds=()
    [ -d "seeds/$target" ] && seeds=("seeds/$target")
    echo "== $target, $seconds s"
    cargo +nightly fuzz run "$target" "corpus/$target" "${seeds[@]}" -- \
        -max_total_time=$seconds -timeout=10 -print_final_stats=1 2>&1 |
        grep --line-buffered -E 'panicked|^stat::(number_of_executed_units|new_units_added)|ERROR|SUMMARY|cargo fuzz run'
    [ "${PIPESTATUS[0]}" = 0 ] || failed+=("$target")
done

[ ${#failed[@]} = 0 ] && { echo "fuzz: good (${#targets[@]} targets)"; exit 0; }
echo "fuzz: FAILED in ${failed[*]}"
exit 1
