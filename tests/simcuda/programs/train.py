# SPDX-License-Identifier: MIT
"""Training of a transformers model with FSDP2, DDP or neither: three steps, and the state of PyTorch's allocator after each part.

    python -m torch.distributed.run --nproc-per-node N train.py CONFIG.json --out OUT.json

On a card or under `reveille run`. Rank 0 writes the file. --lora needs peft, --loss fused liger-kernel, --base-dtype nf4 and the 8-bit
and paged optimizers bitsandbytes, --offload-activations trl.
"""

import argparse
import contextlib
import json
import os
import types

import torch
import torch.distributed as dist
import torch.nn.functional as F
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor.experimental import context_parallel
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel

from shrunk import shrunk
from stages import memory
from within import enclosed

NOT_OF_THE_MODEL = ("model_type", "architectures", "transformers_version", "torch_dtype", "dtype")
STEPS = 3
CHUNKS = 8
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH}  # fmt: skip
ALL_LINEAR = "all-linear"
OPTIMIZERS = {"adamw-8bit": "AdamW8bit", "paged-adamw-8bit": "PagedAdamW8bit", "paged-adamw-32bit": "PagedAdamW32bit"}
ALONE = ("gemma3n",)  # its class also needs its towers' embeddings for text, and does not run without them
TOWERS = ("visual", "vision_tower", "vision_model", "multi_modal_projector")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--out", required=True)
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--seq-len", type=int, default=2048)
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--reshard", action="store_true")
    parser.add_argument("--ddp", action="store_true")
    parser.add_argument("--whole", action="store_true", help="all of it on one GPU, without FSDP2 and DDP")
    parser.add_argument("--reduce-fp32", action="store_true")
    parser.add_argument("--attention", choices=sorted(BACKENDS), help="default: what PyTorch takes first")
    parser.add_argument("--loss", default="plain", help="plain, chunked, chunked:N, or fused")
    parser.add_argument("--lora", type=int, metavar="RANK")
    parser.add_argument("--lora-targets", choices=("peft", ALL_LINEAR), default="peft")
    parser.add_argument("--base-dtype", choices=("bf16", "nf4"), default="bf16", help="nf4: with --lora")
    parser.add_argument("--single-quant", action="store_true", help="nf4: scales stay in fp32")
    parser.add_argument("--adapter-dtype", choices=("fp32", "bf16"), default="fp32", help="bf16: as TRL has them")
    parser.add_argument("--prepare-kbit", action="store_true", help="PEFT's prepare_model_for_kbit_training()")
    parser.add_argument("--autocast", action="store_true", help="the forward pass in torch.autocast(bfloat16)")
    parser.add_argument("--optimizer", choices=("adamw", "adamw-fused", *OPTIMIZERS), default="adamw")
    parser.add_argument("--accumulate", type=int, default=1, help="passes before the optimizer's step")
    parser.add_argument("--offload-activations", action="store_true", help="as TRL does it")
    parser.add_argument("--cpu-offload", action="store_true", help="FSDP: shards, their gradients and states on the host")
    parser.add_argument("--cp", type=int, default=1, help="ranks that share a sequence, by PyTorch's context_parallel()")
    parser.add_argument("--layers", type=int, help="instead of the config's")
    parser.add_argument("--experts", type=int, help="the same of each layer")
    parser.add_argument("--eager", action="store_true", help="attention by plain operations, for what has no other")
    parser.add_argument("--snapshot", help="where PyTorch's memory snapshot of rank 0 goes")
    return parser.parse_args()


def without_towers(model):
    """The language model of a model that also reads images, trained on text only."""
    for name in TOWERS:
        if getattr(model.model, name, None) is not None:
            setattr(model.model, name, None)
    return model


def layers_of(model):
    return getattr(model.model, "language_model", model.model).layers


def configured(options):
    with open(options.config, encoding="utf-8") as file:
        fields = enclosed(shrunk(json.load(file), options.layers, options.experts))
    kind = transformers.CONFIG_MAPPING[fields["model_type"]]
    config = kind(**{key: value for key, value in fields.items() if key not in NOT_OF_THE_MODEL})
    return config.text_config if config.model_type in ALONE else config


def adapted(model, options):
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

    targets = options.lora_targets if options.lora_targets == ALL_LINEAR else None
    if options.prepare_kbit:
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    model = get_peft_model(model, LoraConfig(r=options.lora, target_modules=targets, task_type="CAUSAL_LM"))
    if options.adapter_dtype == "bf16":  # as TRL does after PEFT, trl/trainer/sft_trainer.py
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(torch.bfloat16)
    return model


