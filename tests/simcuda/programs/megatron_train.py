# SPDX-License-Identifier: MIT
"""Training with megatron-core: three steps, and the state of PyTorch's allocator after each.

    reveille run --rank R --world N -- python megatron_train.py CONFIG.json --out OUT.json [--tp N] [--pp N] ...

Uses Megatron's own model, schedules, gradient buffers and distributed optimizer, with layers of megatron-core only. Two of its modules
need TransformerEngine or Apex, and are replaced by PyTorch's here: attention is scaled_dot_product_attention, and the norm is
torch.nn.RMSNorm, marked for sequence parallelism. Needs megatron-core (0.16.1 was used) in PYTHONPATH.

If TransformerEngine is installed, --transformer-engine uses its attention, --engine-layers uses all of its layers, and Megatron uses its
Adam. --legacy-grouped-gemm replaces the package grouped_gemm, which is CUDA only: a product of its autograd function allocates its
result, and nothing else.
"""

import argparse
import functools
import gc
import json
import os
import types

import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import (
    get_gpt_layer_local_spec,
    get_gpt_layer_with_transformer_engine_spec,
)
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.moe import grouped_gemm_util, moe_utils
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules

from stages import memory

STEPS = 3
# 0.16.1 uses this name even without TransformerEngine, but defines it only with it.
moe_utils.te_general_gemm = getattr(moe_utils, "te_general_gemm", None)


def gather_alone(gathered, mine, group=None):
    """With --rank, what other ranks send is unknown. Here all ranks send the same: which groups of parameters the optimizer has.

    A tensor is gathered anyway, since that makes a communicator.
    """
    said = torch.zeros(1, device="cuda")
    dist.all_gather([torch.empty_like(said) for _ in gathered], said, group=group)
    gathered[:] = [mine] * len(gathered)


dist.all_gather_object = gather_alone


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--out", required=True)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--pp", type=int, default=1)
    parser.add_argument("--virtual-pp", type=int, default=1, help="parts of the model on each pipeline stage (interleaved 1F1B)")
    parser.add_argument("--cp", type=int, default=1)
    parser.add_argument("--ep", type=int, default=1)
    parser.add_argument("--sp", action="store_true")
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--seq-len", type=int, default=2048)
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches of a step")
    parser.add_argument("--recompute", choices=("full", "selective"))
    parser.add_argument("--bf16-gradients", action="store_true")
    parser.add_argument("--transformer-engine", action="store_true", help="its attention, which exchanges keys and values")
    parser.add_argument("--engine-layers", action="store_true", help="TransformerEngine's layers")
    parser.add_argument("--grouped-gemm", action="store_true", help="all experts of a layer in one product")
    parser.add_argument("--legacy-grouped-gemm", action="store_true", help="the same, by the older class")
    parser.add_argument("--optimizer-offload", type=float, metavar="FRACTION", help="of the optimizer's, to the host")
    parser.add_argument("--layers", type=int, help="in place of the config's")
    parser.add_argument("--snapshot", help="where PyTorch's memory snapshot goes")
    return parser.parse_args()


class Attention(torch.nn.Module):
    """PyTorch's attention in place of TransformerEngine's: q, k, v as [tokens, batch, heads, size]."""

    def __init__(self, config, layer_number, attn_mask_type, attention_type, **_):
        super().__init__()

    def forward(self, query, key, value, *_, **__):
        grouped = query.size(2) != key.size(2)
        heads = [each.permute(1, 2, 0, 3) for each in (query, key, value)]
        attended = F.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=grouped)
        return attended.permute(2, 0, 1, 3).reshape(query.size(0), query.size(1), -1)


class GroupedProduct(torch.autograd.Function):
    """As grouped_gemm.ops.gmm: one product for each expert, all written to one tensor."""

    @staticmethod
    def forward(ctx, tokens, weights, counts):
        ctx.save_for_backward(tokens, weights, counts)
        return tokens.new_empty(tokens.shape[0], weights.shape[2])

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        tokens, weights, _ = ctx.saved_tensors
        of_tokens = gradient.new_empty(gradient.shape[0], weights.shape[1])
        of_weights = gradient.new_empty(weights.shape[0], tokens.shape[1], gradient.shape[1])
        return of_tokens, of_weights, None


