# shellcheck shell=bash
# What step scripts share. A step that cannot run here says why and fails: it never skips.

# say_and_fail MESSAGE...: the one way a step gives up.
say_and_fail() {
    echo "cannot run: $*" >&2
    exit 1
}

# retry COMMAND...: four tries, for what crosses a network.
retry() {
    local pause
    for pause in 2 5 10; do
        "$@" && return 0
        echo "failed, again in $pause s: $*" >&2
        sleep "$pause"
    done
    "$@"
}

# need COMMAND HOW: fails with HOW to get the command when it is not there.
need() {
    command -v "$1" >/dev/null || say_and_fail "'$1' is missing: $2"
}

# need_apt COMMAND PACKAGE...: installs the packages when the command is missing and we may; fails otherwise.
need_apt() {
    local command=$1
    shift
    command -v "$command" >/dev/null && return 0
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        echo "installing $*: '$command' is missing"
        export DEBIAN_FRONTEND=noninteractive
        retry apt-get -qq -o DPkg::Lock::Timeout=120 update
        retry apt-get -qq -o DPkg::Lock::Timeout=120 install -y --no-install-recommends "$@" >/dev/null
    fi
    need "$command" "install $* (only root may, with apt-get)"
}

# need_rust_target TRIPLE: rustup adds it when it is missing.
need_rust_target() {
    need rustup "install Rust with rustup"
    rustup target list --installed | grep -qx "$1" && return 0
    retry rustup --quiet target add "$1"
}

# report_tests PASSED FAILED: how a step whose runner is not 'cargo test' tells its count.
report_tests() {
    echo "tests: $1 passed, $2 failed"
}
