#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds the command without any of the parts that may be missing, runs it, and compares what it says
# where each part would be needed. What needs none of them must work as before.
# usage: without_parts.sh BUILD_DIR SOURCE_DIR C_COMPILER
set -euo pipefail
source=$2 cc=$3
folder=$1/without-parts
trace=traces/qwen2.5-32b-tp2-h200.rvt

fail() {
    echo "without_parts: $*" >&2
    exit 1
}

configure() { # NAME OPTION...
    local name=$1
    shift
    cmake -S "$source" -B "$folder/$name" -G Ninja -DCMAKE_C_COMPILER="$cc" \
        -DCMAKE_BUILD_TYPE=Debug -DRVL_CUDA=OFF -DRVL_TOML=OFF -DRVL_URING=OFF "$@"
}

says() { # TEXT FILE
    [ -z "$1" ] || tr -s '\n ' ' ' <"$2" | grep -qF -- "$1" || fail "expected: $1; said: $(cat "$2")"
}

# answers STATUS TEXT WORD...: the command with the words.
answers() {
    local status=0 wanted=$1 text=$2
    shift 2
    "$reveille" "$@" >"$folder/said" 2>&1 || status=$?
    [ "$status" -eq "$wanted" ] || fail "$*: exit status $status, not $wanted; $(cat "$folder/said")"
    says "$text" "$folder/said"
}

rm -rf "$folder"
mkdir -p "$folder"
cd "$source"

# A chart library that is not the one of the manifest is never embedded.
! configure other-charts -DRVL_CHARTS_PACKAGE="$source/LICENSE" >"$folder/configured" 2>&1 ||
    fail "another chart library was taken"
says "is not the uplot@" "$folder/configured"

configure build -DRVL_NPM=OFF >"$folder/configured" 2>&1
says "Left out: pages of reveille report: npm was not found" "$folder/configured"

# Tests of what is left out are left out, and no others.
ctest --test-dir "$folder/build" -N | sed -n 's/^ *Test *#[0-9]*: //p' >"$folder/tests"
if grep -E '^test_(cuda|hooks|record_command)|cuda_headers' "$folder/tests"; then
    fail "there are tests of the CUDA backend"
fi
for test in test_core test_disk test_replay test_plan test_check test_command test_report \
    golden_replay installed_tree; do
    grep -qx "$test" "$folder/tests" || fail "$test is not among the tests"
done

cmake --build "$folder/build" --target reveille-command -- --quiet >"$folder/built" 2>&1 ||
    fail "$(cat "$folder/built")"
reveille=$folder/build/cli/reveille
"$reveille" replay --json "$trace" | cmp - tests/golden/replay/qwen2.5-32b-tp2-h200.json
answers 2 "this build has no backend of that name" replay --backend cuda "$trace"
answers 2 "libreveille-preload.so" record -o "$folder/run.rvt" true
answers 2 "built without the page" report -o "$folder/page.html" "$trace"
answers 0 "" report --svg "$folder/picture.svg" "$trace"
head -c 4 "$folder/picture.svg" | cmp - <(printf '<svg')
printf 'schema = 1\n' >"$folder/checks.toml"
answers 2 "this build reads no TOML" check "$folder/checks.toml"
answers 0 "cheapest that fits: --device h200" plan "$trace" --sweep --device h200,b200
echo "built without parts: $(wc -l <"$folder/tests") tests listed, the command runs"
