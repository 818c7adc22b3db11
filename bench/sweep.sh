#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A sweep of 1000 configurations of a step of Qwen2.5-32B: seconds by the clock and of processor time,
# each the best of five, or of ROUNDS.
# usage: sweep.sh REVEILLE [ROUNDS]
set -euo pipefail
reveille=$1
config=$(dirname "$0")/../tests/data/configs/qwen2.5-32b.json
settings=(--model "$config" --sweep --train fsdp:16 --tp 1,2,4,8
    --device a100-80g,h100-80g,h100-94g,h200,b200 --strategy v2,v3 --mem-fraction 0.5:0.9:0.1
    --optimizer adamw,adamw-bf16,adamw-8bit,sgd-momentum,sgd)

out=$(mktemp)
trap 'rm -f "$out" "$out.time"' EXIT
TIMEFORMAT='%R %U'
for _ in $(seq "${2:-5}"); do
    { time { "$reveille" plan "${settings[@]}" --csv >"$out" || [ $? -eq 3 ]; } 2>/dev/null; } 2>>"$out.time"
done
awk -v cases="$(($(wc -l <"$out") - 1))" '
    NR == 1 || $1 < clock { clock = $1 }
    NR == 1 || $2 < cpu { cpu = $2 }
    END { printf "%d configurations: %.2f s by the clock, %.2f s of processor time\n", cases, clock, cpu }' \
    "$out.time"
