#!/bin/bash
# SPDX-License-Identifier: MIT
# megatron-core on simulated GPUs: makes tests/simcuda/truth/megatron-*.json. Not part of the test suite: it takes 15 minutes. Run
# torch.sh before: this uses its environment and its build.
#
#   tests/simcuda/megatron.sh [FOLDER]      FOLDER: for the results; default: tests/simcuda/truth
#
# REVEILLE_TORCH as in torch.sh. REVEILLE_MEGATRON: the folder of megatron-core; default: ~/.cache/reveille-megatron
# REVEILLE_TRANSFORMER_ENGINE: a Python environment with PyTorch and TransformerEngine (2.20.2 was used), with its part for PyTorch built
# from source. Without it, the programs behind "if" are skipped: those with context parallelism, which megatron-core refuses otherwise,
# with TransformerEngine's layers, and with its Adam.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
out=$(realpath "${1-$source/tests/simcuda/truth}")
environment=${REVEILLE_TORCH-$HOME/.cache/reveille-torch}
megatron=${REVEILLE_MEGATRON-$HOME/.cache/reveille-megatron}
reveille=$source/build/torch/cli/reveille
configs=$source/tests/data/configs

[ -x "$reveille" ] || {
    echo "SKIP: run tests/simcuda/torch.sh first"
    exit 77
}
[ -d "$megatron/megatron" ] ||
    timeout 600 python3 -m pip install --quiet --no-deps --target "$megatron" megatron-core==0.16.1 einops==0.8.2
export PYTHONPATH=$megatron
python=$environment/bin/python

# train NAME RANK WORLD CONFIG OPTION...: one rank of a job
train() {
    local name=$1 rank=$2 world=$3 config=$4
    shift 4
    echo "$name"
    timeout 600 "$reveille" run --rank "$rank" --world "$world" --device h200 -- "$python" \
        "$source/tests/simcuda/programs/megatron_train.py" "$configs/$config.json" \
        --out "$out/megatron-$name.json" "$@"
}

