#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Replays every trace that ships, in stages and all at once, and compares the JSON byte for byte
# with tests/golden/replay. The exit status must be what the JSON says: 0 where all devices fit,
# 3 where one does not. Every golden file must have its trace.
#
#   golden_replay.sh REVEILLE_BINARY SOURCE_DIR [--update]
#
# --update writes the golden files instead, for a change of output that is meant.
set -u

if [ $# -lt 2 ] || [ $# -gt 3 ] || [ "${3:---update}" != --update ]; then
    echo "usage: golden_replay.sh REVEILLE_BINARY SOURCE_DIR [--update]" >&2
    exit 2
fi
reveille=$(realpath "$1") || exit 2
cd "$2" || exit 2
update=${3:-}
golden=tests/golden/replay
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
    echo "golden_replay: $1" >&2
    failures=$((failures + 1))
}

# check TRACE EXPECTED_FILE OPTION...
check() {
    local trace=$1 expected=$2 status due=0
    shift 2
    "$reveille" replay --json "$@" "$trace" >"$work/actual" 2>"$work/errors"
    status=$?
    if grep -q '"fits":false' "$work/actual"; then
        due=3
    fi
    if [ "$status" -ne "$due" ]; then
        fail "replay --json${*:+ $*} $trace: exit status $status, not $due"
        cat "$work/errors" >&2
        return
    fi
    if [ -n "$update" ]; then
        cp "$work/actual" "$expected" || fail "$expected: cannot be written"
    elif ! [ -f "$expected" ]; then
        fail "$expected: missing; run with --update"
    elif ! cmp -s "$expected" "$work/actual"; then
        fail "replay --json${*:+ $*} $trace: not what $expected holds"
        diff -u --label "$expected" --label actual \
            <(pretty "$expected") <(pretty "$work/actual") >&2
        # Equal once taken apart: they differ in white space at most.
        cmp "$expected" "$work/actual" >&2
    fi
}

# One key a line, so that a difference can be read.
pretty() {
    sed 's/[{,]/&\n/g' "$1"
}

traces=0
for trace in traces/*.rvt; do
    [ -f "$trace" ] || continue
    name=$(basename "$trace" .rvt)
    check "$trace" "$golden/$name.json"
    check "$trace" "$golden/$name.together.json" --wake together
    traces=$((traces + 1))
done
[ "$traces" -gt 0 ] || fail "no traces in $PWD/traces"

for expected in "$golden"/*.json; do
    name=$(basename "$expected" .json)
    [ -f "traces/${name%.together}.rvt" ] || fail "$expected: has no trace"
done

[ "$failures" -eq 0 ] || exit 1
echo "golden_replay: $traces traces, $((2 * traces)) replays"
