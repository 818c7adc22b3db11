#!/bin/bash
# SPDX-License-Identifier: MIT
# verl's GRPO with FSDP2, unedited, on weights that are zeros: job.sh FOLDER [OPTION]... [SETTING]...
#   --engine vllm|sglang   what generates (default: vllm)
#   --config FILE          the model's config.json (default: a Qwen2 of 3.3 million weights)
#   --gpus N, --tp N       GPUs, and how many share an engine (default: 2 and 1)
#   --steps N              (default: 2)
#   --tokens N             of each answer (default: 24)
# FOLDER keeps the model, the prompts and verl's log (said.jsonl). A SETTING is verl's own, and comes last.
# PYTHON has verl (default: python3); REVEILLE is the command `reveille` (default: that in PATH).
set -euo pipefail
folder=$1
shift
engine=vllm config= gpus=2 tp=1 steps=2 tokens=24
while [[ "${1-}" == --* ]]; do
    case $1 in
    --engine | --config | --gpus | --tp | --steps | --tokens) declare "${1#--}=$2" ;;
    *) echo "job.sh: no option $1" >&2 && exit 2 ;;
    esac
    shift 2
done
python=${PYTHON-python3}
here=$(cd "$(dirname "$0")" && pwd)
if [ ! -f "$folder/prompts.parquet" ]; then
    "$python" "$here/job.py" "$folder" ${config:+"$config"}
    "${REVEILLE-reveille}" weights --python "$python" "$folder/config/config.json" "$folder/model"
    cp "$folder"/tokenizer/* "$folder/model"
fi

# No network. FlashInfer's kernels and flash-attn would be compiled by nvcc when they are first used. So the actor's attention is
# PyTorch's, vLLM's sampler is its own, and SGLang's attention is Triton's.
export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_USE_FLASHINFER_SAMPLER=0 RAY_USAGE_STATS_ENABLED=0
own=()
[ "$engine" != sglang ] || own=(+actor_rollout_ref.rollout.engine_kwargs.sglang.{attention_backend=triton,sampling_backend=pytorch})
export VERL_FILE_LOGGER_PATH=$folder/said.jsonl
rm -f "$VERL_FILE_LOGGER_PATH"
actor=actor_rollout_ref.actor reference=actor_rollout_ref.ref rollout=actor_rollout_ref.rollout
exec "$python" -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \
    data.train_files="$folder/prompts.parquet" data.val_files="$folder/prompts.parquet" data.dataloader_num_workers=0 \
    data.train_batch_size=8 data.max_prompt_length=32 data.max_response_length="$tokens" \
    actor_rollout_ref.model.path="$folder/model" +actor_rollout_ref.model.override_config.attn_implementation=sdpa \
    $actor.strategy=fsdp2 $reference.strategy=fsdp2 $actor.use_kl_loss=True $actor.ppo_mini_batch_size=8 \
    $actor.ppo_micro_batch_size_per_gpu=4 $reference.log_prob_micro_batch_size_per_gpu=4 \
    $rollout.log_prob_micro_batch_size_per_gpu=4 $rollout.name="$engine" $rollout.n=4 \
    $rollout.tensor_model_parallel_size="$tp" $rollout.gpu_memory_utilization=0.4 $rollout.agent.num_workers=1 \
    reward.num_workers=1 reward.custom_reward_function.path="$here/job.py" \
    transfer_queue.backend.SimpleStorage.num_data_storage_units=1 ray_kwargs.ray_init.num_cpus=$((8 + 4 * gpus)) \
    trainer.logger='["console","file"]' trainer.nnodes=1 trainer.n_gpus_per_node="$gpus" trainer.val_before_train=False \
    trainer.resume_mode=disable trainer.total_training_steps="$steps" \
    trainer.default_local_dir="$folder/checkpoints" hydra.run.dir="$folder/hydra" "${own[@]}" "$@"
