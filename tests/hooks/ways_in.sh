#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# How a hook library finds libreveille, whatever way it was opened by: by a link in another folder, as a
# wheel lays its files out, and by a copy of its own, where it must say what is missing. A program runs
# a whole cycle of regions each time, and libreveille must be there once.
# usage: ways_in.sh PRELOAD_LIBRARY PROGRAM CUDA_FAKE
set -euo pipefail
preload=$(realpath "$1") program=$2
export RVL_CUDA_LIBRARY=$3
real=$(dirname "$preload")/libreveille.so.0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PROGRAM_DIRECTORY=$work

fail() {
    echo "ways_in: $*" >&2
    exit 1
}

# Which libreveille the program has: one, and this one.
works() { # PRELOADED LIBREVEILLE
    local maps
    LD_PRELOAD=$1 "$program" preload cycle >"$work/said" 2>&1 || fail "$1: $(cat "$work/said")"
    maps=$(LD_PRELOAD=$1 sh -c 'cat /proc/$$/maps' | awk '/libreveille\.so/ { print $6 }' | sort -u)
    [ "$maps" = "$(realpath "$2")" ] || fail "$1: libreveille is $maps, not $2"
}

works "$preload" "$real"

# As torch_memory_saver's package has it.
mkdir "$work/package"
ln -s "$preload" "$work/package/torch_memory_saver_hook_mode_preload_cu13.abi3.so"
works "$work/package/torch_memory_saver_hook_mode_preload_cu13.abi3.so" "$real"

# As a wheel has it, which keeps no links.
mkdir "$work/alias" "$work/lib"
cp "$preload" "$work/alias/torch_memory_saver_hook_mode_preload.abi3.so"
cp -L "$real" "$work/lib/libreveille.so.0"
works "$work/alias/torch_memory_saver_hook_mode_preload.abi3.so" "$work/lib/libreveille.so.0"

# What the program has already is taken, wherever it lies.
mkdir "$work/other"
cp -L "$real" "$work/other/libreveille.so.0"
works "$preload:$work/other/libreveille.so.0" "$work/other/libreveille.so.0"

# Alone it says what is missing, and where it was looked for.
mkdir -p "$work/far/alone"
cp "$preload" "$work/far/alone/"
status=0
LD_PRELOAD=$work/far/alone/$(basename "$preload") "$program" preload cycle >"$work/said" 2>&1 || status=$?
[ "$status" -eq 134 ] || fail "without libreveille: exit status $status"
grep -qF "reveille: $work/far/alone/../lib/libreveille.so.0 cannot be opened: install libreveille and" "$work/said" ||
    fail "without libreveille: $(cat "$work/said")"

echo "found libreveille in 4 ways, and missed it once"
