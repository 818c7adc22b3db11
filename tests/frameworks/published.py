# SPDX-License-Identifier: MIT
"""Published figures of engines that sleep, compared with the engines themselves on simulated GPUs.

published.py PREPARE REVEILLE FOLDER: makes checkpoints of zeros for the models, in FOLDER.
published.py CASE FOLDER: one case, within `reveille run --device ... --gpus ...`; prints a row for each figure.

    qwen2.5-32b, llama-3.1-8b   SGLang, two H200s: its own test of released memory (sglang #7009, #7099)
    qwen3-4b                    vLLM: what sleep level 1 frees, and what is left (vllm #28714; 0.9 of 39.2 GiB: an A100 of 40 GB)
    llama-3.2-1b                vLLM, 0.9 of an H100: sizes and sleep level 1 (vllm #11743; the model is not named, its weights fit)
    llama-3.1-8b-vllm           vLLM, 0.6 of an H100, without graphs, which what is left asleep suggests (NeMo-RL #33)

docs/fidelity/published.md has the table and the commands. The published figures are from other versions of the engines, so differences
may come from the versions, too.
"""

import gc
import os
import pathlib
import subprocess
import sys

CONFIGS = pathlib.Path(__file__).resolve().parents[1] / "data/configs"
GIB, GB = 1 << 30, 10**9
SGLANG = {  # GiB in use on GPU 0 at the end of each stage
    "qwen2.5-32b": {"asleep": 5.8, "weights awake": 36.6, "training copy loaded": 98.1, "training copy freed": 37.6, "KV cache awake": 131.8},
    "llama-3.1-8b": {"asleep": 7.1, "weights awake": 14.7, "training copy loaded": 30.1, "training copy freed": 15.7, "KV cache awake": 134.5},
}
VLLM = {  # model, fraction, without graphs, unit, figures
    "qwen3-4b": ("qwen3-4b", 0.9, False, GIB, {"weights": 7.56, "freed": 34.06, "left": 1.19}),
    "llama-3.2-1b": ("llama-3.2-1b", 0.9, False, GIB, {"weights": 2.32, "KV cache": 67.11, "freed": 69.95, "left": 0.93}),
    "llama-3.1-8b-vllm": ("llama-3.1-8b", 0.6, True, GB, {"engine while it generates": 48.0, "engine asleep": 0.7}),
}


def used(index=0):
    """Bytes in use according to NVML, as in nvidia-smi. This makes no context."""
    import pynvml

    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(index)).used


def say(case, published, got, unit):
    assert got.keys() == published.keys(), (sorted(got), sorted(published))
    for what, value in published.items():
        print(f"| {case} | {what} | {value} | {got[what] / unit:.2f} | {(got[what] / unit / value - 1) * 100:+.1f} % |", flush=True)


def by_sglang(case, model):
    """The steps of SGLang's test test_release_memory_occupation.py."""
    import sglang
    import torch
    from transformers import AutoModelForCausalLM

    got = {}
    engine = sglang.Engine(
        model_path=model, load_format="dummy", skip_tokenizer_init=True, random_seed=42, enable_memory_saver=True,
        mem_fraction_static=0.9, tp_size=2,
        attention_backend="triton", sampling_backend="pytorch", grammar_backend="none", log_level="warning",
    )  # fmt: skip
    engine.release_memory_occupation()
    got["asleep"] = used()
    engine.resume_memory_occupation(tags=["weights"])
    got["weights awake"] = used()
    copy = AutoModelForCausalLM.from_pretrained(model, dtype="bfloat16", device_map="cuda:0")
    got["training copy loaded"] = used()
    engine.update_weights_from_tensor(list(copy.named_parameters()))
    engine.flush_cache()  # an update no longer empties PyTorch's cache, and GPU 1 has copied everything by then
    del copy
    gc.collect()
    torch.cuda.empty_cache()
    got["training copy freed"] = used()
    engine.resume_memory_occupation(tags=["kv_cache"])
    got["KV cache awake"] = used()
    engine.shutdown()
    say(case, SGLANG[case], got, GIB)


def by_vllm(case, model):
    import vllm

    _, fraction, eager, unit, published = VLLM[case]
    engine = vllm.LLM(
        model, load_format="dummy", skip_tokenizer_init=True, seed=42, enable_sleep_mode=True, gpu_memory_utilization=fraction, enforce_eager=eager,
    )  # fmt: skip
    awake = used()
    weights, cache = engine.collective_rpc(lambda worker: (worker.model_runner.model_memory_usage, worker.available_kv_cache_memory_bytes))[0]
    engine.sleep(level=1)
    asleep = used()
    got = {
        "weights": weights,
        "KV cache": cache,
        "freed": awake - asleep,
        "left": asleep,
        "engine while it generates": awake,
        "engine asleep": asleep,
    }
    say(case, published, {what: got[what] for what in published}, unit)


def prepare(reveille, folder):
    for config in {*SGLANG, *(each[0] for each in VLLM.values())}:
        if not (folder / config).exists():
            subprocess.run([reveille, "weights", "--python", sys.executable, CONFIGS / f"{config}.json", folder / config], check=True)


def main():
    os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_USE_FLASHINFER_SAMPLER="0", VLLM_ALLOW_INSECURE_SERIALIZATION="1")
    if sys.argv[1] == "PREPARE":
        prepare(sys.argv[2], pathlib.Path(sys.argv[3]))
    elif sys.argv[1] in SGLANG:
        by_sglang(sys.argv[1], os.path.join(sys.argv[2], sys.argv[1]))
    else:
        by_vllm(sys.argv[1], os.path.join(sys.argv[2], VLLM[sys.argv[1]][0]))


if __name__ == "__main__":
    main()
