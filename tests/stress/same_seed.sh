#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The same seed with one thread makes the same calls, which answer the same; another seed others.
# usage: same_seed.sh STRESS
set -euo pipefail

digest() { "$1" --calm --threads 1 --rounds 2 --seed "$2" | sed -n 's/^stress: digest //p'; }

one=$(digest "$1" 7)
again=$(digest "$1" 7)
other=$(digest "$1" 8)
[ -n "$one" ] && [ "$one" = "$again" ] || { echo "seed 7 gave $one, then $again" >&2; exit 1; }
[ "$one" != "$other" ] || { echo "seeds 7 and 8 both gave $one" >&2; exit 1; }
