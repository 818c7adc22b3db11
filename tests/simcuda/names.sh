#!/bin/sh
# SPDX-License-Identifier: MIT
# Checks that the simulated library has every function that a header of CUDA declares, under its version.
#
#   names.sh NM LIBRARY HEADER WORD PREFIX [LEAST]      LEAST: the minimum number of names (default: 200)
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1" -D --defined-only "$2" | awk '$2 ~ /[TW]/ { sub(/@.*/, "", $3); print $3 }' | sort -u >"$work/have"
# A declaration may continue on the next line.
tr '\n' ' ' <"$3" | grep -oE "$4 +$5[A-Za-z0-9_]+ *[(]" | awk '{ sub(/[(].*/, "", $2); print $2 }' | sort -u >"$work/want"
count=$(wc -l <"$work/want")
[ "$count" -gt "${6-200}" ] || { echo "only $count names in $3" >&2; exit 1; }
missing=$(comm -13 "$work/have" "$work/want")
[ -z "$missing" ] || { echo "not in $2:" $missing >&2; exit 1; }
