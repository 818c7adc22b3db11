# SPDX-License-Identifier: MIT
"""Sequences of vLLM have the lengths of a rule, under `reveille run`: vllm_lengths.py COMMAND, with vLLM's Python.

On one simulated H100 and on two, which agree; with an end token, and with an ignored one.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

from vllm_sleep import MODELS, check, config_folder

END, LIMIT, SEQUENCES, SHORTEST, LONGEST = 2, 100, 40, 5, 90
RULE = f"uniform:{SHORTEST}..{LONGEST}"


def engine(ranks):
    from vllm import LLM, SamplingParams

    settings = dict(load_format="dummy", skip_tokenizer_init=True, enforce_eager=True, max_model_len=2048, gpu_memory_utilization=0.5)
    llm = LLM(model=config_folder(MODELS["small"]), tensor_parallel_size=ranks, **settings)
    prompts = [{"prompt_token_ids": [5, 6, 7, 8 + i // 2]} for i in range(SEQUENCES)]
    for ignores in False, True:
        wanted = SamplingParams(max_tokens=LIMIT, ignore_eos=ignores, stop_token_ids=None if ignores else [END], detokenize=False, logprobs=0)
        made = [each.outputs[0] for each in llm.generate(prompts, wanted, use_tqdm=False)]
        for each in made:  # as verl looks them up
            assert len([known[token].logprob for known, token in zip(each.logprobs, each.token_ids)]) == len(each.token_ids)
        print("made", json.dumps([(len(each.token_ids), each.token_ids[-1] == END, each.finish_reason) for each in made]), flush=True)


def run(command, ranks, *rule):
    with tempfile.TemporaryDirectory() as folder:
        shown = pathlib.Path(folder, "run.json")
        words = [command, "run", "--device", "h100-80g", "--gpus", str(ranks), "--attribution=off", f"--json={shown}", *rule, "--"]
        done = subprocess.run([*words, sys.executable, __file__, "--engine", str(ranks)], capture_output=True, text=True)
        said = json.loads(shown.read_text()).get("responses")
    return done, said, [json.loads(each[5:]) for each in done.stdout.splitlines() if each.startswith("made ")]


def main(command):
    first = None
    for ranks in 1, 2:
        done, said, made = run(command, ranks, f"--response-lengths={RULE}")
        assert done.returncode == 0, done.stdout + done.stderr
        stopped, ignored = made
        lengths = [length for length, _, _ in stopped + ignored]
        check({(end, reason) for _, end, reason in stopped}, {(True, "stop")}, "ends")
        check({(end, reason) for _, end, reason in ignored}, {(False, "length")}, "ends where the end token is ignored")
        assert SHORTEST <= min(lengths) < 15 and 80 < max(lengths) <= LONGEST, lengths
        assert [each[0] for each in stopped] != [each[0] for each in ignored], "the next draw"
        check((said["sequences"], said["tokens"], said["shortest_tokens"], said["longest_tokens"]),
              (2 * SEQUENCES, sum(lengths), min(lengths), max(lengths)), "what is told")  # fmt: skip
        first = first or made
        check(made, first, "lengths on other ranks")
    print(f"{said['sequences']} sequences of {min(lengths)} to {max(lengths)} tokens by {RULE}, on one GPU and on two")

    done, _, made = run(command, 1)
    check({length for rows in made for length, _, _ in rows}, {LIMIT}, "lengths without a rule")
    done, _, made = run(command, 1, "--response-lengths=uniform:1..101")
    check(made, [], "requests that do not allow the rule")
    told = f"reveille: --response-lengths uniform:1..101: sequences of up to 101 tokens, and a request allows {LIMIT}"
    assert done.returncode != 0 and told in done.stdout + done.stderr, done.stdout + done.stderr


if __name__ == "__main__":
    if sys.argv[1] == "--engine":
        engine(int(sys.argv[2]))
    else:
        main(sys.argv[1])
