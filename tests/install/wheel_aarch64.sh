#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Uses the wheel for aarch64 on this machine, by qemu's user mode: Debian's arm64 Python in a folder, the command, simulated GPUs, a
# program under them. Needs no root (scripts/foreign-run).
# Exits 77 where that cannot be tried.
# usage: wheel_aarch64.sh WHEEL SOURCE_DIR [ROOT]      ROOT: Debian's arm64, made where it is not there
set -Eeuo pipefail
trap 'echo "${0##*/}: line $LINENO: $BASH_COMMAND" >&2' ERR
wheel=$(realpath "$1") source=$(realpath "$2")
root=$(realpath -m "${3:-$source/build/aarch64-root}")

skip() {
    echo "SKIP: $*"
    exit 77
}

fail() {
    echo "$*" >&2
    exit 1
}

[ -x "$root/usr/bin/python3" ] ||
    "$source/scripts/foreign-debs" --all arm64 "$root" python3 bash coreutils ||
    skip "Debian's arm64 packages could not be fetched"

# As pip installs it: pip itself looks at the name alone when it is told of another processor.
site=$root/site
rm -rf "$site"
python3 -m pip install -q --disable-pip-version-check --no-index --no-deps --only-binary :all: --platform manylinux_2_28_aarch64 \
    --platform manylinux_2_27_aarch64 --platform manylinux_2_17_aarch64 \
    --target "$site" "$wheel"
inside() { # LINE
    "$source/scripts/foreign-run" "$root" --bind "$source" PYTHONPATH=/site PYTHONDONTWRITEBYTECODE=1 \
        bash -euc "cd '$source'; $1" >"$root/said" 2>&1
}
said() { # WHAT REGEX: what was printed last has it
    grep -qE -- "$2" "$root/said" || fail "$1: $(cat "$root/said")"
}

status=0
inside 'uname -m' || status=$?
[ $status -ne 77 ] || skip "$(cat "$root/said")"
said "the processor" '^aarch64$'
begin=$SECONDS
reveille=/site/reveille/bin/reveille
inside "python3 -m reveille" || fail "$(cat "$root/said")"
said "python3 -m reveille" '^sim +usable$'
inside "$reveille replay traces/qwen2.5-32b-tp2-h200.rvt" || fail "replay: $(cat "$root/said")"
said replay '^fits, with 7\.5 GiB to spare$'
inside 'python3 - <<PY
import ctypes, platform, reveille
assert platform.machine() == "aarch64"
with reveille.Context("sim") as gpu:
    weights = gpu.alloc("64MiB", "weights", backup="host")
    ctypes.memmove(weights, b"still here", 10)
    gpu.pause("weights")
    gpu.resume("weights")
    print(ctypes.string_at(weights, 10).decode())
PY' || fail "$(cat "$root/said")"
said "a pause" '^still here$'
inside "$reveille record -o /tmp/run.rvt true" || true
said record 'nothing was recorded'
inside "$reveille run --device gh200 -- python3 tests/bare/gpu_program.py" || fail "run: $(cat "$root/said")"
said run '^the GPU has 95\.[0-9] GiB, cuBLAS 13\.1, cuBLAS of CUDA 12 12\.8$'
said run '^device 0: gh200, 95\.[0-9] GiB; peak '
echo "the wheel works under qemu, $((SECONDS - begin)) s"
