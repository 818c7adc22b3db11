# SPDX-License-Identifier: MIT
"""A vLLM engine: it generates, sleeps and wakes. Its model has Qwen2.5-0.5B's shape, and arbitrary weights."""
import json
import pathlib
import tempfile

from vllm import LLM, SamplingParams

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
    "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 32768, "tie_word_embeddings": True,
    "torch_dtype": "bfloat16", "eos_token_id": 2,
}  # fmt: skip

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "config.json").write_text(json.dumps(CONFIG))
        engine = LLM(model=folder, load_format="dummy", skip_tokenizer_init=True, enable_sleep_mode=True, enforce_eager=True, max_model_len=2048)
        wanted = SamplingParams(max_tokens=8, ignore_eos=True, detokenize=False)
        for _ in range(2):
            answers = engine.generate([{"prompt_token_ids": [5, 6, 7, 8]}] * 3, wanted, use_tqdm=False)
            assert [len(each.outputs[0].token_ids) for each in answers] == [8] * 3
            engine.sleep(level=1)
            engine.wake_up()