def stand_in_for_grouped_gemm():
    def product(tokens, weights, counts, trans_b=False):
        assert not trans_b
        return GroupedProduct.apply(tokens, weights, counts)

    grouped_gemm_util.grouped_gemm = grouped_gemm_util.ops = types.SimpleNamespace(gmm=product)


def engine_attention():
    from megatron.core.extensions.transformer_engine import TEDotProductAttention

    return TEDotProductAttention


class Norm(torch.nn.RMSNorm):
    def __init__(self, config, hidden_size, eps=1e-5, **_):
        super().__init__(hidden_size, eps=eps, device="cuda", dtype=config.params_dtype)
        self.weight.sequence_parallel = config.sequence_parallel


def build(options, fields):
    experts = fields.get("num_local_experts") or fields.get("num_experts")
    sparse = {}
    if experts:
        capacity = {"moe_expert_capacity_factor": 1.0, "moe_pad_expert_input_to_capacity": True}
        sparse = {
            "num_moe_experts": experts,
            "moe_router_topk": fields["num_experts_per_tok"],
            "moe_ffn_hidden_size": fields.get("moe_intermediate_size", fields["intermediate_size"]),
            "moe_token_dispatcher_type": "alltoall",
            "moe_router_load_balancing_type": "none",
            "moe_grouped_gemm": options.grouped_gemm or options.legacy_grouped_gemm,
            "moe_use_legacy_grouped_gemm": options.legacy_grouped_gemm,
            **capacity,
        }
    recompute = {}
    if options.recompute == "full":
        recompute = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    elif options.recompute == "selective":
        recompute = {"recompute_granularity": "selective", "recompute_modules": ["core_attn"]}
    config = TransformerConfig(
        num_layers=options.layers or fields["num_hidden_layers"],
        hidden_size=fields["hidden_size"],
        num_attention_heads=fields["num_attention_heads"],
        num_query_groups=fields["num_key_value_heads"],
        kv_channels=fields.get("head_dim") or fields["hidden_size"] // fields["num_attention_heads"],
        ffn_hidden_size=fields["intermediate_size"],
        normalization="RMSNorm",
        activation_func=F.silu,
        gated_linear_unit=True,
        bias_activation_fusion=True,
        add_bias_linear=False,
        add_qkv_bias=fields["model_type"].startswith("qwen2"),
        qk_layernorm=fields["model_type"].startswith("qwen3"),
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bf16=True,
        params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16,
        tensor_model_parallel_size=options.tp,
        pipeline_model_parallel_size=options.pp,
        virtual_pipeline_model_parallel_size=virtual_parts(options),
        context_parallel_size=options.cp,
        expert_model_parallel_size=options.ep,
        expert_tensor_parallel_size=1,
        sequence_parallel=options.sp,
        deallocate_pipeline_outputs=True,
        gradient_accumulation_fusion=False,
        masked_softmax_fusion=False,
        persist_layer_norm=False,
        **sparse,
        **recompute,
    )
    spec, norm = layer_spec(options, config, experts)
    padding = 128 * options.tp  # as Megatron-LM pads its vocabulary
    vocabulary = (fields["vocab_size"] + padding - 1) // padding * padding
    count = config.num_layers // options.pp // options.virtual_pp
    block = TransformerBlockSubmodules(layer_specs=[spec] * count, layer_norm=norm)
    return config, [part(options, fields, config, block, vocabulary, number) for number in range(options.virtual_pp)]


def layer_spec(options, config, experts):
    """The spec of a layer, and the norm after the last."""
    kinds = {
        "num_experts": experts,
        "qk_layernorm": config.qk_layernorm,
        "moe_grouped_gemm": config.moe_grouped_gemm,
        "moe_use_legacy_grouped_gemm": config.moe_use_legacy_grouped_gemm,
    }
    if options.legacy_grouped_gemm:
        stand_in_for_grouped_gemm()
    if options.engine_layers:
        from megatron.core.extensions.transformer_engine import TENorm

        return get_gpt_layer_with_transformer_engine_spec(**kinds), TENorm
    spec = get_gpt_layer_local_spec(normalization="RMSNorm", **kinds)
    spec.submodules.input_layernorm = Norm
    spec.submodules.pre_mlp_layernorm = Norm
    attention = spec.submodules.self_attention.submodules
    attention.core_attention = engine_attention() if options.transformer_engine else Attention
    if config.qk_layernorm:
        attention.q_layernorm = attention.k_layernorm = Norm
    return spec, Norm


