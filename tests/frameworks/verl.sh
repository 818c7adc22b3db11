#!/bin/bash
# SPDX-License-Identifier: MIT
# verl's GRPO with FSDP2 on simulated GPUs, unmodified: whole steps, and a table of verl's own phases.
#
#   tests/frameworks/verl.sh REVEILLE [--device DEVICE] [--json FILE] [--run "OPTION..."] [WORD]...
#
# --device: as for `reveille run` (default: h100-80g); --json: file for its result; --run: further options for it.
# WORDs are those of examples/ci/verl/job.sh: --engine sglang, --gpus 8, --config FILE, and settings of verl.
# SGLang needs a REVEILLE in a build folder that was configured with RVL_CUTE_ARCHIVE (docs/run.md), and compiles its kernels with nvcc.
# Installs verl and the engine into a separate environment (about 10 GB). Not part of the test suite. Exits with 77 if it cannot be
# installed.
# REVEILLE_VERL: the environment; default: ~/.cache/reveille-verl, with the suffix -sglang for SGLang
set -euo pipefail
REVEILLE=$(realpath "$1")
shift
device=h100-80g json='' run=() rest=()
while [ $# -gt 0 ]; do
    case $1 in
    --device) device=$2 && shift ;;
    --json) json=$2 && shift ;;
    --run) read -ra run <<<"$2" && shift ;;
    *) rest+=("$1") ;;
    esac
    shift
done
set -- "${rest[@]}"
words=" $* "
option() { # NAME DEFAULT
    [[ "$words" =~ \ --$1\ ([^ ]+) ]] && echo "${BASH_REMATCH[1]}" || echo "$2"
}
version=0.9.1 gpus=$(option gpus 2)
packages=(vllm==0.24.0) suffix=''
if [ "$(option engine vllm)" = sglang ]; then
    packages=(sglang==0.5.14 pyzmq msgspec fastapi uvicorn) suffix=-sglang
fi
source=$(cd "$(dirname "$0")/../.." && pwd)
environment=${REVEILLE_VERL-$HOME/.cache/reveille-verl$suffix}
PYTHON=$environment/bin/python
export PYTHON REVEILLE

skip() {
    echo "SKIP: $*"
    exit 77
}

if ! "$PYTHON" -c "import importlib.metadata as m, transfer_queue; m.version('$(option engine vllm)'); assert m.version('verl') == '$version'" 2>/dev/null; then
    python3 -m venv "$environment" || skip "there is no venv"
    # pip may be configured with a folder that has a build of PyTorch without CUDA.
    PIP_FIND_LINKS='' timeout 3600 "$environment/bin/pip" install --quiet "torch===2.11.0" "${packages[@]}" "verl==$version" \
        "TransferQueue>=0.1.10" nvtx matplotlib cachetools || skip "pip could not install verl==$version"
fi
if [ "$(option engine vllm)" = sglang ]; then
    . "$source/tests/simcuda/toolkit.sh"
    make_toolkit "$PYTHON" "$environment/cuda" "$(realpath "$(dirname "$REVEILLE")/../simcuda/libcuda.so.1")"
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"; kill ${looking-} 2>/dev/null || true' EXIT

# With Reveille in place of the engine's allocator: repeats the page's check of the processes until it finds our library in one.
looking=
if [[ "$words" == *REVEILLE_AS_* ]]; then
    look=$(grep '^for pid in ' "$source/docs/guides/adopt/verl.md")
    until [ -n "$(bash -c "$look" | xargs -r grep -l "$environment/.*libreveille.so" 2>/dev/null)" ]; do sleep 2; done &
    looking=$!
fi
"$REVEILLE" run --device "$device" --gpus "$gpus" --stages verl. --json="$folder/run.json" "${run[@]}" -- \
    "$source/examples/ci/verl/job.sh" "$folder/job" "$@"
if [ -n "$looking" ]; then
    ! kill "$looking" 2>/dev/null || { echo "our library was in none of the processes" >&2 && exit 1; }
    echo "our library was in a process of verl's"
fi
[ -z "$json" ] || cp "$folder/run.json" "$json"
"$PYTHON" "$source/tests/frameworks/verl_check.py" "$folder/job/said.jsonl" "$folder/run.json" "$gpus" "$(option steps 2)" "$(option tokens 24)"
