#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""One step of reinforcement learning on one card: vLLM generates, FSDP2 trains, and they take turns.

    reveille run --device h200 --stages-nvtx stage: -- python rl_engine.py
    reveille run --device h200 --stages-nvtx stage: -- python rl_engine.py --together

It uses only what vLLM and PyTorch offer: sleep mode, weight transfer by CUDA IPC, NVTX ranges. The
weights are random. --together wakes everything at once. On a card it runs without `reveille run`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import setproctitle  # vLLM needs it, too

PROMPTS, PROMPT_TOKENS, NEW_TOKENS = 16, 512, 16
GIB = 1 << 30

# Qwen2.5-7B
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}


class Readings:
    """What a worker of vLLM answers about its memory; vLLM mixes this class into its own."""

    def memory(self) -> dict[str, Any]:
        import torch
        from vllm.device_allocator.cumem import CuMemAllocator

        awake: dict[str, int] = {}
        asleep = 0
        for each in CuMemAllocator.get_instance().pointer_to_data.values():
            awake[each.tag] = awake.get(each.tag, 0) + each.handle[1] * (not each.is_asleep)
            asleep += each.handle[1] * each.is_asleep
        free, total = torch.cuda.mem_get_info()
        reserved = torch.cuda.memory_reserved() - asleep  # PyTorch's count has what sleeps
        return {"used": total - free, "awake": awake, "reserved": reserved}


class Engine:
    """vLLM, in a process of its own."""

    def __init__(self, folder: str, options: argparse.Namespace) -> None:
        from vllm import LLM, SamplingParams
        from vllm.config import WeightTransferConfig

        self.llm = LLM(
            model=folder,
            load_format="dummy",
            skip_tokenizer_init=True,
            enable_sleep_mode=True,
            enforce_eager=options.eager,
            gpu_memory_utilization=options.mem_fraction,
            max_model_len=2048,
            weight_transfer_config=WeightTransferConfig(backend="ipc"),
            worker_extension_cls="rl_engine.Readings",
        )
        self.wanted = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True, detokenize=False)

    def generate(self) -> list[list[int]]:
        """A prompt and what was made of it, for each prompt."""
        prompts = [[5 + i] * PROMPT_TOKENS for i in range(PROMPTS)]
        asked = [{"prompt_token_ids": each} for each in prompts]
        out = self.llm.generate(asked, self.wanted, use_tqdm=False)
        return [prompt + list(each.outputs[0].token_ids) for prompt, each in zip(prompts, out)]

    def memory(self) -> dict[str, Any]:
        return self.llm.collective_rpc("memory")[0]

    def shutdown(self) -> None:
        """Also after a failure, when vLLM would leave its process behind."""
        self.llm.llm_engine.engine_core.shutdown()

    # ---- What vLLM's sender of weights calls ----

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self.llm.collective_rpc("init_weight_transfer_engine", args=(init_info,))

    def start_weight_update(self) -> None:
        self.llm.collective_rpc("start_weight_update")

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.llm.collective_rpc("update_weights", args=(update_info,))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self.llm.collective_rpc("finish_weight_update")


