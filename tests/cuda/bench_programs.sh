#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Programs of bench/gpu on the fake driver, so that they still run when a card is there:
# fidelity.py on a small trace, and a hand-over on a card that has no room for two tags at once.
# usage: bench_programs.sh COMMAND BENCH_GPU FAKE_DRIVER SOURCE
set -euo pipefail
command=$1 bench=$2 source=$4
export RVL_CUDA_LIBRARY=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/small.rvt" <<'TRACE'
reveille-trace 1.0
clock boot=- mono_ns=0 wall_ns=0
device 0 profile=- capacity_bytes=1073741824 granularity_bytes=2097152
process engine pid=1
stage 0 engine 1 load
alloc 10 engine 1 1 0 67108864 weights
stage 20 engine 1 serve
alloc 30 engine 1 2 0 134217728 kv_cache
free 40 engine 1 2
end 5
TRACE
table=$(python3 "$source/bench/gpu/fidelity.py" "$command" "$folder/small.rvt")
echo "$table"
grep -q '| serve | 201326592 |' <<<"$table"

lines=$(FAKE_CUDA_CAPACITY_BYTES=$((40 << 20)) "$bench" --small --one hand_over_256x160MiB bare)
[ "$(wc -l <<<"$lines")" -ge 10 ]
