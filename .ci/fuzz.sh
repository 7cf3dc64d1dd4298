#!/usr/bin/env bash
# Fuzzes for SECONDS each target, or only TARGET, on the stable compiler: the flags are those of cargo-fuzz, without its
# address sanitizer, which needs a nightly one (our code has no unsafe).
#
#   make fuzz SECONDS=60 TARGET=headers      RECORD=1: a line in the ledger     MERGE=1: what is new joins the corpus
#
# What was found new is kept in target/fuzz/<target>/corpus, an input that breaks a promise in fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/lib.sh

seconds=${SECONDS_EACH:-60}
work=$PWD/target/fuzz
host=$(rustc -vV | sed -n 's/^host: //p')
program=$work/build/$host/fuzz/fuzz
all="decode_record decode_event headers fingerprints ops_vs_model open_bytes crash_ops"

main() {
    need python3 "the fingerprints are held against an oracle in Python"
    need_apt c++ g++
    build
    local target status=0
    for target in ${TARGET:-$all}; do
        fuzz "$target" || status=1
        if [ -n "${MERGE:-}" ]; then
            merge "$target"
        fi
    done
    return $status
}

# With a target triple, so that build scripts and macros are built without the flags.
build() {
    local flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
    flags+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
    flags+=" -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=16"
    RUSTFLAGS=$flags CARGO_TARGET_DIR=$work/build cargo build --locked --quiet --manifest-path fuzz/Cargo.toml \
        --target "$host" --profile fuzz --features driver --bin fuzz
}

fuzz() {
    local target=$1 found=$work/$1/corpus crashes=fuzz/artifacts/$1 log=$work/$1/log seed=$((RANDOM * 32768 + RANDOM + 1))
    local began=$SECONDS violations=0 executions input
    mkdir -p "$found" "$crashes"
    echo "$target: $seconds s, seed $seed, log $log"
    KEYCLAIM_FUZZ=$target "$program" -seed="$seed" -max_total_time="$seconds" -max_len="$(len_max "$target")" \
        -timeout=30 -rss_limit_mb=3000 -print_final_stats=1 -artifact_prefix="$crashes/" \
        "$found" "fuzz/corpus/$target" >"$log" 2>&1 || violations=1
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    echo "$target: ${executions:-0} executions, $violations violations, $(find "$found" -type f | wc -l) new inputs"
    if [ "$violations" -gt 0 ]; then
        grep -aE '^(VIOLATION|SUMMARY|thread )' "$log" || tail -n 20 "$log"
        input=$(sed -n 's/^.*Test unit written to //p' "$log" | tail -n 1)
        echo "replay: KEYCLAIM_INPUT=$PWD/$input cargo test --manifest-path fuzz/Cargo.toml --test replay $target"
    fi
    if [ -n "${RECORD:-}" ]; then
        flock "$work/lock" cargo run --locked --quiet -p keyclaim-tests --bin proofs -- --record "fuzz $target" \
            --seed "$seed" --cases "${executions:-0}" --seconds $((SECONDS - began)) --violations "$violations"
    fi
    [ "$violations" -eq 0 ]
}

# What was found joins the corpus if it reaches code that nothing there does. How often a place is reached is not
# counted here: that makes corpora of thousands.
merge() {
    local target=$1 before
    before=$(find "fuzz/corpus/$target" -type f | wc -l)
    KEYCLAIM_FUZZ=$target "$program" -merge=1 -use_counters=0 -max_len="$(len_max "$target")" -timeout=30 \
        -rss_limit_mb=3000 "fuzz/corpus/$target" "$work/$target/corpus" >"$work/$target/merge.log" 2>&1
    echo "$target: $before inputs become $(find "fuzz/corpus/$target" -type f | wc -l)"
}

# As fuzz/src/lib.rs has it.
len_max() {
    sed -n "s/.*name: \"$1\".*len_max: \([0-9_]*\).*/\1/p" fuzz/src/lib.rs | tr -d _
}

main