def virtual_parts(options):
    return options.virtual_pp if options.virtual_pp > 1 else None


def part(options, fields, config, block, vocabulary, number):
    """The part of the model in a pipeline stage, or one of several such parts."""
    stage = number if options.virtual_pp > 1 else None
    first = parallel_state.is_pipeline_first_stage(ignore_virtual=stage is None, vp_stage=stage)
    last = parallel_state.is_pipeline_last_stage(ignore_virtual=stage is None, vp_stage=stage)
    model = GPTModel(
        config=config,
        transformer_layer_spec=block,
        vocab_size=vocabulary,
        max_sequence_length=options.seq_len,
        pre_process=first,
        post_process=last,
        share_embeddings_and_output_weights=fields.get("tie_word_embeddings", False),
        position_embedding_type="rope",
        rotary_base=int(fields.get("rope_theta", 10000)),
        vp_stage=stage,
    )
    model.cuda()
    model.bfloat16()
    return model


def batches(options, fields):
    """The same micro-batch again and again, as each context-parallel rank gets it."""
    tokens = options.seq_len // options.cp
    ids = torch.randint(0, fields["vocab_size"], (options.micro_batch, tokens), device="cuda")
    positions = torch.arange(tokens, device="cuda").unsqueeze(0).expand_as(ids)
    while True:
        yield ids, positions


def forward_step(iterator, model):
    ids, positions = next(iterator)

    def loss(output):
        mean = output.float().mean()
        return mean, {"loss": mean.detach()}

    return model(ids, positions, None, labels=ids), loss


def main():
    options = arguments()
    with open(options.config, encoding="utf-8") as file:
        fields = json.load(file)
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=options.tp,
        pipeline_model_parallel_size=options.pp,
        virtual_pipeline_model_parallel_size=virtual_parts(options),
        context_parallel_size=options.cp,
        expert_model_parallel_size=options.ep,
        expert_tensor_parallel_size=1,
        create_gloo_process_groups=False,
    )
    model_parallel_cuda_manual_seed(0)
    config, parts = build(options, fields)
    reduction = DistributedDataParallelConfig(
        grad_reduce_in_fp32=not options.bf16_gradients, use_distributed_optimizer=True, overlap_grad_reduce=False
    )
    models = [DistributedDataParallel(config, reduction, each) for each in parts]
    offload = {}
    if options.optimizer_offload is not None:
        offload = {
            "optimizer_cpu_offload": True,
            "optimizer_offload_fraction": options.optimizer_offload,
            "use_precision_aware_optimizer": True,  # as Megatron-LM requests
        }
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer="adam", lr=1e-5, bf16=True, params_dtype=torch.bfloat16, use_distributed_optimizer=True, **offload
        ),
        models,
        use_gloo_process_groups=False,
    )
    config.grad_scale_func = optimizer.scale_loss
    config.finalize_model_grads_func = finalize_model_grads
    read = {"loaded": memory(), "parameters": sum(p.numel() for each in parts for p in each.parameters())}
    data = batches(options, fields)
    step = functools.partial(
        get_forward_backward_func(),
        forward_step_func=forward_step,
        data_iterator=data if options.virtual_pp == 1 else [data] * options.virtual_pp,
        model=models,
        num_microbatches=options.accumulate,
        seq_length=options.seq_len,
        micro_batch_size=options.micro_batch,
        forward_only=False,
    )
    gc.collect()  # as Megatron-LM does with --manual-gc: a replaced optimizer is in a reference cycle
    if options.snapshot:
        torch.cuda.memory._record_memory_history(max_entries=2000000, stacks="python", context="all")
    for number in range(STEPS):
        torch.cuda.reset_peak_memory_stats()
        for model in models:
            model.zero_grad_buffer()
        optimizer.zero_grad()
        step()
        passed = memory()
        optimizer.step()
        read[f"step{number}"] = {"after_backward": passed, "end": memory()}
    read["rank"] = {"tp": parallel_state.get_tensor_model_parallel_rank(), "world": dist.get_world_size(),
                    "stage": parallel_state.get_pipeline_model_parallel_rank(), "rank": rank}  # fmt: skip
    if options.snapshot:
        torch.cuda.memory._dump_snapshot(options.snapshot)
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(read, file, indent=1)


main()
