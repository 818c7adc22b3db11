#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sequences have the lengths that `reveille run --response-lengths` sets: lengths.py COMMAND.

vLLM runs in tests/simcuda/vllm_lengths.py, transformers in torch_lengths.py. Here, packages with the names of vLLM and SGLang have only
what is followed: a scheduler that appends tokens until a request ends.
"""

import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

MODEL, END, OTHER = 2048, 2, 77  # the model's longest sequence, its end token, and an assumed token
SCHEDULER = """
import collections
Logprobs = collections.namedtuple("Logprobs", "logprob_token_ids cu_num_generated_tokens")
class Table(dict):
    def copy(self):
        return Table(self)
class Scheduler:
    max_model_len = 2048
    def __init__(self):
        self.requests = {}
    def add_request(self, request):
        self.requests[len(self.requests)] = request
    def update_from_output(self, scheduler_output, output):
        stops = []
        for name, index in output.req_id_to_index.items():
            begin = output.logprobs.cu_num_generated_tokens[index] if output.logprobs.cu_num_generated_tokens else index
            new, stopped = self._update_request_with_output(self.requests[name], output.sampled_token_ids[index])
            known = [output.logprobs.logprob_token_ids[begin + i, 0] for i in range(len(new))]
            assert known == new, (known, new)
            stops.append(stopped)
        return stops
    def _update_request_with_output(self, request, new_token_ids):
        for count, token in enumerate(new_token_ids, 1):
            request.output_token_ids.append(token)
            wanted = request.sampling_params
            stops = request.num_output_tokens >= wanted.min_tokens and token in (wanted.eos_token_id, *wanted.stop_token_ids)
            if stops or request.num_output_tokens >= min(request.max_tokens, self.max_model_len - request.num_prompt_tokens):
                del new_token_ids[count:]
                return new_token_ids, True
        return new_token_ids, False
"""
BATCH = """
class Req:
    tokenizer = None
    def __init__(self, prompt, limit, least, end, ignores):
        self.origin_input_ids, self.output_ids, self.reason, self.eos_token_ids = prompt, [], None, {end} if end else None
        self.sampling_params = type("Some", (), dict(max_new_tokens=limit, min_new_tokens=least, ignore_eos=ignores))()
    def finished(self):
        return self.reason is not None
    def UPDATE(self, *accepted):
        if self.finished():
            return
        if not self.sampling_params.ignore_eos and self.output_ids[-1] in (self.eos_token_ids or ()):
            self.reason = "stop"
        elif len(self.output_ids) >= self.sampling_params.max_new_tokens:
            self.reason = "length"