train tp2 0 2 llama-3.2-1b --tp 2 --seq-len 2048 --micro-batch 2
train tp2-sp 0 2 llama-3.2-1b --tp 2 --sp --seq-len 4096 --micro-batch 2
train pp2-first 0 2 llama-3.2-1b --pp 2 --seq-len 2048 --accumulate 4
train pp2-last 1 2 llama-3.2-1b --pp 2 --seq-len 2048 --accumulate 4
train dp2 0 2 qwen3-0.6b --seq-len 4096 --accumulate 2
train tp2-pp2-dp2-sp-recompute 2 8 llama-3.1-8b --tp 2 --pp 2 --sp --seq-len 4096 --accumulate 4 --recompute full
train tp4-sp-selective-bf16 0 4 qwen2.5-7b --tp 4 --sp --seq-len 4096 --accumulate 2 --recompute selective --bf16-gradients
train ep2 0 2 qwen3-30b-a3b --ep 2 --seq-len 1024 --layers 2
train pp4-second 1 4 llama-3.2-1b --pp 4 --seq-len 4096 --accumulate 6
train dp4-bf16 0 4 qwen2.5-0.5b --micro-batch 2 --seq-len 2048 --bf16-gradients
train tp2-recompute 0 2 llama-3.2-1b --tp 2 --recompute full --seq-len 8192
train ep4-tp2-sp 0 8 qwen3-30b-a3b --tp 2 --sp --ep 4 --seq-len 2048 --layers 3 --accumulate 2
train ep8-recompute 0 8 mixtral-8x7b-v0.1 --ep 8 --seq-len 4096 --layers 2 --recompute full
train pp2-vpp2-first 0 2 llama-3.2-1b --pp 2 --virtual-pp 2 --seq-len 2048 --accumulate 4
train pp2-vpp2-last 1 2 llama-3.2-1b --pp 2 --virtual-pp 2 --seq-len 2048 --accumulate 4
train pp4-vpp2-second 1 4 llama-3.2-1b --pp 4 --virtual-pp 2 --seq-len 4096 --accumulate 8
train pp4-vpp3-first 0 4 qwen2.5-0.5b --pp 4 --virtual-pp 3 --seq-len 2048 --accumulate 8
train pp4-vpp3-third 2 4 qwen2.5-0.5b --pp 4 --virtual-pp 3 --seq-len 2048 --accumulate 12
train pp4-vpp3-last 3 4 qwen2.5-0.5b --pp 4 --virtual-pp 3 --seq-len 2048 --accumulate 8
train pp2-vpp3-last 1 2 qwen2.5-0.5b --pp 2 --virtual-pp 3 --seq-len 2048 --accumulate 2
train pp2-vpp4-first 0 2 llama-3.2-1b --pp 2 --virtual-pp 4 --seq-len 2048 --accumulate 6
train pp4-vpp4-second 1 4 llama-3.2-1b --pp 4 --virtual-pp 4 --seq-len 4096 --accumulate 8
train pp4-vpp2-first 0 4 llama-3.2-1b --pp 4 --virtual-pp 2 --seq-len 2048 --accumulate 4
if [ -n "${REVEILLE_TRANSFORMER_ENGINE-}" ]; then
    python=$REVEILLE_TRANSFORMER_ENGINE/bin/python
    train cp2 0 2 llama-3.2-1b --cp 2 --seq-len 4096 --transformer-engine
    train cp2-last 1 2 llama-3.2-1b --cp 2 --seq-len 4096 --transformer-engine
    train cp4 0 4 llama-3.2-1b --cp 4 --seq-len 8192 --transformer-engine
    train cp2-tp2-sp 0 4 qwen3-0.6b --cp 2 --tp 2 --sp --seq-len 8192 --accumulate 2 --transformer-engine
    train cp4-recompute 0 4 qwen2.5-0.5b --cp 4 --seq-len 32768 --recompute full --transformer-engine
    train cp2-selective 0 2 llama-3.2-1b --cp 2 --seq-len 8192 --recompute selective --transformer-engine
    train te-dp2 0 2 qwen3-0.6b --seq-len 4096 --accumulate 2 --engine-layers
    train te-tp2-sp 0 2 llama-3.2-1b --tp 2 --sp --seq-len 4096 --micro-batch 2 --engine-layers
    train te-pp2-last 1 2 llama-3.2-1b --pp 2 --seq-len 2048 --accumulate 4 --engine-layers
    train te-pp2-vpp2-last 1 2 llama-3.2-1b --pp 2 --virtual-pp 2 --seq-len 2048 --accumulate 4 --engine-layers
    train te-pp4-vpp2-second 1 4 llama-3.2-1b --pp 4 --virtual-pp 2 --seq-len 4096 --accumulate 8 --engine-layers
    train te-tp2-pp2-dp2-sp-recompute 2 8 llama-3.1-8b --tp 2 --pp 2 --sp --seq-len 4096 --accumulate 4 --recompute full \
        --engine-layers
    train te-tp4-sp-selective-bf16 0 4 qwen2.5-7b --tp 4 --sp --seq-len 4096 --accumulate 2 --recompute selective \
        --bf16-gradients --engine-layers
    train te-tp2-recompute 0 2 llama-3.2-1b --tp 2 --recompute full --seq-len 8192 --engine-layers
    train te-dp4-bf16 0 4 qwen2.5-0.5b --micro-batch 2 --seq-len 2048 --bf16-gradients --engine-layers
    train te-cp2 0 2 llama-3.2-1b --cp 2 --seq-len 4096 --engine-layers
    train te-cp4-recompute 0 4 qwen2.5-0.5b --cp 4 --seq-len 32768 --recompute full --engine-layers
    train te-cp2-selective 0 2 llama-3.2-1b --cp 2 --seq-len 8192 --recompute selective --engine-layers
    train te-ep2 0 2 qwen3-30b-a3b --ep 2 --seq-len 1024 --layers 2 --engine-layers
    train te-ep8-recompute 0 8 mixtral-8x7b-v0.1 --ep 8 --seq-len 4096 --layers 2 --recompute full --engine-layers
    train te-ep2-grouped 0 2 qwen3-30b-a3b --ep 2 --seq-len 1024 --layers 2 --engine-layers --grouped-gemm
    train te-ep4-tp2-sp-grouped 0 8 qwen3-30b-a3b --tp 2 --sp --ep 4 --seq-len 2048 --layers 3 --accumulate 2 \
        --engine-layers --grouped-gemm
    train te-ep8-recompute-grouped 0 8 mixtral-8x7b-v0.1 --ep 8 --seq-len 4096 --layers 2 --recompute full \
        --engine-layers --grouped-gemm
    train te-pp2-ep4-grouped-first 0 8 qwen3-30b-a3b --pp 2 --ep 4 --seq-len 2048 --layers 4 --accumulate 4 \
        --engine-layers --grouped-gemm
    train te-ep8-recompute-legacy 0 8 mixtral-8x7b-v0.1 --ep 8 --seq-len 4096 --layers 2 --recompute full \
        --engine-layers --legacy-grouped-gemm
    train ep2-legacy 0 2 qwen3-30b-a3b --ep 2 --seq-len 1024 --layers 2 --legacy-grouped-gemm
    train ep4-tp2-sp-legacy 0 8 qwen3-30b-a3b --tp 2 --sp --ep 4 --seq-len 2048 --layers 3 --accumulate 2 \
        --legacy-grouped-gemm
    train offload 0 4 qwen2.5-0.5b --seq-len 1024 --optimizer-offload 1
    train offload-half 0 4 qwen2.5-0.5b --seq-len 1024 --optimizer-offload 0.5
    train offload-tp2-sp-quarter 0 4 llama-3.2-1b --tp 2 --sp --seq-len 4096 --optimizer-offload 0.25
    train offload-ep8-bf16-half 0 8 qwen3-30b-a3b --ep 8 --layers 2 --seq-len 1024 --optimizer-offload 0.5 \
        --bf16-gradients
    train te-offload-half 0 4 qwen3-0.6b --seq-len 4096 --accumulate 2 --optimizer-offload 0.5 --engine-layers
fi
"$environment/bin/python" "$source/tests/predict/megatron_truth.py" "$reveille" "$out"
