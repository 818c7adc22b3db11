# SPDX-License-Identifier: MIT
"""Stages of the programs in this folder: measurements of the allocator and the device at the end of each."""

import ctypes
import json
import os

import torch

SLEEP = 4  # CU_CTX_SCHED_BLOCKING_SYNC


def wait_asleep():
    """Makes waiting for the device take no CPU time. Call it before the device is used."""
    driver = ctypes.CDLL("libcuda.so.1")
    device = int(os.environ.get("LOCAL_RANK", "0"))
    if driver.cuInit(0) or driver.cuDevicePrimaryCtxSetFlags_v2(device, SLEEP):
        raise RuntimeError("the driver does not let the program sleep while it waits")


def memory():
    """The current state of PyTorch's allocator and of the device, in bytes."""
    free, total = torch.cuda.mem_get_info()
    return {
        "allocated": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "max_allocated": torch.cuda.max_memory_allocated(),
        "max_reserved": torch.cuda.max_memory_reserved(),
        "used": total - free,
    }


class Stages:
    """Measurements by stage, kept in FOLDER/RANK.json. Make it before any memory on the device."""

    def __init__(self, folder):
        if os.environ.get("STAGES_BLOCKING"):
            wait_asleep()
        torch.cuda.init()
        self.path = os.path.join(folder, f"{os.environ.get('RANK', '0')}.json")
        self.rows = []
        self.facts = {}  # other results of the program, which must be equal on a card
        self.end("start")

    def end(self, name):
        """Ends the stage with this name, and begins the next."""
        torch.cuda.synchronize()
        said = torch.cuda.memory_stats()
        free, total = torch.cuda.mem_get_info()
        self.rows.append(
            {
                "name": name,
                "peak_allocated_bytes": said.get("allocated_bytes.all.peak", 0),
                "peak_reserved_bytes": said.get("reserved_bytes.all.peak", 0),
                "end_allocated_bytes": said.get("allocated_bytes.all.current", 0),
                "end_reserved_bytes": said.get("reserved_bytes.all.current", 0),
                "end_used_bytes": total - free,
                "retries": said.get("num_alloc_retries", 0),
                "ooms": said.get("num_ooms", 0),
            }
        )
        torch.cuda.reset_peak_memory_stats()
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump(
                {
                    "torch": torch.__version__,
                    "device": torch.cuda.get_device_name(),
                    "total_bytes": total,
                    "facts": self.facts,
                    "stages": self.rows,
                },
                file,
            )
