# SPDX-License-Identifier: MIT
"""The number of tokens in each sequence: `reveille run --response-lengths`.

Kernels choose tokens, so every token is assumed (_reveille_assumed.py), and none of them ends a sequence. With a rule, each sequence
gets a length when it begins. Its last token then becomes the end token. If the program has none, or ignores it, the sequence ends there
by its own limit. A scheduler learns that a sequence ends no sooner than on a card.

A draw depends on the seed, on the tokens of the prompt, and on how often this process has had that prompt. So ranks that work on the
same sequence agree, and the order of requests does not matter. With a file, its lines are taken in turn instead.
"""

import collections
import copy
import ctypes
import hashlib
import math
import os
import random

_DRIVER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "libcuda.so.1")
_WARM_UP = 8  # tokens in requests that SGLang's servers send themselves, for warm-up and health checks


class _Rule:
    """The rule of the run. `most`: the greatest length that it names, or the mean of a rule without bounds."""

    def __init__(self, text, seed):
        self.text, self.seed = text, seed
        self.seen, self.turn = collections.Counter(), 0
        kind, _, values = text.partition(":")
        self.draw = getattr(self, "_" + kind)
        if kind == "uniform":
            self.range = [int(each) for each in values.split("..")]
            self.most = self.range[1]
        elif kind == "lognormal":
            mean, self.sigma = [float(each) for each in values.split(",")]
            self.mu, self.most = math.log(mean) - self.sigma**2 / 2, math.ceil(mean)
        else:
            with open(values, encoding="utf-8") as lines:
                self.lengths = [int(line) for line in lines]
            self.most = max(self.lengths)

    def _random(self, prompt):
        key = hashlib.sha256(",".join(map(str, prompt)).encode()).hexdigest()
        self.seen[key] += 1
        return random.Random(f"{self.seed} {key} {self.seen[key]}")

    def _uniform(self, prompt):
        return self._random(prompt).randint(*self.range)

    def _lognormal(self, prompt):
        return max(1, round(self._random(prompt).lognormvariate(self.mu, self.sigma)))

    def _file(self, _prompt):
        length = self.lengths[self.turn % len(self.lengths)]
        self.turn += 1
        return length


_rule = _Rule(os.environ["REVEILLE_RESPONSE_LENGTHS"], os.environ["REVEILLE_RESPONSE_SEED"])
_tell = ctypes.PyDLL(_DRIVER).rvli_simulated_length
_tell.restype, _tell.argtypes = None, (ctypes.c_uint64,)


def _length(prompt, least, limit, room):
    """The length of a new sequence. limit: the request's; room: what the model allows after the prompt."""
    if limit < room and _rule.most > limit:  # else it ends at the model's own limit, as on a card
        raise ValueError(
            f"reveille: --response-lengths {_rule.text}: sequences of up to {_rule.most} tokens, and a request allows {limit}: "
            "raise its limit, or take a rule within it"
        )
    length = min(max(_rule.draw(prompt), least or 0), limit, room)
    _tell(length)
    return length