"""


def check(got, expected, what):
    assert got == expected, f"{what}: {got}, expected {expected}"


# ---- Programs under `reveille run`, which print the output of each request ----


class Request:
    def __init__(self, prompt, limit, least, end, ignores):
        self.prompt_token_ids, self.num_prompt_tokens = prompt, len(prompt)
        self.output_token_ids, self.max_tokens = [], limit
        stops = [3] if end is None else []
        self.sampling_params = type("Some", (), dict(min_tokens=least, eos_token_id=end, ignore_eos=ignores, stop_token_ids=stops))()

    @property
    def num_output_tokens(self):
        return len(self.output_token_ids)


def of_vllm(requests, many):
    from vllm.v1.core.sched.scheduler import Logprobs, Scheduler, Table

    scheduler = Scheduler()
    for each in requests:
        scheduler.add_request(Request(*each))
    left = list(scheduler.requests)
    while left:
        output = type("Output", (), {})()
        output.req_id_to_index = {name: index for index, name in enumerate(left)}
        output.sampled_token_ids = [[OTHER] * many for _ in left]
        begins = [index * many for index in range(len(left))] if many > 1 else None
        output.logprobs = Logprobs(Table({(row, 0): OTHER for row in range(len(left) * many)}), begins)
        stops = scheduler.update_from_output(None, output)
        left = [name for name, stopped in zip(left, stops) if not stopped]
    for request in scheduler.requests.values():
        yield request.output_token_ids


def of_sglang(requests, many):
    from sglang.srt.managers.schedule_batch import Req

    update = Req.update_finish_state if hasattr(Req, "update_finish_state") else Req.check_finished
    for each in requests:
        request = Req(*each)
        while not request.finished():
            request.output_ids.append(OTHER)
            update(request)
        check(request.reason, "stop" if request.output_ids[-1] == END else "length", "reason")
        yield request.output_ids


def program(engine, text):
    given = json.loads(text)
    import ctypes

    assert ctypes.CDLL("libcudart.so.13").cudaFree(None) == 0
    for output in globals()["of_" + engine](given["requests"], given["many"]):
        assert set(output[:-1]) <= {OTHER}, output
        print(len(output), output[-1])


# ---- Comparison of what they print ----


class Runner:
    def __init__(self, command, folder):
        self.command, self.folder = command, folder

    def start(self, engine, words, requests, many=1):
        shown = self.folder / "run.json"
        shown.unlink(missing_ok=True)
        text = json.dumps({"requests": requests, "many": many})
        done = subprocess.run(
            [self.command, "run", "--attribution=off", *words, f"--json={shown}", "--", sys.executable, "-B", __file__, engine, text],
            env=dict(os.environ, PYTHONPATH=str(self.folder)),
            capture_output=True,
            text=True,
        )
        return done, json.loads(shown.read_text()).get("responses") if shown.exists() else None

    def run(self, engine, rule, requests, *words, many=1):
        """The lengths and last tokens of requests."""
        done, shown = self.start(engine, [f"--response-lengths={rule}", *words], requests, many)
        check(done.returncode, 0, done.stderr)
        rows = [tuple(map(int, each.split())) for each in done.stdout.splitlines()[: len(requests)]]
        lengths = [length for length, _ in rows]
        expected = {"rule": rule, "sequences": len(rows), "tokens": sum(lengths), "shortest_tokens": min(lengths), "longest_tokens": max(lengths)}
        check(shown, expected, "responses")
        said = f"{len(rows)} sequences of {min(lengths)} to {max(lengths)} tokens, {sum(lengths) / len(rows):.1f} in the mean"
        assert f"--response-lengths {rule}: {said}\n" in done.stderr, (said, done.stderr)
        return rows

    def lengths(self, *args, **settings):
        return [length for length, _ in self.run(*args, **settings)]


def ask(prompt, limit=64, least=0, end=END, ignores=False):
    return [prompt, limit, least, end, ignores]


def check_draws(runner, engine):
    """Draws for one prompt many times, and for other prompts; in two orders, in two runs, and with another seed."""
    same, others = [ask([5, 6, 7])] * 300, [ask([each]) for each in range(300)]
    first = runner.run(engine, "uniform:3..60", same + others)
    check({token for _, token in first}, {END}, "last tokens")
    lengths = [length for length, _ in first]
    check((min(lengths), max(lengths)), (3, 60), "bounds of 600 draws")
    assert abs(statistics.mean(lengths) - 31.5) < 2.5, statistics.mean(lengths)  # 3.6 standard errors
    assert lengths[:300] != lengths[300:], "each draw is its own"
    check(runner.run(engine, "uniform:3..60", same + others), first, "a second run")
    turned = runner.run(engine, "uniform:3..60", same + others[::-1])
    check(turned[300:], first[:299:-1], "requests in another order")
    assert runner.run(engine, "uniform:3..60", same + others, "--response-seed=1") != first, "another seed"
    check(set(runner.lengths(engine, "uniform:9..9", same)), {9}, "one length alone")


def check_lognormal(runner, engine):
    lengths = runner.lengths(engine, "lognormal:300,0.5", [ask([each], 100000) for each in range(1000)] if engine == "sglang" else
                             [ask([each], MODEL) for each in range(1000)])  # fmt: skip
    logarithms = [math.log(each) for each in lengths]
    assert abs(statistics.mean(lengths) - 300) < 20, statistics.mean(lengths)  # the standard error of the mean is 5
    assert abs(statistics.stdev(logarithms) - 0.5) < 0.05, statistics.stdev(logarithms)
    # A draw above the request's limit ends at the limit.
    capped = runner.lengths(engine, "lognormal:60,0.5", [ask([each]) for each in range(200)])
    assert max(capped) == 64 and min(capped) < 40, capped


def check_file(runner, engine):
    path = runner.folder / "lengths.txt"
    path.write_text("7\n31\n64\n")
    requests = [ask([each]) for each in range(5)]
    check(runner.run(engine, str(path), requests), [(7, END), (31, END), (64, END), (7, END), (31, END)], "a file's lines")
    # The request's own settings: at least 20 tokens; an ignored end token; no end token. Then its limit ends it, or vLLM's other end
    # token.
    requests = [ask([1], least=20), ask([1], ignores=True), ask([1], end=None, limit=100)]
    check(runner.run(engine, str(path), requests), [(20, END), (31, OTHER), (64, 3 if engine == "vllm" else OTHER)], "other requests")


def check_refusals(runner, engine):
    for rule, most in ("uniform:1..65", 65), ("lognormal:64.5,1", 65):
        done, _ = runner.start(engine, [f"--response-lengths={rule}"], [ask([1])])
        check(done.returncode, 1, done.stderr)
        told = f"reveille: --response-lengths {rule}: sequences of up to {most} tokens, and a request allows 64: raise its limit"
        assert told in done.stderr, done.stderr


def check_words(runner):
    path = runner.folder / "bad.txt"
    path.write_text("12\n\n13\n")
    empty = runner.folder / "empty.txt"
    empty.touch()
    rules = "expected max, uniform:A..B, lognormal:MEAN,SIGMA, or a file with a number a line"
    for value, told in (
        ("normal:3", f"no rule, and no file (No such file or directory): {rules}"),
        ("uniform:3", "expected uniform:A..B, two numbers of tokens from 1 to 1000000000"),
        ("uniform:0..4", "expected uniform:A..B"),
        ("uniform:3..4x", "expected uniform:A..B"),
        ("uniform:9..4", "9 is more than 4"),
        ("lognormal:300", "expected lognormal:MEAN,SIGMA"),
        ("lognormal:0x40,1", "expected lognormal:MEAN,SIGMA"),
        ("lognormal:0.5,1", "expected lognormal:MEAN,SIGMA"),
        ("lognormal:300,11", "from 0 to 10"),
        (str(path), ":2: expected a number of tokens from 1 to 1000000000"),
        (str(empty), "the file has no lengths"),
        (str(runner.folder), "name a file that stays"),
    ):
        done, shown = runner.start("vllm", [f"--response-lengths={value}"], [])
        check((done.returncode, shown), (2, None), done.stderr)
        assert f"--response-lengths {value}" in done.stderr and told in done.stderr, (told, done.stderr)
    done, _ = runner.start("vllm", ["--response-seed=3"], [])
    check(done.returncode, 2, done.stderr)
    assert "--response-seed: of which lengths? Add --response-lengths" in done.stderr, done.stderr


def check_check(runner):
    """`reveille check` passes the rule on, with a file name relative to its own file. So does `reveille fit`."""
    (runner.folder / "gate").mkdir()
    (runner.folder / "gate" / "lengths.txt").write_text("7\n31\n")
    text = json.dumps({"requests": [ask([1]), ask([2])], "many": 1})
    program = [sys.executable, "-B", __file__, "vllm", text]
    environment = dict(os.environ, PYTHONPATH=str(runner.folder))
    for rule, seed, told in (
        ("lengths.txt", {}, "lengths.txt: 2 sequences of 7 to 31 tokens, 19.0 in the mean"),
        ("uniform:9..9", {"response_seed": 3}, "uniform:9..9: 2 sequences of 9 to 9 tokens, 9.0 in the mean"),
    ):
        checks = {"schema": 1, "checks": [{"name": "job", "command": program, "response_lengths": rule, **seed}]}
        (runner.folder / "gate" / "c.json").write_text(json.dumps(checks))
        done = subprocess.run([runner.command, "check", "gate/c.json"], cwd=runner.folder, env=environment, capture_output=True, text=True)
        check(done.returncode, 0, done.stdout + done.stderr)
        check(f'reveille: check job on h200: "response_lengths" {told}\n' in done.stderr, True, done.stderr)
    words = ["fit", "--find", "n=1..2", "--jobs", "1", "--progress=never", "--response-lengths"]
    for rule, status, told in ("uniform:9..4", 2, "--response-lengths uniform:9..4: 9 is more than 4"), ("uniform:9..9", 0, ""):
        done = subprocess.run([runner.command, *words, rule, "--", *program, "{n}"], env=environment, capture_output=True, text=True)
        check(done.returncode, status, done.stdout + done.stderr)
        check(told in done.stderr, True, done.stderr)


def module(folder, name, text):
    path = folder.joinpath(*name.split("."))
    path.parent.mkdir(parents=True, exist_ok=True)
    for each in [path.parent, *path.parent.parents]:
        if each == folder:
            break
        (each / "__init__.py").touch()
    path.with_suffix(".py").write_text(text)


def main(command):
    with tempfile.TemporaryDirectory() as name:
        runner = Runner(command, pathlib.Path(name))
        module(runner.folder, "vllm.v1.core.sched.scheduler", SCHEDULER)
        for update in "update_finish_state", "check_finished":
            module(runner.folder, "sglang.srt.managers.schedule_batch", BATCH.replace("UPDATE", update))
            check_file(runner, "sglang")
        for engine in "vllm", "sglang":
            check_draws(runner, engine)
            check_lognormal(runner, engine)
            check_refusals(runner, engine)
        check_file(runner, "vllm")
        check_words(runner)
        check_check(runner)

        # Tokens that arrive together, as with speculative decoding: the sequence ends among them.
        rows = runner.run("vllm", "uniform:7..7", [ask([1]), ask([2], ignores=True)], many=4)
        check(rows, [(7, END), (7, OTHER)], "four tokens at a time")
        # The model's own limit is not a request's limit: what the prompt leaves may be less than the rule's longest length.
        check(runner.lengths("vllm", "uniform:100..100", [ask([1] * 2000, 48)]), [48], "a long prompt")
        done, _ = runner.start("vllm", ["--response-lengths=uniform:1..2049"], [ask([1], 4000)])
        assert "up to 2049 tokens, and the model's are of 2048 with their prompt (max_model_len)" in done.stderr, done.stderr
        # SGLang's server itself sends requests for 8 tokens and for one.
        done, shown = runner.start("sglang", ["--response-lengths=uniform:20..30"], [ask([1], 8), ask([1], 1)])
        check((done.stdout.splitlines()[:2], shown["sequences"]), ([f"8 {OTHER}", f"1 {OTHER}"], 0), "requests of the server")
        assert "no sequence got its length: vLLM, SGLang and generate() of transformers ask for one" in done.stderr, done.stderr

        for words in [], ["--response-lengths=max"]:
            done, shown = runner.start("vllm", words, [ask([1])])
            check((done.stdout.splitlines()[0], shown), (f"64 {OTHER}", None), "without a rule")
            assert "--response-lengths" not in done.stderr, done.stderr
    print("sequences have the lengths that a rule gives them")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        program(*sys.argv[1:3])
    else:
        main(*sys.argv[1:])
