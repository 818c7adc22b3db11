#!/bin/bash
# SPDX-License-Identifier: MIT
# verl's GRPO with FSDP2 and vLLM on two simulated H100s, unedited: two whole steps, and a table of verl's own phases.
#   tests/frameworks/verl.sh REVEILLE [VERSION [SETTING]...]      default: 0.9.1
# Installs verl with vLLM into an environment of its own (some 10 GB). Not part of the test suite. Exits with 77 where it
# cannot be installed.
# REVEILLE_VERL: the environment; default: ~/.cache/reveille-verl
set -euo pipefail
reveille=$1
version=${2-0.9.1}
source=$(cd "$(dirname "$0")/../.." && pwd)
environment=${REVEILLE_VERL-$HOME/.cache/reveille-verl}
python=$environment/bin/python

skip() {
    echo "SKIP: $*"
    exit 77
}

if ! "$python" -c "import importlib.metadata as m, vllm, transfer_queue; assert m.version('verl') == '$version'" 2>/dev/null; then
    python3 -m venv "$environment" || skip "there is no venv"
    # A build of PyTorch without CUDA may lie in a folder that pip is configured with.
    PIP_FIND_LINKS='' timeout 3600 "$environment/bin/pip" install --quiet "torch===2.11.0" "vllm==0.24.0" "verl==$version" \
        "TransferQueue>=0.1.10" nvtx matplotlib cachetools || skip "pip could not install verl==$version"
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"; kill ${looking-} 2>/dev/null || true' EXIT
"$python" "$source/tests/frameworks/verl_grpo.py" "$folder"
"$reveille" weights --python "$python" "$folder/config/config.json" "$folder/model"
cp "$folder"/tokenizer/* "$folder/model"

# No network; vLLM's own sampler, since FlashInfer's is compiled by nvcc when it is first used. flash-attn would be compiled, too,
# so the actor's attention is PyTorch's.
export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_USE_FLASHINFER_SAMPLER=0 RAY_USAGE_STATS_ENABLED=0
export VERL_FILE_LOGGER_PATH=$folder/said.jsonl
# With Reveille in the place of vLLM's allocator: the page's look at the processes, until it finds our library in one.
looking=
if [[ "${*:3}" == *REVEILLE_AS_CUMEM* ]]; then
    look=$(grep '^for pid in ' "$source/docs/guides/adopt/verl.md")
    until [ -n "$(bash -c "$look" | xargs -r grep -l "$environment/.*libreveille.so" 2>/dev/null)" ]; do sleep 2; done &
    looking=$!
fi
actor=actor_rollout_ref.actor rollout=actor_rollout_ref.rollout
size() { "$python" -c "import sys; sys.path[:0] = ['$source/tests/frameworks']; import verl_grpo; print(verl_grpo.$1)"; }
"$reveille" run --device h100-80g --gpus 2 --stages verl. --json="$folder/run.json" -- "$python" -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_files="$folder/prompts.parquet" data.val_files="$folder/prompts.parquet" data.dataloader_num_workers=0 \
    data.train_batch_size="$(size PROMPTS)" data.max_prompt_length=32 data.max_response_length="$(size NEW_TOKENS)" \
    actor_rollout_ref.model.path="$folder/model" +actor_rollout_ref.model.override_config.attn_implementation=sdpa \
    $actor.strategy=fsdp2 actor_rollout_ref.ref.strategy=fsdp2 $actor.use_kl_loss=True \
    $actor.ppo_mini_batch_size="$(size PROMPTS)" $actor.ppo_micro_batch_size_per_gpu=4 \
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4 $rollout.log_prob_micro_batch_size_per_gpu=4 \
    $rollout.name=vllm $rollout.n="$(size GENERATIONS)" $rollout.tensor_model_parallel_size=1 $rollout.gpu_memory_utilization=0.4 \
    hydra.run.dir="$folder/hydra" $rollout.agent.num_workers=1 reward.num_workers=1 reward.custom_reward_function.path="$source/tests/frameworks/verl_grpo.py" \
    transfer_queue.backend.SimpleStorage.num_data_storage_units=1 ray_kwargs.ray_init.num_cpus=16 \
    trainer.logger='["console","file"]' trainer.nnodes=1 trainer.n_gpus_per_node=2 trainer.val_before_train=False \
    trainer.resume_mode=disable trainer.total_training_steps="$(size STEPS)" trainer.default_local_dir="$folder/checkpoints" "${@:3}"
if [ -n "$looking" ]; then
    ! kill "$looking" 2>/dev/null || { echo "our library was in none of the processes" >&2 && exit 1; }
    echo "our library was in a process of verl's"
fi
"$python" "$source/tests/frameworks/verl_check.py" "$folder/said.jsonl" "$folder/run.json"
