#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs the Debian packages, uses them, and removes them. Changes the system that it runs in: meant for
# the root of a bare system (tests/bare/run).
# usage: deb_check.sh FOLDER_OF_PACKAGES SOURCE_DIR
set -Eeuo pipefail
trap 'echo "${0##*/}: line $LINENO: $BASH_COMMAND" >&2' ERR
packages=$1 source=$2
trace=$source/traces/qwen2.5-32b-tp2-h200.rvt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export DEBIAN_FRONTEND=noninteractive

fail() { # WHAT...
    echo "$*" >&2
    exit 1
}

install() { # PACKAGE...
    apt-get install -y -qq --no-install-recommends "$@" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
}

file_of() { # PACKAGE
    local found
    found=$(echo "$packages/$1"_*.deb)
    [ -f "$found" ] || fail "$packages has no package $1"
    echo "$found"
}

# Every package has its licence and its changes, and every part lies in its own package.
contents() { # PACKAGE PATTERN...
    local package=$1 pattern
    shift
    dpkg-deb -c "$(file_of "$package")" >"$work/contents"
    for pattern in "usr/share/doc/$package/copyright" "usr/share/doc/$package/changelog.gz" "$@"; do
        grep -qE "/$pattern( ->.*)?$" "$work/contents" || fail "$package has no $pattern"
    done
}
contents libreveille0 'libreveille\.so\.0' 'libreveille-replay\.so\.0'
contents libreveille-dev 'libreveille\.so' 'reveille\.pc' 'ReveilleConfig\.cmake' 'reveille\.h'
contents reveille 'bin/reveille'
! dpkg-deb -c "$(file_of reveille)" | grep -E '\.h$|\.pc$|/man3/' || fail "reveille has what is for -dev"

# The command, where there is neither compiler nor CUDA.
install "$(file_of libreveille0)" "$(file_of reveille)"
reveille replay "$trace" >"$work/replayed" || fail "replay: status $?"
grep -q '^fits, with 7.5 GiB to spare$' "$work/replayed" || fail "not the right replay"
if dpkg -L reveille | grep -q libreveille-preload.so; then
    reveille record -o "$work/run.rvt" true 2>"$work/log"
    grep -q "nothing was recorded" "$work/log" || fail "record: $(cat "$work/log")"
    install python3-minimal libpython3-stdlib
    reveille run -- python3 "$source/tests/bare/gpu_program.py" >"$work/log" 2>&1 || fail "run: $(cat "$work/log")"
    grep -q '^the GPU has 139.8 GiB, cuBLAS 13.1, cuBLAS of CUDA 12 12.8$' "$work/log" || fail "run: $(cat "$work/log")"
fi

# A user's program, by pkg-config.
install "$(file_of libreveille-dev)" gcc libc6-dev pkg-config
flags=$(pkg-config --cflags --libs reveille-replay reveille)
case $flags in
*rpath*) fail "pkg-config names a folder to the loader, where the system's own serves: $flags" ;;
esac
# shellcheck disable=SC2086
cc -std=c11 "$source/tests/install/consumer.c" $flags -o "$work/by-pkg-config"
[ "$("$work/by-pkg-config" "$trace")" = "5 stages, fits: 1" ] || fail "by pkg-config: not as expected"

# Nothing stays behind.
dpkg -L libreveille0 libreveille-dev reveille | grep reveille | sort -u >"$work/files"
apt-get purge -y -qq libreveille0 libreveille-dev reveille >"$work/log" 2>&1 || fail "$(cat "$work/log")"
while read -r file; do
    [ ! -e "$file" ] || fail "$file stays behind"
done <"$work/files"

echo "Debian packages: installed, replayed, linked, removed"
