# SPDX-License-Identifier: MIT
"""Stages of the programs beside this: what allocator and device say at the end of each."""

import json
import os

import torch


class Stages:
    """Readings by stage, kept in FOLDER/RANK.json. Make it before any memory on the device."""

    def __init__(self, folder):
        torch.cuda.init()
        self.path = os.path.join(folder, f"{os.environ.get('RANK', '0')}.json")
        self.rows = []
        self.facts = {}  # what else the program finds out, and a card must say too
        self.end("start")

    def end(self, name):
        """The stage of that name ends here, and the next one begins."""
        torch.cuda.synchronize()
        said = torch.cuda.memory_stats()
        free, total = torch.cuda.mem_get_info()
        self.rows.append(
            {
                "name": name,
                "peak_allocated_bytes": said.get("allocated_bytes.all.peak", 0),
                "peak_reserved_bytes": said.get("reserved_bytes.all.peak", 0),
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