def fill(model):
    """Fills in arbitrary weights, and the angles of the positions."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.normal_(0, 0.02) if parameter.dim() > 1 else parameter.fill_(1)
        for name, buffer in model.named_buffers():
            if "inv_freq" in name:
                count = buffer.numel()
                buffer.copy_(1.0 / (10000 ** (torch.arange(0, count, device="cuda").float() / count)))


def freeze_indexers(model):
    """Indexers choose tokens without gradients, and DDP refuses parameters without gradients."""
    for name, parameter in model.named_parameters():
        if ".indexer." in name:
            parameter.requires_grad_(False)


def quantised(config, options):
    """As from_pretrained loads a checkpoint in bf16: each weight is copied to the card, and quantised there."""
    vars(config).pop("quantization_config", None)  # of the published checkpoint, which has other types
    with torch.device("meta"):
        empty = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    zero = torch.zeros((), dtype=torch.bfloat16)
    storage = torch.uint8 if options.ddp or options.whole else torch.bfloat16  # FSDP2 cannot shard bytes
    bits = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16,
                                           bnb_4bit_use_double_quant=not options.single_quant,
                                           bnb_4bit_quant_storage=storage)  # fmt: skip
    weights = {name: zero.expand(each.shape) for name, each in empty.state_dict().items()
               if name not in empty.all_tied_weights_keys}  # fmt: skip
    return type(empty).from_pretrained(None, config=config, state_dict=weights, dtype=torch.bfloat16,
                                       attn_implementation="eager" if options.eager else "sdpa",
                                       quantization_config=bits, device_map={"": torch.cuda.current_device()})  # fmt: skip


def kind_of(config):
    """The class of a config's model. mistral4 is in no table of transformers 5.17."""
    if config.model_type == "mistral4":
        return transformers.Mistral4ForCausalLM
    return transformers.AutoModelForImageTextToText if hasattr(config, "text_config") else transformers.AutoModelForCausalLM


def made(config, options):
    attention = "eager" if options.eager else "sdpa"
    make = getattr(kind_of(config), "from_config", None) or kind_of(config)._from_config
    return without_towers(make(config, dtype=torch.bfloat16, attn_implementation=attention))


def chunked_loss(head, hidden, labels, chunks):
    """Cross entropy of the tokens in parts, as in torchtune's LinearCrossEntropyLoss."""
    sums = [F.cross_entropy(head(part).float(), each, reduction="sum", ignore_index=-100)
            for part, each in zip(hidden.chunk(chunks), labels.chunk(chunks))]  # fmt: skip
    return torch.stack(sums).sum() / labels.numel()


def fused_loss(head, hidden, labels, chunks):
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    return LigerFusedLinearCrossEntropyLoss()(head.weight, hidden, labels)


def with_loss(model, kind):
    """Replaces head and loss, inside what FSDP sees as the model's forward pass."""
    name, _, count = kind.partition(":")
    loss = {"chunked": chunked_loss, "fused": fused_loss}[name]

    def forward(self, input_ids, labels, shift_labels=None, position_ids=None):
        hidden = self.model(input_ids=input_ids, position_ids=position_ids, use_cache=False).last_hidden_state
        shifted = F.pad(labels, (0, 1), value=-100)[..., 1:].contiguous() if shift_labels is None else shift_labels
        shifted = shifted.view(-1)
        hidden = hidden.view(-1, hidden.shape[-1])
        return {"loss": loss(self.lm_head, hidden, shifted, int(count or CHUNKS))}

    model.forward = types.MethodType(forward, model)


def sharded(options):
    """The model on this rank's card, with sharded layers and arbitrary weights."""
    config = configured(options)
    loaded = options.base_dtype == "nf4"
    place = contextlib.nullcontext() if loaded else torch.device("meta")
    with place:
        model = quantised(config, options) if loaded else made(config, options)
    model.config.use_cache = model.config.get_text_config().use_cache = False
    base = model
    if options.recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if options.loss != "plain":
        with_loss(base, options.loss)
    if options.lora:
        with place:
            model = adapted(model, options)
        if options.recompute:
            model.enable_input_require_grads()
    model.train()
    if not options.ddp and not options.whole:
        policy = MixedPrecisionPolicy(reduce_dtype=torch.float32 if options.reduce_fp32 else None)
        settings = {"reshard_after_forward": options.reshard, "mp_policy": policy,
                    "offload_policy": CPUOffloadPolicy() if options.cpu_offload else OffloadPolicy()}  # fmt: skip
        for layer in layers_of(base):
            fully_shard(layer, **settings)
        fully_shard(model, **settings)
    if not loaded:
        model.to_empty(device="cpu" if options.cpu_offload else "cuda")
        to_device_buffers(model)
        fill(model)
    if options.ddp or options.whole:
        base.tie_weights()
        freeze_indexers(base)
        model = DistributedDataParallel(model) if options.ddp else model
    return model, config


