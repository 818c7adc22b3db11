#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
What `reveille model` says an engine keeps of sequences, beside the sizes that vLLM's own classes give:
cache_truth.py COMMAND.

Needs the Python of an environment with vLLM (tests/simcuda/vllm.sh makes one), and no GPU: pages and states are asked of vLLM's
specifications of caches, layer by layer, for models of tests/data/configs. A row a config; exit status 1 where
one differs, 77 without vLLM.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import types

CONFIGS = pathlib.Path(__file__).resolve().parents[1] / "data" / "configs"
BLOCK_TOKENS = 16
BATCH_TOKENS = 8192
GRANULE = 2 << 20
# Config, ranks, tokens of a sequence.
CASES = [
    ("qwen3-next-80b-a3b", 1, 8192),
    ("qwen3-next-80b-a3b", 2, 65536),
    ("qwen3_5", 1, 8192),
    ("nemotron-nano-9b-v2", 1, 8192),
    ("nemotron-3-nano-30b-a3b", 2, 32768),
    ("granite-4.0-h-tiny", 1, 8192),
    ("gpt-oss-20b", 1, 65536),
    ("gemma-3-1b", 1, 32768),
    ("gemma-3n-e4b-text", 1, 16384),
    ("gemma-4-31b", 1, 32768),
    ("gemma-4-31b", 8, 32768),
    ("gemma-4-e2b-text", 1, 16384),
    ("llama4-text", 8, 131072),
    ("kimi-k2", 16, 4096),
]


def buffers_here(command, name, ranks, tokens):
    """The sizes of the cache's allocations, and the tokens that they hold."""
    with tempfile.TemporaryDirectory() as folder:
        trace = folder + "/step.rvt"
        words = [command, "model", str(CONFIGS / f"{name}.json"), "--device", "64TiB", "--given", "weights=1GiB",
                 "--tp", str(ranks), "--seq-len", str(tokens), "--kv-dtype", "bf16", "--weights-dtype", "bf16",
                 "--train", "none", "-o", trace]  # fmt: skip
        made = subprocess.run(words, capture_output=True, text=True)
        if made.returncode != 0:
            raise SystemExit(made.stderr)
        held = int(re.search(r"the KV cache holds (\d+) tokens", made.stdout)[1])
        lines = pathlib.Path(trace).read_text().splitlines()
    sizes = [line.split() for line in lines if line.startswith("alloc ") and " kv_cache " in line]
    return held, sorted(int(words[6]) for words in sizes)


def kinds_of(config):
    """For each layer its kind: full, window, none, or a state."""
    words = config.get("layer_types")
    layers = config.get("num_hidden_layers")
    kind = config["model_type"]
    if kind == "nemotron_h":
        return [{"M": "mamba", "*": "full"}.get(sign, "none") for sign in config["hybrid_override_pattern"]]
    if words:
        names = {"mamba": "mamba", "attention": "full", "full_attention": "full", "sliding_attention": "window"}
        found = [names[word] for word in words]
    else:
        every, other = {"gpt_oss": (2, "window"), "gemma3_text": (6, "window"), "gemma3n_text": (5, "window"),
                        "llama4_text": (4, "window"), "qwen3_next": (4, "delta"),
                        "qwen3_5_text": (4, "delta")}.get(kind, (1, ""))  # fmt: skip
        found = ["full" if (i + 1) % every == 0 else other for i in range(layers)]
    shared = config.get("num_kv_shared_layers", 0)
    return found[: layers - shared] + ["none"] * shared


def run_of(tokens):
    """What the classes ask of a run's settings: vLLM's defaults, for sequences of this length."""
    return types.SimpleNamespace(
        max_in_flight_tokens=BATCH_TOKENS,
        model_config=types.SimpleNamespace(max_model_len=tokens),
        parallel_config=types.SimpleNamespace(decode_context_parallel_size=1),
    )


