# shellcheck shell=bash
# Where cargo-mutants comes from.

cargo_mutants_version=27.1.0

# Prints the path of a cargo-mutants of that version: the machine's own, else one that is built here, in minutes.
cargo_mutants() {
    local kept=$PWD/target/tools/cargo-mutants-$cargo_mutants_version own
    own=$(command -v cargo-mutants || true)
    if [ -n "$own" ] && is_that_mutants "$own"; then
        echo "$own"
        return
    fi
    if ! is_that_mutants "$kept/bin/cargo-mutants"; then
        echo "building cargo-mutants $cargo_mutants_version, which takes minutes" >&2
        retry env -u CARGO_TARGET_DIR cargo install --quiet --locked --root "$kept" \
            "cargo-mutants@$cargo_mutants_version" >&2
    fi
    is_that_mutants "$kept/bin/cargo-mutants" || say_and_fail "no cargo-mutants $cargo_mutants_version could be had"
    echo "$kept/bin/cargo-mutants"
}

is_that_mutants() {
    [ -x "$1" ] && [ "$("$1" mutants --version 2>/dev/null)" = "cargo-mutants $cargo_mutants_version" ]
}
