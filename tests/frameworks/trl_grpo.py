# SPDX-License-Identifier: MIT
"""A step of GRPO with TRL, unmodified, with a tiny model of random weights and a tokenizer made here.

Writes what the trainer reports to the named file: `trl_grpo.py OUT.json [vllm]`. With `vllm`, a vLLM engine generates on the same GPU,
and sleeps while the trainer works.
"""

import json
import sys

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer

WORDS, PROMPTS, PROMPT_WORDS, GENERATIONS, NEW_TOKENS, STEPS = 4096, 8, 3, 4, 24, 2


def tokenizer():
    words = {"<pad>": 0, "<eos>": 1, "<unk>": 2, **{f"w{i}": i for i in range(3, WORDS)}}
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )


def model():
    torch.manual_seed(0)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=WORDS,
            hidden_size=256,
            intermediate_size=512,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=1,
        )
    )


def reward(completions, **_):
    """The number of words in each completion."""
    return [float(len(each.split())) for each in completions]


VLLM = {
    "use_vllm": True,
    "vllm_mode": "colocate",
    "vllm_enable_sleep_mode": True,
    "vllm_gpu_memory_utilization": 0.3,
    "vllm_max_model_length": PROMPT_WORDS + NEW_TOKENS,
}


def main():
    prompts = Dataset.from_list([{"prompt": " ".join(f"w{i + 10 * word}" for word in range(1, PROMPT_WORDS + 1))} for i in range(PROMPTS)])
    settings = GRPOConfig(
        output_dir=sys.argv[1] + ".d",
        per_device_train_batch_size=GENERATIONS,
        num_generations=GENERATIONS,
        max_completion_length=NEW_TOKENS,
        max_steps=STEPS,
        logging_steps=1,
        report_to="none",
        save_strategy="no",
        beta=0.04,
        **(VLLM if "vllm" in sys.argv[2:] else {}),
    )
    folder = sys.argv[1] + ".model"
    for each in model(), tokenizer():
        each.save_pretrained(folder)
    trainer = GRPOTrainer(
        model=folder, reward_funcs=reward, args=settings, train_dataset=prompts, processing_class=tokenizer()
    )
    trainer.train()
    with open(sys.argv[1], "w") as out:
        json.dump(trainer.state.log_history, out)


if __name__ == "__main__":
    main()