def keys_of(config, ranks):
    """vLLM's classes of layers that keep keys: of all tokens, and of the last ones."""
    import torch
    from vllm.v1 import kv_cache_interface as vllm

    sizes = {"block_size": BLOCK_TOKENS, "dtype": torch.bfloat16}
    if "kv_lora_rank" in config:
        head = config["kv_lora_rank"] + config["qk_rope_head_dim"]
        return vllm.MLAAttentionSpec(num_kv_heads=1, head_size=head, **sizes), None
    sizes["num_kv_heads"] = max(1, config["num_key_value_heads"] // ranks)
    sizes["head_size"] = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    last, all_tokens = None, dict(sizes)
    if "global_head_dim" in config:
        heads = config.get("num_global_key_value_heads", config["num_key_value_heads"])
        all_tokens.update(num_kv_heads=max(1, heads // ranks), head_size=config["global_head_dim"])
    if config.get("attention_chunk_size"):
        last = vllm.ChunkedLocalAttentionSpec(attention_chunk_size=config["attention_chunk_size"], **sizes)
    elif config.get("sliding_window"):
        last = vllm.SlidingWindowSpec(sliding_window=config["sliding_window"], **sizes)
    return vllm.FullAttentionSpec(**all_tokens), last


def state_of(config, ranks, kind):
    """Bytes of a sequence's state in a layer, by vLLM's classes."""
    import torch
    from vllm.model_executor.layers.mamba.mamba_utils import MambaStateShapeCalculator as Shapes
    from vllm.v1.kv_cache_interface import MambaSpec

    if kind == "delta":
        names = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim")
        shapes = Shapes.gated_delta_net_state_shape(ranks, *(config[f"linear_{name}"] for name in names))
    else:
        granite = ("mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv")
        nemotron = ("mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel")
        names = nemotron if config["model_type"] == "nemotron_h" else granite
        heads, head, groups, depth, kernel = (config[name] for name in names)
        shapes = Shapes.mamba2_state_shape(ranks, heads * head, groups, heads, head, depth, kernel)
    float32 = "float32" in (config.get("mamba_ssm_dtype"), config.get("mamba_ssm_cache_dtype"))
    types_of_state = (torch.bfloat16, torch.float32 if float32 else torch.bfloat16)
    return MambaSpec(block_size=BLOCK_TOKENS, shapes=shapes, dtypes=types_of_state).page_size_bytes


def bytes_there(config, ranks, tokens):
    """For each layer that keeps anything what a sequence takes; and what vLLM lets one request have at most."""
    needs, admitted = [], 0
    full, last = keys_of(config, ranks)
    for kind in kinds_of(config):
        if kind == "none":
            continue
        if kind in ("full", "window"):
            spec = last if kind == "window" else full
            window = config.get("sliding_window") or config.get("attention_chunk_size")
            kept = min(tokens, window) if kind == "window" else tokens
            needs.append(kept // BLOCK_TOKENS * spec.page_size_bytes)
            admitted += spec.max_memory_usage_bytes(run_of(tokens))
        else:
            needs.append(state_of(config, ranks, kind))
            admitted += needs[-1]
    return needs, admitted


def compare(command, name, ranks, tokens):
    """Whether each buffer is that of the sequences held, to a granule."""
    config = json.loads((CONFIGS / f"{name}.json").read_text())
    held, found = buffers_here(command, name, ranks, tokens)
    config = config.get("text_config", config)
    needs, admitted = bytes_there(config, ranks, tokens)
    expected = []
    for size, kind in zip(needs, [kind for kind in kinds_of(config) if kind != "none"]):
        if kind in ("full", "window"):
            count = 1 if "kv_lora_rank" in config else 2
            expected += [size * held / tokens / count] * count
        else:
            expected.append(size * (held // tokens))
    apart = max(abs(one - other) for one, other in zip(sorted(expected), found))
    same = len(expected) == len(found) and apart <= GRANULE
    row = [f"{name} --tp {ranks} --seq-len {tokens}", f"{sum(found) * tokens / held:.0f}", sum(needs),
           "the same" if same else "DIFFERENT", admitted]  # fmt: skip
    print(f"| {' | '.join(map(str, row))} |", flush=True)
    return same


def main():
    if len(sys.argv) != 2:
        print(__doc__.strip())
        return 2
    try:
        import vllm
    except ImportError as error:
        print(f"SKIP: {error}")
        return 77
    print("vllm", vllm.__version__)
    print("| a sequence takes, B | here | vLLM's layers | | vLLM admits at most |")
    print("| --- | --- | --- | --- | --- |")
    return 0 if all([compare(sys.argv[1], *case) for case in CASES]) else 1


if __name__ == "__main__":
    sys.exit(main())
