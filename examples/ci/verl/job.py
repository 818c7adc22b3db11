# SPDX-License-Identifier: MIT
"""What a tiny step of GRPO by verl needs: `job.py FOLDER [CONFIG]` makes a model's config, a tokenizer and prompts in it.

CONFIG is the config.json of another model; the tokenizer has as many words. verl takes its reward from this file, too (`compute_score`).
"""

import json
import pathlib
import sys

WORDS, PROMPTS, PROMPT_WORDS = 4096, 8, 3
LAYERS, HIDDEN, INTERMEDIATE, HEADS, KV_HEADS = 2, 256, 512, 4, 2

# As Qwen's models have it: verl looks for the end of a turn, and for a newline that is one token.
TEMPLATE = (
    "{% for each in messages %}<|im_start|>{{ each['role'] }}\n{{ each['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_):
    """The words of an answer."""
    return float(len(solution_str.split()))


def tokenizer(count):
    """Qwen2's, which transformers takes for a model of that kind: here each byte of a prompt is a token, and answers are of words."""
    from tokenizers import pre_tokenizers
    from transformers import Qwen2Tokenizer

    first = ["<|endoftext|>", "<pad>", "<|im_start|>", "<|im_end|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    words = {**{word: i for i, word in enumerate(first)}, **{f"\u0120w{i}": i for i in range(len(first), count)}}
    return Qwen2Tokenizer(
        vocab=words,
        merges=[],
        pad_token="<pad>",
        eos_token="<|im_end|>",
        extra_special_tokens=["<|im_start|>"],
        chat_template=TEMPLATE,
    )


def config():
    from transformers import Qwen2Config

    return Qwen2Config(
        architectures=["Qwen2ForCausalLM"],
        vocab_size=WORDS,
        hidden_size=HIDDEN,
        intermediate_size=INTERMEDIATE,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=128,
        tie_word_embeddings=False,
        pad_token_id=1,
        bos_token_id=None,
        eos_token_id=3,
        dtype="bfloat16",
    )


def prompts():
    for i in range(PROMPTS):
        words = " ".join(f"w{i + 10 * word}" for word in range(1, PROMPT_WORDS + 1))
        yield {
            "data_source": "words",
            "prompt": [{"role": "user", "content": words}],
            "reward_model": {"style": "rule", "ground_truth": ""},
            "extra_info": {"index": i},
        }


def named(file):
    """The config that a user gives, with the tokenizer's own words in it."""
    from transformers import AutoConfig

    given = json.loads(pathlib.Path(file).read_text())
    return AutoConfig.for_model(**{**given, "pad_token_id": 1, "bos_token_id": None, "eos_token_id": 3, "dtype": "bfloat16"})


def main(name, file=None):
    import pandas

    folder = pathlib.Path(name)
    model = named(file) if file else config()
    model.save_pretrained(folder / "config")
    tokenizer(model.vocab_size).save_pretrained(folder / "tokenizer")
    pandas.DataFrame(list(prompts())).to_parquet(folder / "prompts.parquet")


if __name__ == "__main__":
    main(*sys.argv[1:])
