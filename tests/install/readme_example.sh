#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Compiles and runs the C program in README.md as it stands there.
# usage: readme_example.sh BUILD_DIR SOURCE_DIR C_COMPILER
set -euo pipefail
build=$1 source=$2 cc=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk '/^```c$/ {inside = 1; next} /^```$/ {inside = 0} inside' "$source/README.md" >"$work/example.c"
[ "$(wc -l <"$work/example.c")" -ge 20 ]
"$cc" -std=c11 -Wall -I"$source/include" -I"$build/include" "$work/example.c" -L"$build" -lreveille \
    -o "$work/example"
[ "$(LD_LIBRARY_PATH=$build "$work/example")" = "still here" ]
