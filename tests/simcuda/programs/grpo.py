# SPDX-License-Identifier: MIT
"""GRPO by TRL, unedited: a model of Qwen2.5-0.5B's shape with random weights, in bf16.

Stages end where TRL calls the program: rewards come behind generation, callbacks around the optimizer.
"""

import os
import sys
import tempfile

import torch
from datasets import Dataset
from stages import Stages
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

WORDS, PROMPTS, PROMPT_WORDS, GENERATIONS, NEW_TOKENS, STEPS = 151936, 48, 64, 16, 192, 3
SHAPE = {  # Qwen2.5-0.5B's config.json
    "vocab_size": WORDS,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
}

stages = Stages(sys.argv[1])


class Told(TrainerCallback):
    def on_pre_optimizer_step(self, _args, state, _control, **_):
        stages.end(f"backward{state.global_step}")

    def on_step_end(self, _args, state, _control, **_):
        stages.end(f"updated{state.global_step - 1}")


def tokenizer():
    words = {"<pad>": 0, "<eos>": 1, "<unk>": 2, **{f"w{i}": i for i in range(3, WORDS)}}
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )


def reward(completions, **_):
    """The words of each. It is called between generation and the log probabilities."""
    stages.end("generated")
    return [float(len(each.split())) for each in completions]


def main():
    prompts = [" ".join(f"w{3 + i + 50 * word}" for word in range(PROMPT_WORDS)) for i in range(PROMPTS)]
    with tempfile.TemporaryDirectory() as folder:
        settings = GRPOConfig(
            output_dir=os.path.join(folder, "out"),
            per_device_train_batch_size=GENERATIONS,
            num_generations=GENERATIONS,
            max_completion_length=NEW_TOKENS,
            generation_kwargs={"min_new_tokens": NEW_TOKENS},  # a random model may end anywhere
            max_steps=STEPS,
            bf16=True,
            gradient_checkpointing=True,
            logging_steps=1,
            report_to="none",
            save_strategy="no",
            beta=0.04,
            seed=1,
        )
        torch.manual_seed(0)
        model = os.path.join(folder, "model")
        Qwen2ForCausalLM(Qwen2Config(**SHAPE)).bfloat16().save_pretrained(model)
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=reward,
            args=settings,
            train_dataset=Dataset.from_list([{"prompt": each} for each in prompts]),
            processing_class=tokenizer(),
            callbacks=[Told()],
        )
        stages.end("loaded")
        trainer.train()


main()
