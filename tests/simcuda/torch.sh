#!/bin/bash
# SPDX-License-Identifier: MIT
# PyTorch's CUDA build on simulated GPUs. Installs it once (about 6 GB), builds the simulated libraries, and runs the torch_*.py in this
# folder. Not part of the test suite: it takes minutes.
#
#   tests/simcuda/torch.sh [--short] [VERSION]      default: 2.11.0
#
# --short: the parts that CI runs, in two minutes. Exits with 77 if PyTorch cannot be installed within 15 minutes.
# REVEILLE_TORCH: the environment to install into; default: ~/.cache/reveille-torch
set -euo pipefail
short=
[ "${1-}" != --short ] || {
    short=1
    shift
}
version=${1-2.11.0}
source=$(cd "$(dirname "$0")/../.." && pwd)
environment=${REVEILLE_TORCH-$HOME/.cache/reveille-torch}
build=$source/build/torch

skip() {
    echo "SKIP: $*"
    exit 77
}

install() {
    timeout 900 "$environment/bin/pip" install --quiet "$@" || skip "pip could not install $*"
}

if ! "$environment/bin/python" -c "import torch; assert torch.__version__.split('+')[0] == '$version'" 2>/dev/null; then
    python3 -m venv "$environment" || skip "there is no venv (on Debian: apt-get install python3-venv)"
    # === selects the build of exactly this version: some configurations of pip prefer one without CUDA.
    PIP_FIND_LINKS='' install "torch===$version" numpy
fi
"$environment/bin/python" -c "import transformers" 2>/dev/null || install transformers==5.17.0
"$environment/bin/python" -c "import expecttest" 2>/dev/null || install expecttest # needed by PyTorch's database of operators
mkdir -p "$source/build"
cmake -S "$source" -B "$build" -G Ninja -DRVL_BUILD_TESTS=OFF -DRVL_BUILD_BENCH=OFF >"$source/build/torch.log"
cmake --build "$build" >>"$source/build/torch.log"
for program in torch_memory torch_tensors torch_backward; do
    timeout 300 "$build/cli/reveille" run --gpus 2 -- "$environment/bin/python" "$source/tests/simcuda/$program.py"
done
timeout 600 "$environment/bin/python" "$source/tests/simcuda/torch_holders.py" "$build/cli/reveille"
timeout 300 "$environment/bin/python" "$source/tests/simcuda/torch_profiler.py" "$build/cli/reveille"
timeout 300 "$environment/bin/python" "$source/tests/simcuda/torch_allocator.py" "$build/cli/reveille"
timeout 600 "$environment/bin/python" "$source/tests/simcuda/torch_assumed.py" "$build/cli/reveille"
timeout 900 "$environment/bin/python" "$source/tests/simcuda/torch_lengths.py" "$build/cli/reveille"
timeout 600 "$environment/bin/python" "$source/tests/simcuda/torch_host.py" "$build/cli/reveille"
timeout 900 "$build/cli/reveille" run --attribution=off --device h100-80g -- "$environment/bin/python" \
    "$source/tests/simcuda/torch_math.py" "$([ -n "$short" ] && echo 2 || echo 12)"
timeout 300 "$environment/bin/python" "$source/tests/simcuda/twenty.py" "$build/cli/reveille" --times 3 ddp1
operators() {
    timeout 1800 "$build/cli/reveille" run --attribution=off --keep-contents 32MiB -- "$environment/bin/python" \
        "$source/tests/simcuda/torch_operators.py" "$@"
}
# What the README shows, with this version. With another version, a figure may differ.
[ "$version" != 2.11.0 ] || timeout 600 python3 "$source/tests/documents.py" "$build/cli/reveille" "$source" "$build" \
    --pytorch "$environment/bin/python" README.md docs/guides/adopt/torch_memory_saver.md
[ -n "$short" ] || timeout 600 "$environment/bin/python" "$source/tests/simcuda/torch_advice.py" "$build/cli/reveille"
if [ -n "$short" ]; then
    operators --samples 1 --part 0/5
    timeout 300 "$build/cli/reveille" run --gpus 2 -- "$environment/bin/python" -m torch.distributed.run --standalone \
        --nproc-per-node 2 "$source/tests/simcuda/torch_ranks.py" fsdp
    timeout 300 "$build/cli/reveille" run --gpus 2 -- "$environment/bin/python" -m torch.distributed.run --standalone \
        --nproc-per-node 2 "$source/tests/simcuda/torch_contents.py"
    timeout 300 "$build/cli/reveille" run -- "$environment/bin/python" "$source/tests/simcuda/torch_dnn.py"
    timeout 300 "$build/cli/reveille" run -- "$environment/bin/python" "$source/bench/gpu/turns.py" "$build" --small --rounds 1 \
        --sleepers 2
    exec timeout 300 "$environment/bin/python" "$source/tests/simcuda/four_ways.py" "$build/cli/reveille" --only qwen2.5-0.5b