def optimizer_of(trained, name):
    if name == "adamw":
        return torch.optim.AdamW(trained, lr=1e-5, foreach=True)
    if name == "adamw-fused":
        return torch.optim.AdamW(trained, lr=1e-5, fused=True)
    import bitsandbytes.optim

    return getattr(bitsandbytes.optim, OPTIMIZERS[name])(trained, lr=1e-5)


def to_device_buffers(model):
    """Buffers are not sharded, and stay on the card."""
    for module in model.modules():
        for name, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, name, buffer.to("cuda"))


def offload(model, options):
    """A context that offloads what the forward pass keeps, as in TRL's trainers."""
    if not options.offload_activations:
        return contextlib.nullcontext()
    from trl.models.activation_offloading import get_act_offloading_ctx_manager

    return get_act_offloading_ctx_manager(model)


def cast(options):
    return torch.autocast("cuda", torch.bfloat16) if options.autocast else contextlib.nullcontext()


def attention(options):
    return sdpa_kernel(BACKENDS[options.attention]) if options.attention else contextlib.nullcontext()


def without_mask(module, arguments, named):
    """As in accelerate: part of a sequence is attended to with only a causal mask."""
    if "attention_mask" in named:
        named = {**named, "attention_mask": None, "is_causal": True}
    return arguments, named


@contextlib.contextmanager
def parts(mesh, ids):
    """The input of a rank's model: its part of each sequence, as in transformers' Trainer."""
    if mesh is None:
        yield {"input_ids": ids, "labels": ids}
        return
    mine, positions = ids.clone(), torch.arange(ids.shape[1], device="cuda").expand(ids.shape).contiguous()
    labels = F.pad(ids, (0, 1), value=-100)[:, 1:].contiguous()
    with context_parallel(mesh, buffers=[mine, labels, positions], buffer_seq_dims=[1, 1, 1],
                          no_restore_buffers={mine, labels, positions}):
        yield {"input_ids": mine, "labels": labels, "shift_labels": labels, "position_ids": positions}


def sequence_ranks(model, options):
    """The ranks that share sequences with this one. None: there are no others."""
    if options.cp == 1:
        return None
    for name, module in model.named_modules():
        if name.endswith("self_attn"):
            module.register_forward_pre_hook(without_mask, with_kwargs=True)
    ranks = dist.get_world_size()
    return init_device_mesh("cuda", (ranks // options.cp, options.cp), mesh_dim_names=("dp", "cp"))["cp"]


def step(model, optimizer, ids, kept, mesh, options):
    torch.cuda.reset_peak_memory_stats()
    read = {}
    with torch.profiler.record_function("stage:train"), attention(options):
        for _ in range(options.accumulate):
            with parts(mesh, ids) as inputs:
                with kept, cast(options):
                    loss = model(**inputs)["loss"]
                read["after_forward"] = memory()
                loss.backward()
                del inputs
        read["after_backward"] = memory()
        optimizer.step()
        read["after_step"] = memory()
        optimizer.zero_grad(set_to_none=True)
    del loss
    read["end"] = {**memory(), "max_host": torch.cuda.host_memory_stats()["allocated_bytes.peak"]}
    return read


def main():
    options = arguments()
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    model, config = sharded(options)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = optimizer_of(trained, options.optimizer)
    read = {"loaded": memory()}
    ids = torch.randint(0, config.get_text_config().vocab_size, (options.micro_batch, options.seq_len), device="cuda")
    if options.snapshot and rank == 0:
        torch.cuda.memory._record_memory_history(max_entries=2000000, stacks="python", context=None)
    kept = offload(model, options)
    mesh = sequence_ranks(model, options)
    for number in range(STEPS):
        read[f"step{number}"] = step(model, optimizer, ids, kept, mesh, options)
    if rank == 0:
        if options.snapshot:
            torch.cuda.memory._dump_snapshot(options.snapshot)
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(read, file, indent=1)
    dist.destroy_process_group()


main()
