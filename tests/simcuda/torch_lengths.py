# SPDX-License-Identifier: MIT
"""Rows of transformers' generate() have the lengths of a rule, under `reveille run`: torch_lengths.py REVEILLE.

A tiny Llama generates greedily, by sampling and with padded prompts. Each row's end token is where the rule puts it, the rest of the row
is padding, and the batch ends with its longest row.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

END, PAD, NEW, ROWS, PROMPT = 2, 0, 40, 16, 6


def program(end):
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=4096, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config)
    settings = {"eos_token_id": [END, 3] if end else None, "pad_token_id": PAD, "max_new_tokens": NEW}
    prompts = torch.arange(10, 10 + ROWS * PROMPT).view(ROWS, PROMPT)
    mask = torch.ones_like(prompts)
    padded = torch.cat([torch.zeros(ROWS, 3, dtype=torch.long), prompts], 1)
    for ids, sees, sample in (
        (prompts, mask, False),
        (prompts, mask, True),
        (padded, padded != PAD, False),
    ):
        made = model.generate(
            input_ids=ids.cuda(), attention_mask=sees.cuda(), generation_config=GenerationConfig(**settings, do_sample=sample)
        )
        print(json.dumps(made[:, ids.shape[1] :].tolist()), flush=True)


def run(reveille, rule, end=True):
    with tempfile.TemporaryDirectory() as folder:
        shown = pathlib.Path(folder, "run.json")
        words = [reveille, "run", "--attribution=off", f"--json={shown}", *rule, "--", sys.executable, __file__, "-", str(int(end))]
        done = subprocess.run(words, capture_output=True, text=True, timeout=400)
        said = json.loads(shown.read_text()).get("responses") if shown.exists() else None
    return done, said, [json.loads(each) for each in done.stdout.splitlines() if each.startswith("[[")]


def lengths_of(rows):
    """The lengths of rows that end: only padding follows the end token."""
    lengths = [row.index(END) + 1 for row in rows]
    for row, length in zip(rows, lengths):
        assert set(row[length:]) <= {PAD} and len(row) == max(lengths), (row, length)
    return lengths


def main(reveille):
    done, said, batches = run(reveille, ["--response-lengths=uniform:5..39"])
    assert done.returncode == 0, done.stderr
    greedy, sampled, padded = map(lengths_of, batches)
    every = greedy + sampled + padded
    expected = {
        "rule": "uniform:5..39",
        "sequences": 3 * ROWS,
        "tokens": sum(every),
        "shortest_tokens": min(every),
        "longest_tokens": max(every),
    }
    assert said == expected, (said, expected)
    assert 5 <= min(every) < 12 and 33 < max(every) <= 39 and len(set(greedy)) > 8, every
    assert greedy != sampled, "the same prompts, the next draw"
    again = run(reveille, ["--response-lengths=uniform:5..39"])
    assert again[2] == batches, "a second run"

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "lengths.txt")
        path.write_text("".join(f"{each}\n" for each in range(1, 41)))
        done, _, batches = run(reveille, [f"--response-lengths={path}"])
        turns = [each % 40 + 1 for each in range(3 * ROWS)]
        assert [length for rows in batches for length in lengths_of(rows)] == turns, (batches, done.stderr)

    # Without an end token, a batch ends with its longest row.
    done, _, batches = run(reveille, ["--response-lengths=uniform:7..7"], end=False)
    assert [{len(row) for row in rows} for rows in batches] == [{7}] * 3, done.stderr
    done, said, batches = run(reveille, [])
    assert said is None and [{len(row) for row in rows} for rows in batches] == [{NEW}] * 3, done.stderr

    done, _, _ = run(reveille, ["--response-lengths=uniform:5..41"])
    told = "reveille: --response-lengths uniform:5..41: sequences of up to 41 tokens, and a request allows 40: raise its limit"
    assert done.returncode == 1 and told in done.stderr, done.stderr
    print("rows of generate() have the lengths of a rule")


if __name__ == "__main__":
    if sys.argv[1] == "-":
        program(sys.argv[2] == "1")
    else:
        main(sys.argv[1])
