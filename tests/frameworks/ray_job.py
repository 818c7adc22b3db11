# SPDX-License-Identifier: MIT
"""A Ray job that ray_jobs.py runs: ray_job.py CASE [ADDRESS]. Prints what the actors report, as JSON on one line."""

import json
import os
import signal
import sys

import ray
import torch
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

GIB = 1 << 30


@ray.remote(num_gpus=1, num_cpus=1)
class Holder:
    def hold(self, size):
        self.held = torch.empty(size, dtype=torch.uint8, device="cuda")
        return os.environ["CUDA_VISIBLE_DEVICES"], torch.cuda.max_memory_allocated()

    def hold_in_second_life(self, marker):
        """The actor's first life takes twice as much, and ends."""
        if os.path.exists(marker):
            return self.hold(GIB)
        open(marker, "w").close()
        self.hold(2 * GIB)
        os._exit(7)

    def end(self, killed):
        self.hold(GIB)
        os.kill(os.getpid(), signal.SIGKILL) if killed else os._exit(7)


def place():
    """Four actors, two in each bundle of a group."""
    group = placement_group([{"GPU": 2, "CPU": 2}] * 2, strategy="STRICT_PACK")
    ray.get(group.ready())
    put = [PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=i // 2) for i in range(4)]
    actors = [Holder.options(scheduling_strategy=each).remote() for each in put]
    return ray.get([each.hold.remote((i + 1) * GIB) for i, each in enumerate(actors)])


def restart():
    actor = Holder.options(max_restarts=1, max_task_retries=1).remote()
    return ray.get(actor.hold_in_second_life.remote(os.path.abspath("marker")))


def beside(make):
    """One actor holds 1 GiB, while another misbehaves."""
    good, bad = Holder.remote(), Holder.remote()
    ray.get(good.hold.remote(GIB))
    return ray.get(make(bad))


CASES = {
    "place": place,
    "restart": restart,
    "killed": lambda: beside(lambda actor: actor.end.remote(True)),
    "exits": lambda: beside(lambda actor: actor.end.remote(False)),
    "memory": lambda: beside(lambda actor: actor.hold.remote(100 * GIB)),
}


if __name__ == "__main__":
    where = {"address": sys.argv[2]} if sys.argv[2:] else {"num_cpus": 8, "include_dashboard": False}
    ray.init(**where, log_to_driver=False)
    print("said", json.dumps(CASES[sys.argv[1]]()), flush=True)
    ray.shutdown()
