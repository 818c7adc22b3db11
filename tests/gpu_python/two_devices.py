# SPDX-License-Identifier: MIT
"""Regions on two devices: one tag, one pool each, and errors that name the device."""

from __future__ import annotations

import sys

import reveille
import torch

from common import MIB, SIMULATED, Checks, near

SIZE = 512 * MIB


def used_on(device: int) -> int:
    torch.cuda.synchronize(device)
    free, total = torch.cuda.mem_get_info(device)
    return total - free


def one_tag_on_both() -> None:
    tensors = []
    for device in (0, 1):
        with torch.cuda.device(device), reveille.region("both", backup="host"):
            tensors.append(torch.full((SIZE,), device + 1, dtype=torch.uint8, device="cuda"))
    before = [used_on(0), used_on(1)]
    reveille.pause("both")
    for device in (0, 1):
        near(before[device] - used_on(device), SIZE)
    reveille.resume("both")
    for device in (0, 1):
        near(used_on(device), before[device])
        assert SIMULATED or tensors[device].unique().tolist() == [device + 1]


def the_second_device_is_named() -> None:
    with torch.cuda.device(1):
        with reveille.region("second"):
            tensor = torch.ones(4 * SIZE, dtype=torch.uint8, device="cuda")
        reveille.pause("second")
        free = torch.cuda.mem_get_info(1)[0]
        copy = torch.ones(free - 2 * SIZE, dtype=torch.uint8, device="cuda")
    try:
        reveille.resume("second")
    except reveille.OutOfDeviceMemory as error:
        assert error.device == 1 and " free on cuda:1" in str(error), error
    else:
        raise AssertionError("nothing was refused")
    del copy, tensor
    torch.cuda.empty_cache()


if __name__ == "__main__":
    checks = Checks(f"two_devices_{sys.argv[1]}")
    checks.run("one tag on both", one_tag_on_both)
    checks.run("the second device is named", the_second_device_is_named)
    checks.end()