def watch_vllm(module):
    """Called when vllm.v1.core.sched.scheduler was imported. Its requests are those of all ranks of the engine."""
    scheduler = module.Scheduler

    def end_of(request):
        wanted = request.sampling_params
        if wanted.ignore_eos:
            return None
        known = getattr(wanted, "eos_token_id", getattr(request, "eos_token_id", None))
        return known if known is not None else next(iter(wanted.stop_token_ids or ()), None)

    add, update = scheduler.add_request, scheduler._update_request_with_output
    take = scheduler.update_from_output

    def add_request(self, request, *args, **kwargs):
        wanted = request.sampling_params
        if wanted is not None and not hasattr(request, "_reveille_length"):
            model, prompt = self.max_model_len, request.prompt_token_ids or ()
            if _rule.most > model:
                raise ValueError(
                    f"reveille: --response-lengths {_rule.text}: sequences of up to {_rule.most} tokens, and the model's are of "
                    f"{model} with their prompt (max_model_len)"
                )
            room = max(model - request.num_prompt_tokens, 1)
            request._reveille_length = _length(prompt, wanted.min_tokens, request.max_tokens, room)
        return add(self, request, *args, **kwargs)

    def place_of(request, new_token_ids):
        """Which of a request's new tokens is its last, counted from 1. 0: none is."""
        length = getattr(request, "_reveille_length", None)
        place = length - request.num_output_tokens if length is not None else 0
        return place if 0 < place <= len(new_token_ids) else 0

    def update_request_with_output(self, request, new_token_ids):
        place = place_of(request, new_token_ids)
        if place > 0:
            end = end_of(request)
            if end is None:
                request.max_tokens = request._reveille_length
            else:
                new_token_ids[place - 1] = end
        return update(self, request, new_token_ids)

    def update_from_output(self, scheduler_output, output):
        """Replaces the end token among the log probabilities, too. Programs such as verl look up a token's log probability by the token:
        the sampled token is the first in its row."""
        if output.logprobs is not None and output.sampled_token_ids:
            tokens, begins = output.logprobs.logprob_token_ids.copy(), output.logprobs.cu_num_generated_tokens
            for name, index in output.req_id_to_index.items():
                request = self.requests.get(name)
                place = place_of(request, output.sampled_token_ids[index]) if request is not None else 0
                end = end_of(request) if place > 0 else None
                if end is not None:
                    tokens[(begins[index] if begins is not None else index) + place - 1, 0] = end
            output.logprobs = output.logprobs._replace(logprob_token_ids=tokens)
        return take(self, scheduler_output, output)

    scheduler.update_from_output = update_from_output
    scheduler.add_request = add_request
    scheduler._update_request_with_output = update_request_with_output


def watch_sglang(module):
    """Called when sglang.srt.managers.schedule_batch was imported. Each rank has all requests, in the same order."""
    name = next(each for each in ("update_finish_state", "check_finished") if hasattr(module.Req, each))
    update = getattr(module.Req, name)

    def end_of(request):
        known = getattr(request, "eos_token_ids", None) or {getattr(request.tokenizer, "eos_token_id", None)}
        return None if request.sampling_params.ignore_eos else next(iter(known))

    def update_and_end(self, *args, **kwargs):
        wanted = self.sampling_params
        if not hasattr(self, "_reveille_length"):
            limit = wanted.max_new_tokens
            self._reveille_length = _length(self.origin_input_ids, wanted.min_new_tokens, limit, math.inf) if limit > _WARM_UP else None
        length = self._reveille_length
        if length is not None and len(self.output_ids) >= length and not self.finished():
            end = end_of(self)
            if end is not None:
                self.output_ids[length - 1] = end
            else:
                self.sampling_params = copy.copy(wanted)
                self.sampling_params.max_new_tokens = length
        return update(self, *args, **kwargs)

    setattr(module.Req, name, update_and_end)


class _Lengths:
    """A stopping criterion of generate() that ends each row of a batch at its length."""

    def __init__(self, config):
        ends = getattr(config, "_eos_token_tensor", None)
        self.limit, self.least = config.max_length, config.min_new_tokens
        self.end = ends.flatten().tolist()[0] if ends is not None else None
        self.pad, self.lengths = config.pad_token_id, None

    def __call__(self, input_ids, _scores, **_):
        import torch

        if self.lengths is None:
            self.prompt = input_ids.shape[1] - 1
            limit = self.limit - self.prompt if self.limit is not None else math.inf
            rows = [[each for each in row if each != self.pad] for row in input_ids[:, :-1].tolist()]
            self.lengths = [_length(row, self.least, limit, math.inf) for row in rows]
        have = input_ids.shape[1] - self.prompt
        ending = [row for row, length in enumerate(self.lengths) if length == have]
        if self.end is not None and ending:
            last = input_ids[:, -1]
            last[torch.tensor(ending, device=input_ids.device)] = self.end
        return torch.tensor([length <= have for length in self.lengths], device=input_ids.device)


def watch_transformers(utils):
    """Called when transformers.generation.utils was imported. Beams are not sequences yet, and keep their limit."""
    made = utils.GenerationMixin._get_stopping_criteria

    def get_stopping_criteria(self, generation_config, *args, **kwargs):
        criteria = made(self, generation_config, *args, **kwargs)
        if generation_config.num_beams in (None, 1):
            criteria.append(_Lengths(generation_config))
        return criteria

    utils.GenerationMixin._get_stopping_criteria = get_stopping_criteria
