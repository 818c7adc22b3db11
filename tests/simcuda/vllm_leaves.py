# SPDX-License-Identifier: MIT
"""A vLLM engine that sleeps to nothing on a simulated GPU, and comes back: `leave_gpus` of reveille.vllm.WorkerExtension.

    REVEILLE_AS_CUMEM=1 python vllm_leaves.py MODEL [--gpus 1] [--graphs] [--cycles N]

under `reveille run`; MODEL as for vllm_sleep.py.

The bytes in use come from NVML in the engine's parent process, which itself does not use the card.
"""
import argparse

from vllm_sleep import MIB, MODELS, PROMPT, TOKENS, check, config_folder


def used():
    """Bytes in use on the card, by all processes."""
    import pynvml

    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used


def engine(model, graphs):
    from vllm import LLM

    return LLM(
        model=config_folder(MODELS[model]),
        load_format="dummy",
        skip_tokenizer_init=True,
        enable_sleep_mode=True,
        enforce_eager=not graphs,
        max_model_len=2048,
        gpu_memory_utilization=0.5,
        worker_extension_cls="reveille.vllm.WorkerExtension",
    )


def generate(llm):
    from vllm import SamplingParams

    wanted = SamplingParams(max_tokens=TOKENS, ignore_eos=True, detokenize=False)
    out = llm.generate([{"prompt_token_ids": PROMPT}] * 3, wanted, use_tqdm=False)
    check([len(each.outputs[0].token_ids) for each in out], [TOKENS] * 3, "tokens generated")


def refused(llm):
    """The message of an awake engine that is asked to leave."""
    try:
        llm.collective_rpc("leave_gpus")
    except Exception as error:
        return str(error)
    return "not refused"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--gpus", type=int, choices=[1], default=1)
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--cycles", type=int, default=3)
    options = parser.parse_args()
    empty = used()
    llm = engine(options.model, options.graphs)
    generate(llm)
    begun, why = used(), refused(llm)
    check("the engine is awake (" in why, True, why)
    check(used(), begun, "in use after a refusal")
    llm.sleep(level=1)
    llm.wake_up()
    awake = used()  # without PyTorch's cache since the start, which a sleep frees
    for _ in range(options.cycles):
        llm.sleep(level=1)
        asleep = used()
        llm.collective_rpc("leave_gpus")
        check(used(), empty, "in use when the engine has left")
        llm.collective_rpc("return_to_gpus")
        check(used(), asleep, "in use when it has returned")
        llm.wake_up()
        check(used(), awake, "in use when it is awake")
        generate(llm)
    print(f"PASS {options.model}: awake {awake // MIB} MiB, asleep {asleep // MIB}, gone {empty}")


if __name__ == "__main__":
    main()
