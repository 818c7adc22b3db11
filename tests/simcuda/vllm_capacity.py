# SPDX-License-Identifier: MIT
"""The KV cache that vLLM finds room for on a simulated H100, as `reveille run` reports it, and an engine that requests the same size.

    python vllm_capacity.py COMMAND      with vLLM's Python

The blocks are compared with the engine's own, the tokens with what it logs, and the bytes with the model's sizes.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from vllm_sleep import MODELS, block_bytes, check, config_folder

MODEL = "small"


def engine(ranks, settings):
    from vllm import LLM

    model = dict(load_format="dummy", skip_tokenizer_init=True, enforce_eager=True, max_model_len=2048)
    llm = LLM(model=config_folder(MODELS[MODEL]), tensor_parallel_size=ranks, **model, **settings)
    cache = llm.llm_engine.vllm_config.cache_config
    print(f"blocks {cache.num_gpu_blocks} of {cache.block_size}", flush=True)


def run(command, ranks, **settings):
    """What `reveille run` reports about the engine, after comparing it with the engine's log."""
    with tempfile.TemporaryDirectory() as folder:
        shown = pathlib.Path(folder, "run.json")
        words = [command, "run", "--device", "h100-80g", "--gpus", str(ranks), f"--json={shown}", "--"]
        done = subprocess.run([*words, sys.executable, __file__, "--engine", str(ranks), json.dumps(settings)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        (found,) = json.loads(shown.read_text())["engines"]
    said = done.stdout + done.stderr
    blocks, tokens = re.search(r"blocks (\d+) of 16\n", said), re.search(r"GPU KV cache size: ([\d,]+) tokens", said)
    check(found["kv_cache_blocks"], int(blocks[1]), "blocks")
    check(found["kv_cache_tokens"], int(tokens[1].replace(",", "")), "tokens, as vLLM logs them")
    check((found["engine"], found["count"], found["block_tokens"]), ("vLLM", 1, 16), "engine")
    check(found["kv_cache_bytes"], found["kv_cache_blocks"] * block_bytes(MODELS[MODEL], ranks), "bytes")
    (line,) = [each for each in done.stdout.splitlines() if each.startswith("KV cache of vLLM")]
    print(line)
    return found


def main(command):
    for ranks in 1, 2:
        found = run(command, ranks, gpu_memory_utilization=0.8)
        check(run(command, ranks, kv_cache_memory_bytes=found["kv_cache_bytes"]), found, "the same by its bytes")


if __name__ == "__main__":
    if sys.argv[1] == "--engine":
        engine(int(sys.argv[2]), json.loads(sys.argv[3]))
    else:
        main(sys.argv[1])