class Trainer:
    """FSDP2 with one rank, in this process."""

    def __init__(self, folder: str) -> None:
        """It takes no memory of the card before it loads."""
        self.folder = folder

    def load(self) -> None:
        import torch
        import torch.distributed as dist
        from torch.distributed.fsdp import fully_shard
        from transformers import AutoConfig, AutoModelForCausalLM

        torch.cuda.set_device(0)
        if not dist.is_initialized():
            dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
        config = AutoConfig.from_pretrained(self.folder)
        with torch.device("cuda"):
            self.model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        self.model.gradient_checkpointing_enable()
        for layer in self.model.model.layers:
            fully_shard(layer)
        fully_shard(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-6)
        torch.cuda.empty_cache()

    def train(self, sequences: list[list[int]], micro_batch: int = 4) -> None:
        """Raises the probability of what was generated, as if every reward were one."""
        import torch

        self.model.train()
        for begin in range(0, len(sequences), micro_batch):
            tokens = torch.tensor(sequences[begin : begin + micro_batch], device="cuda")
            logits = self.model(tokens, use_cache=False).logits[:, PROMPT_TOKENS - 1 : -1]
            chosen = logits.float().log_softmax(-1).gather(-1, tokens[:, PROMPT_TOKENS:, None])
            (-chosen.mean() * micro_batch / len(sequences)).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def offload_optimizer(self) -> None:
        import torch

        for state in self.optimizer.state.values():
            for name, value in state.items():
                if torch.is_tensor(value):
                    state[name] = value.cpu()
        torch.cuda.empty_cache()

    def send_weights(self, engine: Engine) -> None:
        """Parameter by parameter through a buffer that the engine has open."""
        import torch
        from vllm.distributed.weight_transfer import ipc_engine
        from vllm.distributed.weight_transfer.base import ModuleSource

        largest = max(each.numel() * each.element_size() for each in self.model.parameters())
        info = ipc_engine.IPCTrainerInitInfo(
            rank=0, packed=True, packed_buffer_size_bytes=max(largest, GIB)
        )
        sender = ipc_engine.IPCTrainerWeightTransferEngine.trainer_init(
            info, client=engine, source=ModuleSource(self.model)
        )
        sender.send_weights()
        torch.cuda.ipc_collect()
        torch.cuda.empty_cache()

    def offload_weights(self) -> None:
        import torch

        self.model.cpu()
        torch.cuda.empty_cache()

    def memory(self) -> dict[str, int]:
        import torch

        requested = torch.cuda.memory_stats().get("requested_bytes.all.current", 0)
        return {"requested": requested, "reserved": torch.cuda.memory_reserved()}


class Step:
    """The stages of a step, and what was read at the end of each."""

    def __init__(self, engine: Callable[[], Engine], trainer: Trainer) -> None:
        self.trainer, self.stages = trainer, []
        with self.stage("startup"):
            self.engine = engine()

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        import torch

        torch.cuda.nvtx.range_push(f"stage:{name}")
        yield
        torch.cuda.nvtx.range_pop()
        engine, trainer = self.engine.memory(), self.trainer.memory()
        used = engine.pop("used")
        self.stages.append({"stage": name, "used": used, "engine": engine, "trainer": trainer})
        print(f"{name:<20} {used / GIB:6.1f} GiB", flush=True)

    def run(self, level: int, together: bool) -> None:
        with self.stage("rollout"):
            sequences = self.engine.generate()
        with self.stage("asleep"):
            self.engine.llm.sleep(level=level)
        with self.stage("trainer_loaded"):
            self.trainer.load()
        with self.stage("train"):
            self.trainer.train(sequences)
        self._together() if together else self._staged()
        with self.stage("rollout"):
            self.engine.generate()

    def _staged(self) -> None:
        """What nobody needs goes before the engine takes memory, and the KV cache comes last."""
        with self.stage("optimizer_offloaded"):
            self.trainer.offload_optimizer()
        with self.stage("weights_awake"):
            self.engine.llm.wake_up(["weights"])
        with self.stage("weights_updated"):
            self.trainer.send_weights(self.engine)
        with self.stage("weights_offloaded"):
            self.trainer.offload_weights()
        with self.stage("kv_cache_awake"):
            self.engine.llm.wake_up(["kv_cache"])

    def _together(self) -> None:
        with self.stage("all_awake"):
            self.engine.llm.wake_up()
        with self.stage("weights_updated"):
            self.trainer.send_weights(self.engine)
        with self.stage("trainer_offloaded"):
            self.trainer.offload_optimizer()
            self.trainer.offload_weights()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("folder", nargs="?", help="the folder of a model's config.json; default: Qwen2.5-7B's")
    add("--mem-fraction", type=float, default=0.9, help="of the card, for the engine")
    add("--level", type=int, choices=(1, 2), default=2, help="vLLM's level of sleep")
    add("--eager", action="store_true", help="no CUDA graphs")
    add("--together", action="store_true", help="wake everything before the trainer lets go")
    add("-o", dest="out", type=Path, help="write the readings of every stage, as JSON")
    options = parser.parse_args()

    setproctitle.setproctitle("trainer")  # its name in the trace
    os.environ.setdefault("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")  # for the handles of CUDA IPC
    with tempfile.TemporaryDirectory() as made:
        folder = options.folder or made
        if not options.folder:
            Path(made, "config.json").write_text(json.dumps(CONFIG))
        step = Step(lambda: Engine(folder, options), Trainer(folder))
        try:
            step.run(options.level, options.together)
        finally:
            step.engine.shutdown()
            if options.out:
                options.out.write_text(json.dumps(step.stages, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
