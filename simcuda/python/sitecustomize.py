# SPDX-License-Identifier: MIT
"""Python runs this at its start, in every process under `reveille run`: PYTHONPATH has its folder.

It waits for PyTorch. Small tensors are then computed for real (_reveille_tensors.py). It also
runs the sitecustomize that it hides, if there is one.
"""

import importlib.machinery
import importlib.util
import os
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))


class _Watch:
    """Calls a function of _reveille_tensors when a module has been imported."""

    ACTS = {"torch": "begin", "torch._inductor.output_code": "watch_compiled"}

    def __init__(self):
        self.left = dict(self.ACTS)
        self.asking = set()

    def find_spec(self, name, path=None, target=None):
        asking = name, threading.get_ident()
        if name not in self.left or asking in self.asking:
            return None
        self.asking.add(asking)  # the others are asked by asking all of us
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asking.discard(asking)
        if spec is None or not hasattr(spec.loader, "exec_module"):
            return spec
        run = spec.loader.exec_module

        # Who asks for a module may only want to know whether it is there: it counts when it runs.
        def run_and_act(module):
            act = self.left.pop(name, None)
            run(module)
            if act is None:
                return
            try:
                import _reveille_tensors

                getattr(_reveille_tensors, act)(module)
            except Exception as error:  # a version of PyTorch that has not what this needs
                print(f"reveille: small tensors are not computed: {error!r}", file=sys.stderr)

        spec.loader.exec_module = run_and_act
        return spec


def _run_hidden():
    """What Python would have run without us."""
    folders = [each for each in sys.path if os.path.abspath(each or ".") != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", folders)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get("REVEILLE_MACHINE") and os.environ.get("REVEILLE_KEEP_CONTENTS") != "0":
    sys.meta_path.insert(0, _Watch())
_run_hidden()
