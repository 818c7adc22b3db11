# SPDX-License-Identifier: MIT
"""An engine of vLLM leaves its card with its CUDA graphs and comes back, three ways, each in a process of its own.

    own        LLM.sleep(level=1) by vLLM's allocator: contexts, graphs and kernels stay on the card
    driver     the driver's checkpoint of the process while the engine is awake
    reveille   LLM.sleep(level=1) on Reveille's allocator, and then the rest of the process

    python bench/gpu/vllm_to_nothing.py OUT.json [--model 7b] [--ways own,driver,reveille] [--cycles 3]

Weights are random (Qwen2.5-7B's shape). The tokens of greedy decoding and a sum of every parameter are compared after each cycle.
What the card holds is what NVML tells another process, since one that is off the card has no answer. Needs vLLM 0.24 or 0.33, and the
Python package. What is beside the process on the card is subtracted. Seconds are of each part.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time

MODELS = {
    "small": {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 4, "num_attention_heads": 16,
              "num_key_value_heads": 4, "vocab_size": 32000},
    "7b": {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
           "num_key_value_heads": 4, "vocab_size": 152064},
}  # fmt: skip
QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "max_position_embeddings": 32768, "dtype": "bfloat16",
         "rms_norm_eps": 1e-6, "rope_theta": 1e6, "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": 1,
         "eos_token_id": 2}  # fmt: skip
PROMPTS = [[5 + 7 * prompt + token for token in range(64)] for prompt in range(8)]
TOKENS = 32
STEPS = ("Lock", "Checkpoint", "Restore", "Unlock")


USED = """
import ctypes
nvml, device, memory = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
assert nvml.nvmlInit_v2() == 0
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
assert nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0
print(memory[2])
"""  # total, free, used


class Card:
    """What NVML says of device 0, beyond what was there before this process used it.

    Another process asks: an NVML that was begun before the process left its card does not return until it is back.
    """

    def __init__(self):
        self.before = self._used()

    def _used(self):
        return int(subprocess.run([sys.executable, "-c", USED], check=True, capture_output=True, text=True).stdout)

    def bytes(self):
        return self._used() - self.before


class Checkpoint:
    """The driver's four calls, for this process."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")

    def call(self, step):
        arguments = (ctypes.c_uint64 * 8)()  # all zero: no limit of time
        result = getattr(self.cuda, f"cuCheckpointProcess{step}")(os.getpid(), arguments)
        assert result == 0, f"cuCheckpointProcess{step} answered {result}"

    def leave(self):
        self.call("Lock")
        self.call("Checkpoint")

    def come_back(self):
        self.call("Restore")
        self.call("Unlock")


def timed(call, *arguments):
    begin = time.perf_counter()
    call(*arguments)
    return round(time.perf_counter() - begin, 3)


class Engine:
    def __init__(self, shape, share):
        from vllm import LLM

        folder = tempfile.mkdtemp(prefix="reveille-model-")
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as out:
            json.dump({**QWEN2, **shape}, out)
        self.llm = LLM(model=folder, load_format="dummy", skip_tokenizer_init=True, enable_sleep_mode=True,
                       gpu_memory_utilization=share, max_model_len=4096, seed=0)  # fmt: skip

    def tokens(self):
        from vllm import SamplingParams

        greedy = SamplingParams(max_tokens=TOKENS, temperature=0, ignore_eos=True, detokenize=False)
        made = self.llm.generate([{"prompt_token_ids": each} for each in PROMPTS], greedy, use_tqdm=False)
        return [list(each.outputs[0].token_ids) for each in made]

    def sums(self):
        """Of the bits of each parameter."""
        import torch

        def of(worker):
            return [each.data.view(torch.int16).sum(dtype=torch.int64).item() for each in worker.get_model().parameters()]

        (found,) = self.llm.collective_rpc(of)
        return found

    def sleep(self):
        self.llm.sleep(level=1)

    def wake(self):
        self.llm.wake_up()


def parts_of(way, engine):
    """Names and calls, to leave the card and to come back."""
    if way == "own":
        return [("sleep", engine.sleep)], [("wake", engine.wake)]
    if way == "driver":
        checkpoint = Checkpoint()
        return [("checkpoint", checkpoint.leave)], [("restore", checkpoint.come_back)]
    import reveille

    return (
        [("sleep", engine.sleep), ("leave", reveille.sleep)],
        [("return", lambda: reveille.wake(paused=True)), ("wake", engine.wake)],
    )


def one(way, shape, share, cycles):
    card = Card()
    begin = time.perf_counter()
    engine = Engine(shape, share)
    started = time.perf_counter() - begin
    tokens, sums = engine.tokens(), engine.sums()
    row = {"way": way, "start_s": round(started, 1), "awake_bytes": card.bytes(), "weights": len(sums), "cycles": []}
    off, on = parts_of(way, engine)
    for _ in range(cycles):
        cycle = {f"{name}_s": timed(call) for name, call in off}
        cycle["asleep_bytes"] = card.bytes()
        cycle |= {f"{name}_s": timed(call) for name, call in on}
        cycle["first_tokens_s"] = timed(lambda: cycle.update(same_tokens=engine.tokens() == tokens))
        cycle["same_weights"] = engine.sums() == sums
        cycle["awake_bytes"] = card.bytes()
        row["cycles"].append(cycle)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--model", choices=MODELS, default="7b")
    parser.add_argument("--ways", default="own,driver,reveille")
    parser.add_argument("--cycles", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.85, help="gpu_memory_utilization; default: 0.85")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        row = one(options.ways, MODELS[options.model], options.share, options.cycles)
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(row, file)
        return 0
    rows, wrong = [], 0
    for way in options.ways.split(","):
        environment = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
                       "REVEILLE_AS_CUMEM": str(int(way == "reveille")), **os.environ}  # fmt: skip
        line = [sys.executable, __file__, f"{options.out}.{way}", "--one", "--ways", way, "--model", options.model,
                "--cycles", str(options.cycles), "--share", str(options.share)]  # fmt: skip
        ended = subprocess.run(line, env=environment, check=False).returncode
        if ended:
            rows.append({"way": way, "ended": ended})
            wrong = 1
            continue
        with open(f"{options.out}.{way}", encoding="utf-8") as file:
            rows.append(json.load(file))
        os.remove(f"{options.out}.{way}")
        good = all(each["same_tokens"] and each["same_weights"] for each in rows[-1]["cycles"])
        wrong |= not good or (way != "own" and any(each["asleep_bytes"] for each in rows[-1]["cycles"]))
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=1)
    print(json.dumps(rows, indent=1))
    return wrong


if __name__ == "__main__":
    sys.exit(main())