fi
operators --kinds float32,bfloat16,int64 --samples 100000
for kind in float32 bfloat16; do
    timeout 600 "$build/cli/reveille" run --device h100-80g --attribution=off -- "$environment/bin/python" \
        "$source/tests/simcuda/operator_memory.py" "$build/operator_memory.$kind.txt" --kind $kind
    [ "$version" != 2.11.0 ] || "$environment/bin/python" "$source/tests/simcuda/operator_memory.py" --compare \
        "$source/bench/results/2026-11-28-h100/operator_memory.$kind.txt" "$build/operator_memory.$kind.txt"
done
timeout 1800 "$build/cli/reveille" run --gpus 2 --attribution=off --keep-contents 64MiB -- "$environment/bin/python" \
    "$source/tests/simcuda/torch_distributed.py"
for how in fsdp ddp; do
    timeout 300 "$build/cli/reveille" run --gpus 2 -- "$environment/bin/python" -m torch.distributed.run --standalone \
        --nproc-per-node 2 "$source/tests/simcuda/torch_ranks.py" $how
done
timeout 300 "$build/cli/reveille" run --gpus 2 -- "$environment/bin/python" -m torch.distributed.run --standalone \
    --nproc-per-node 2 "$source/tests/simcuda/torch_contents.py"
status=0
timeout 300 "$build/cli/reveille" run --gpus 2 -- "$environment/bin/python" "$source/tests/simcuda/torch_contents.py" ends || status=$?
[ "$status" = 3 ] || { echo "a job that a rank has left ends with $status, and not 3" >&2; exit 1; }
timeout 300 "$build/cli/reveille" run --rank 3 --world 64 -- "$environment/bin/python" \
    "$source/tests/simcuda/torch_ranks.py" fsdp
for program in torch_dnn torch_compile; do
    timeout 300 "$build/cli/reveille" run -- "$environment/bin/python" "$source/tests/simcuda/$program.py"
done
for segments in False True; do
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:$segments timeout 300 "$build/cli/reveille" run -- \
        "$environment/bin/python" "$source/tests/simcuda/torch_ipc.py"
done

# Our own hooks: torch_memory_saver's interface in both modes, and the programs for a GPU.
saver() {
    local mode=$1
    shift
    RVL_LIBRARY_DIR=$build REVEILLE_AS_TORCH_MEMORY_SAVER=1 timeout 300 "$build/cli/reveille" run -- bash -c \
        'PYTHONPATH=$1/python/reveille/alias:$1/python:$PYTHONPATH; export PYTHONPATH; shift; exec env "$@"' \
        saver "$source" "$@" "$environment/bin/python" "$source/tests/simcuda/torch_saver.py" "$mode"
}
saver torch
saver preload LD_PRELOAD="$build/libreveille-preload.so"
PYTHON=$environment/bin/python SCALE=0.1 timeout 1200 "$build/cli/reveille" run --gpus 2 -- \
    bash "$source/tests/gpu_python/run.sh" "$source/build/torch_gpu_python" "$build"

timeout 300 "$build/cli/reveille" run -- env PYTHON="$environment/bin/python" \
    bash "$source/tests/gpu_python/asleep.sh" "$source/build/torch_asleep" "$build" 10 2
timeout 300 "$build/cli/reveille" run -- "$environment/bin/python" "$source/bench/gpu/turns.py" "$build" --small --rounds 1 --sleepers 2
PATH=$build/cli:$PATH RVL_LIBRARY_DIR=$build PYTHONPATH=$source/python timeout 300 "$build/cli/reveille" run -- "$environment/bin/python" \
    "$source/examples/turns/turns.py" --small

# The script for several cards, in small, so that errors show before it runs on cards.
SMALL=1 PYTHON=$environment/bin/python RANKS=2 timeout 1200 "$build/cli/reveille" run --gpus 2 --device h100-80g \
    --keep-contents 128MiB -- bash "$source/tests/gpu_python/two_cards.sh" "$source/build/torch_two_cards" "$build" 1100 \
    machine asleep nccl killed links bucket store

for backend in native cudaMallocAsync; do
    PYTORCH_CUDA_ALLOC_CONF=backend:$backend timeout 300 "$build/cli/reveille" run -- "$environment/bin/python" \
        "$source/tests/simcuda/torch_graphs.py"
done
timeout 300 "$environment/bin/python" "$source/tests/simcuda/four_ways.py" "$build/cli/reveille" --only qwen2.5-0.5b

# The 32B step compared with the card, last. It prints by how much each stage differs.
python3 "$source/tests/simcuda/torch_step.py" "$build/cli/reveille" "$environment/bin/python"
