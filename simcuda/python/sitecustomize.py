# SPDX-License-Identifier: MIT
"""Python runs this at its start, in every process under `reveille run`: its folder is in PYTHONPATH.

It waits for PyTorch to be imported. Then libraries that programs look up are found (_reveille_libraries.py), small tensors are computed
for real (_reveille_tensors.py, _reveille_triton.py), PyTorch's out-of-memory errors are counted (_reveille_refusals.py), an error that
ends the program is reported (_reveille_ends.py), a race of DDP ends in one way (_reveille_races.py), engines report their KV cache
(_reveille_engines.py), sequences get their lengths (_reveille_lengths.py), and ranges of record_function become stages
(_reveille_stages.py). It also runs the sitecustomize that it hides, if there is one.
"""

import importlib
import importlib.machinery
import importlib.util
import os
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))


STAGES = {
    "torch.autograd.profiler": [("_reveille_stages", "watch", "record_function makes no stages")],
    "trl.extras.profiling": [("_reveille_stages", "watch_trl", "TRL's phases make no stages")],
    **{
        f"verl.utils.profiler.{part}": [("_reveille_stages", "watch_verl", "verl's phases make no stages")]
        for part in ("performance", "nvtx_profile")
    },
    "skyrl.train.utils.utils": [("_reveille_stages", "watch_skyrl", "SkyRL's phases make no stages")],
    "slime.observability.timer": [("_reveille_stages", "watch_slime", "slime's phases make no stages")],
    **{
        f"openrlhf.trainer.{part}": [("_reveille_stages", "watch_openrlhf", "OpenRLHF's phases make no stages")]
        for part in ("ppo_trainer", "ppo_utils.experience_maker", "ppo_utils.samples_generator")
    },
}
LIBRARIES = {"torch": [("_reveille_libraries", "settle", "libraries that it looks up may not be found")]}
REFUSALS = {"torch": [("_reveille_refusals", "watch", "lines of refused requests are not known")]}
TENSORS = {
    "torch": [("_reveille_tensors", "begin", "small tensors are not computed")],
    "torch._inductor.output_code": [("_reveille_tensors", "watch_compiled", "small tensors are not computed")],
    "triton.runtime.jit": [("_reveille_triton", "watch", "what Triton's kernels write is taken for what was there")],
}
HOST = {"torch": [("_reveille_host", "count", "host memory of tensors is not counted")]}
RACES = {
    "torch.nn.parallel.distributed": [("_reveille_races", "watch", "DDP's first bucket goes early or late")],
    "torch._inductor.cudagraph_trees": [("_reveille_races", "watch_graphs", "whether code was compiled is not told")],
}
ENGINES = {
    "vllm.v1.engine.core": [("_reveille_engines", "watch_vllm", "vLLM's KV cache is not told of")],
    "sglang.srt.managers.scheduler": [("_reveille_engines", "watch_sglang", "SGLang's KV cache is not told of")],
}
LENGTHS = {
    "vllm.v1.core.sched.scheduler": [("_reveille_lengths", "watch_vllm", "--response-lengths does not reach vLLM")],
    "sglang.srt.managers.schedule_batch": [("_reveille_lengths", "watch_sglang", "--response-lengths does not reach SGLang")],
    "transformers.generation.utils": [("_reveille_lengths", "watch_transformers", "--response-lengths does not reach generate()")],
}
ENDS = {"torch": [("_reveille_ends", "watch", "errors that end the program are not told of")]}
HISTORY = {"torch": [("_reveille_history", "begin", "what memory is for is not followed")]}


class _Watch:
    """Calls functions of our modules, in order, when another module has been imported."""

    def __init__(self, *parts):
        self.left = {}
        for part in parts:
            for name, acts in part.items():
                self.left.setdefault(name, []).extend(acts)
        self.asking = set()

    def find_spec(self, name, path=None, target=None):
        asking = name, threading.get_ident()
        if name not in self.left or asking in self.asking:
            return None
        self.asking.add(asking)  # the other finders are called through find_spec(), which calls this one again
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asking.discard(asking)
        if spec is None or not hasattr(spec.loader, "exec_module"):
            return spec
        run = spec.loader.exec_module

        # A program may only check whether a module exists, so it counts once it runs.
        def run_and_act(module):
            acts = self.left.pop(name, [])
            run(module)
            for ours, act, lost in acts:
                try:
                    getattr(importlib.import_module(ours), act)(module)
                except Exception as error:  # a version of PyTorch that lacks what this needs
                    print(f"reveille: {lost}: {error!r}", file=sys.stderr)

        spec.loader.exec_module = run_and_act
        return spec


def _run_hidden():
    """Runs the sitecustomize that Python would have run without us."""
    folders = [each for each in sys.path if os.path.abspath(each or ".") != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", folders)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get("REVEILLE_MACHINE"):
    contents = [] if os.environ.get("REVEILLE_KEEP_CONTENTS") == "0" else [TENSORS]
    stages = [STAGES] if "REVEILLE_STAGES" in os.environ else []
    history = [HISTORY] if os.environ.get("REVEILLE_HISTORY") else []
    lengths = [LENGTHS] if "REVEILLE_RESPONSE_LENGTHS" in os.environ else []
    host = [HOST] if os.environ.get("REVEILLE_KEEP_HOST") else []
    sys.meta_path.insert(0, _Watch(LIBRARIES, REFUSALS, ENDS, RACES, ENGINES, *lengths, *host, *stages, *history, *contents))
_run_hidden()
