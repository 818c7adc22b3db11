# SPDX-License-Identifier: MIT
"""Replaces slime's train.py: slime's own placement, launcher and base class, with a trainer without Megatron.

Each trainer has 8 GiB of parameters and a few known numbers. slime preloads the file that it finds beside torch_memory_saver. Like
slime's, the trainer pauses and resumes everything. What each trainer reports is written to slime_train.json.
"""

import argparse
import json
import os
import pathlib
import time

import ray
import torch
from slime.ray.placement_group import allocate_train_group, create_placement_groups
from slime.ray.train_actor import TrainRayActor
from slime.utils.memory_utils import clear_memory
from torch_memory_saver import torch_memory_saver

PARAMETERS, NUMBERS = 8 << 30, [7.0, 11.0, 13.0]
AWAIT_S = 300  # for the check of the processes while all trainers sleep


class Trainer(TrainRayActor):
    def init(self, args, role, with_ref=False, with_opd_teacher=False):
        super().init(args, role, with_ref, with_opd_teacher)
        self.parameters = torch.empty(PARAMETERS, dtype=torch.uint8, device="cuda")
        self.numbers = torch.tensor(NUMBERS, device="cuda")
        return 0

    def free(self):
        return torch.cuda.mem_get_info()[0]

    def sleep(self):
        clear_memory(clear_host_memory=True)
        torch_memory_saver.pause()
        return self.free()

    def wake_up(self):
        torch_memory_saver.resume()
        return self.free()

    def say(self):
        import reveille

        with torch_memory_saver.disable():
            beside = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
        backup = torch_memory_saver.get_cpu_backup(self.numbers, zero_copy=True)
        return {
            "rank": int(os.environ["RANK"]),
            "preloaded": os.environ["LD_PRELOAD"],
            "ours": pathlib.Path(reveille.__file__).parent.as_posix(),
            "interesting": torch_memory_saver._impl._binary_wrapper.cdll.tms_get_interesting_region(),
            "numbers": self.numbers.tolist(),
            "backup of what is awake": backup is not None,
            "beside": beside.nbytes,
            "free": self.free(),
        }

    def train(self, rollout_id, rollout_data_ref, external_data=None):
        return None

    save_model = update_weights = _get_parallel_config = train


def settings():
    parser = argparse.ArgumentParser()
    for option in ("--colocate", "--offload"):
        parser.add_argument(option, action="store_true")
    args = parser.parse_args()
    assert args.colocate and args.offload
    # The values that slime's parser sets for these two options.
    vars(args).update(
        offload_train=True, offload_rollout=True, train_backend="megatron", train_env_vars={}, use_routing_replay=False, use_critic=False,
        actor_num_nodes=1, actor_num_gpus_per_node=2, rollout_num_gpus=2, num_gpus_per_node=2, rollout_external=False,
        debug_train_only=False, debug_rollout_only=False, distributed_backend="nccl", distributed_timeout_minutes=10,
    )  # fmt: skip
    return args


def main():
    args = settings()
    group = allocate_train_group(args, 1, args.actor_num_gpus_per_node, create_placement_groups(args)["actor"], actor_cls=Trainer)
    group.create()
    said = {"awake": ray.get([each.free.remote() for each in group._actor_handlers]), "asleep": group.offload()}
    here = pathlib.Path(os.environ["SLIME_SAID"])
    (here / "asleep").touch()
    end = time.monotonic() + AWAIT_S
    while not (here / "seen").exists():
        assert time.monotonic() < end, "nobody looked at the processes"
        time.sleep(0.2)
    said["awake again"] = group.onload()
    said["ranks"] = ray.get([each.say.remote() for each in group._actor_handlers])
    (here / "slime_train.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main()
