# SPDX-License-Identifier: MIT
"""GRPO with TRL and random weights: grpo.py FOLDER CONFIG.json DTYPE, with the model's shape and the type of its weights.

TRL is not modified. Its trainer's methods, its callbacks and the reward mark the ends of stages. Behaviour that could differ between a
card and a simulated one is fixed: each completion has NEW_TOKENS tokens, since its end token is forbidden until then, and the reward
does not depend on its text.
"""

import json
import os
import sys
import tempfile

import torch
from datasets import Dataset
from stages import Stages
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

PROMPTS, PROMPT_WORDS, GENERATIONS, NEW_TOKENS, STEPS = 48, 64, 32, 128, 3
PAD, END = 0, 1

stages = Stages(sys.argv[1])


class Staged(GRPOTrainer):
    """TRL's trainer, in which ends of phases are ends of stages."""

    def end(self, name):
        stages.end(f"{name}{self.state.global_step}")

    def _prepare_inputs(self, generation_batch):
        inputs = super()._prepare_inputs(generation_batch)
        self.end("scored")
        return inputs

    def compute_loss(self, *args, **named):
        loss = super().compute_loss(*args, **named)
        self.end("forward")
        return loss


class Told(TrainerCallback):
    def on_pre_optimizer_step(self, _args, state, _control, **_):
        stages.end(f"backward{state.global_step}")

    def on_step_end(self, _args, state, _control, **_):
        stages.end(f"updated{state.global_step - 1}")


def config():
    with open(sys.argv[2], encoding="utf-8") as file:
        said = json.load(file)
    return AutoConfig.for_model(**said, pad_token_id=PAD, bos_token_id=None, eos_token_id=END)


def tokenizer(count):
    words = {"<pad>": PAD, "<eos>": END, "<unk>": 2, **{f"w{i}": i for i in range(3, count)}}
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )


def prompts():
    said = [" ".join(f"w{3 + i + 50 * word}" for word in range(PROMPT_WORDS)) for i in range(PROMPTS)]
    return Dataset.from_list([{"prompt": each} for each in said])


def reward(completion_ids, trainer_state, **_):
    """The index of each completion. It is called between generation and the log probabilities."""
    stages.facts.setdefault("tokens", []).append(sorted({len(each) for each in completion_ids}))
    stages.end(f"generated{trainer_state.global_step}")
    return [float(i) for i in range(len(completion_ids))]


def settings(folder):
    return GRPOConfig(
        output_dir=folder,
        model_init_kwargs={"dtype": sys.argv[3]},
        per_device_train_batch_size=GENERATIONS,
        num_generations=GENERATIONS,
        max_completion_length=NEW_TOKENS,
        generation_kwargs={"min_new_tokens": NEW_TOKENS},  # a random model may end a sequence anywhere
        max_steps=STEPS,
        logging_steps=1,
        report_to="none",
        save_strategy="no",
        beta=0.04,
        seed=1,
    )


def main():
    torch.manual_seed(0)
    shape = config()
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model")
        AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16).save_pretrained(model)
        trainer = Staged(
            model=model,
            reward_funcs=reward,
            args=settings(os.path.join(folder, "out")),
            train_dataset=prompts(),
            processing_class=tokenizer(shape.vocab_size),
            callbacks=[Told()],
        )
        stages.end("loaded")
        trainer.train()


main()
