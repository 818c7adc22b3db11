# SPDX-License-Identifier: MIT
"""What a kernel would have chosen from unknown numbers, under `reveille run`: torch_assumed.py REVEILLE.

Runs itself twice: both runs choose alike, and the summary reports how often.
"""

import re
import subprocess
import sys

VOCABULARY, ROWS = 32000, 4


def program():
    import torch

    logits = torch.randn(ROWS, 512, device="cuda") @ torch.randn(512, VOCABULARY, device="cuda")
    greedy = logits.argmax(-1)
    sampled = torch.multinomial(logits.softmax(-1), 1)
    best = logits.topk(5)
    values, highest = logits.max(-1)
    for tokens in greedy, sampled, best.indices, highest:
        numbers = tokens.flatten().tolist()
        assert all(VOCABULARY // 4 <= each < VOCABULARY // 2 for each in numbers), numbers
    assert sampled.shape == (ROWS, 1) and best.indices.shape == (ROWS, 5)
    assert all(len(set(row)) == 5 for row in best.indices.tolist())

    # A router of 8 experts chooses two different ones, and all in turn.
    experts = logits[:, :8].repeat(250, 1).topk(2).indices
    counts = experts.flatten().bincount(minlength=8).tolist()
    assert min(counts) > 200 and (experts[:, 0] != experts[:, 1]).all(), counts

    # Unknown numbers are finite.
    loss = logits.mean()
    assert torch.isfinite(loss) and not torch.isnan(loss) and not torch.isinf(loss)
    assert torch.isfinite(logits[:, :64]).all()
    assert (torch.tensor([1.0, float("inf")], device="cuda").isinf()).tolist() == [False, True]

    # A scaled loss keeps its scale.
    weight = torch.nn.Parameter(torch.randn(512, 512, device="cuda"))
    optimizer, scaler = torch.optim.SGD([weight], 0.1), torch.amp.GradScaler("cuda")
    scaler.scale((weight @ weight).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 65536.0, scaler.get_scale()
    print(greedy.tolist(), sampled.tolist(), best.indices.tolist(), highest.tolist(), counts)


def run(reveille):
    command = [reveille, "run", "--attribution=off", "--", sys.executable, __file__]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[0], done.stderr


def main():
    if len(sys.argv) < 2:
        return program()
    (first, told), (second, _) = run(sys.argv[1]), run(sys.argv[1])
    assert first == second, (first, second)
    chosen = re.search(r"a kernel would have chosen (\d+) times by numbers that are not known", told)
    assert chosen, told
    assert re.search(r"\d+  \S*torch_assumed\.py:\d+ in program", told), told
    print(f"what is not known is assumed, {chosen[1]} times, alike in both runs")


main()
