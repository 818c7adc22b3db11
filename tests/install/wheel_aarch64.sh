#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Uses the wheel for aarch64 on this machine, by qemu's user mode: Debian's arm64 Python in a folder, the command, simulated GPUs, a
# program under them. Needs no root (scripts/foreign-run).
# Exits 77 where that cannot be tried.
# usage: wheel_aarch64.sh WHEEL SOURCE_DIR [ROOT [VERSION]]      ROOT: Debian's arm64, made where it is not there
# VERSION is PyTorch's: its CUDA build for aarch64, from PyPI, some 5 GB in ROOT/torch, a training step and memory that moves.
set -Eeuo pipefail
trap 'echo "${0##*/}: line $LINENO: $BASH_COMMAND" >&2' ERR
wheel=$(realpath "$1") source=$(realpath "$2")
root=$(realpath -m "${3:-$source/build/aarch64-root}")
torch=${4-}

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
for_aarch64=(--only-binary :all: --python-version 3.11 --implementation cp --abi cp311 --abi abi3 --abi none)
for minor in {17..36}; do
    for_aarch64+=(--platform "manylinux_2_${minor}_aarch64")
done
site=$root/site
rm -rf "$site"
python3 -m pip install -q --disable-pip-version-check --no-index --no-deps "${for_aarch64[@]}" --target "$site" "$wheel"
inside() { # LINE
    "$source/scripts/foreign-run" "$root" --bind "$source" LOGNAME=root PYTHONPATH=/site:/torch PYTHONDONTWRITEBYTECODE=1 \
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
[ -n "$torch" ] || exit 0

# numpy comes along, so that PyTorch does not warn. A build without CUDA may lie in a folder that pip is configured with.
[ -e "$root/torch/torch-$torch.dist-info" ] ||
    PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS='' python3 -m pip install -q --disable-pip-version-check "${for_aarch64[@]}" \
        --upgrade --target "$root/torch" "torch===$torch" numpy ||
    skip "PyTorch's packages for aarch64 could not be fetched"
begin=$SECONDS
inside "python3 -c 'import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())'" || fail "$(cat "$root/said")"
said "import torch" "^$torch.* [0-9.]+ False$"
echo "$(tail -n 1 "$root/said"): imported in $((SECONDS - begin)) s"
begin=$SECONDS
inside "$reveille run --device gh200 -- python3 tests/bare/train.py" || fail "a training step: $(cat "$root/said")"
said "a training step" '^3 steps on NVIDIA GH200.*, peak [0-9]+ bytes reserved$'
said "a training step" '^device 0: gh200, 95\.[0-9] GiB; peak [0-9.]+ GiB in run$'
echo "$(grep '^3 steps' "$root/said"); $((SECONDS - begin)) s"
begin=$SECONDS
inside "$reveille run --device gh200 -- python3 examples/first/move.py" || fail "memory that moves: $(cat "$root/said")"
said "before a pause" '^awake +87\.[0-9] GiB free$'
said "a pause" '^paused +95\.[0-9] GiB free$'
echo "8 GiB paused and resumed; $((SECONDS - begin)) s"
