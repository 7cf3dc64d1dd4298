# shellcheck shell=bash
# Where cargo-mutants comes from.

cargo_mutants_version=27.1.0

# Prints the path of a cargo-mutants of that version: the machine's own, else one that is built here, in minutes.
cargo_mutants() {
    pinned_tool cargo-mutants "$cargo_mutants_version" build_mutants
}

build_mutants() {
    echo "building cargo-mutants $cargo_mutants_version, which takes minutes"
    retry env -u CARGO_TARGET_DIR cargo install --quiet --locked --root "$1" "cargo-mutants@$cargo_mutants_version"
}
