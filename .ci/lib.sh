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

# pinned_tool NAME VERSION GET: prints the path of that version of a cargo tool: the machine's own, else the one that
# `GET FOLDER` puts into FOLDER/bin.
pinned_tool() {
    local name=$1 version=$2 get=$3 kept=$PWD/target/tools/$1-$2 own
    own=$(command -v "$name" || true)
    if [ -n "$own" ] && is_tool "$own" "$name" "$version"; then
        echo "$own"
        return
    fi
    is_tool "$kept/bin/$name" "$name" "$version" || "$get" "$kept" >&2
    is_tool "$kept/bin/$name" "$name" "$version" || say_and_fail "no $name $version could be had"
    echo "$kept/bin/$name"
}

# is_tool PATH NAME VERSION: some tell their version only as what cargo calls them.
is_tool() {
    [ -x "$1" ] || return 1
    [ "$("$1" --version 2>/dev/null)" = "$2 $3" ] || [ "$("$1" "${2#cargo-}" --version 2>/dev/null)" = "$2 $3" ]
}

# need_apt COMMAND PACKAGE...: installs the packages when the command is missing and we may; fails otherwise.
need_apt() {
    local command=$1
    shift
    command -v "$command" >/dev/null && return 0
    if may_apt; then
        echo "installing $*: '$command' is missing"
        apt_install "$@"
    fi
    need "$command" "install $* (only root may, with apt-get)"
}

may_apt() {
    [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null
}

apt_install() {
    export DEBIAN_FRONTEND=noninteractive
    retry apt-get -qq -o DPkg::Lock::Timeout=120 update
    retry apt-get -qq -o DPkg::Lock::Timeout=120 install -y --no-install-recommends "$@" >/dev/null
}

# need_postgres: the programs of a PostgreSQL server on the PATH. No cluster of the machine's own is made or started.
need_postgres() {
    local conf=/etc/postgresql-common/createcluster.conf
    add_postgres_to_path
    if ! command -v initdb >/dev/null && may_apt; then
        echo "installing postgresql: 'initdb' is missing"
        apt_install postgresql-common
        if [ -f "$conf" ]; then
            sed -i -E 's/^#? *create_main_cluster *=.*/create_main_cluster = false/' "$conf"
        fi
        apt_install postgresql
        add_postgres_to_path
    fi
    need initdb "install PostgreSQL (only root may, with apt-get)"
    need postgres "install PostgreSQL's server (only root may, with apt-get)"
}

# Debian keeps them out of the PATH, in a folder for each version.
add_postgres_to_path() {
    local folder
    for folder in /usr/lib/postgresql/*/bin; do
        if [ -x "$folder/initdb" ]; then
            PATH=$PATH:$folder
        fi
    done
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
