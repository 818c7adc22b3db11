# SPDX-License-Identifier: MIT
"""Programs for torch_memory_saver on Reveille, on a simulated GPU: both modes, under the package's own name.

    REVEILLE_AS_TORCH_MEMORY_SAVER=1 PYTHONPATH=python/reveille/alias:python:$PYTHONPATH ... torch_saver.py torch
    the same with LD_PRELOAD=libreveille-preload.so ... torch_saver.py preload
"""

import sys

import torch
from torch_memory_saver import torch_memory_saver as saver

MIB = 1 << 20
SIZE = 256 * MIB


def used():
    """Bytes in use on the device, without PyTorch's idle memory."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return total - free


def main():
    assert type(saver).__module__.startswith("reveille"), type(saver)
    saver.hook_mode = sys.argv[1]
    torch.ones(1, device="cuda")
    with saver.region(tag="warm"):
        warm = torch.ones(1, device="cuda")
    before = used()
    with saver.region(tag="weights", enable_cpu_backup=True):
        weights = torch.empty(SIZE, dtype=torch.uint8, device="cuda")
        numbers = torch.arange(100, device="cuda")
    with saver.region(tag="kv_cache"):
        cache = torch.empty(2 * SIZE, dtype=torch.uint8, device="cuda")
    where = [each.data_ptr() for each in (weights, numbers, cache)]
    awake = used()
    assert awake - before >= 3 * SIZE, awake - before
    saver.pause("kv_cache")
    assert awake - used() == 2 * SIZE, awake - used()
    saver.pause("weights")
    assert used() - before <= 2 * MIB, used() - before
    saver.resume("weights")
    saver.resume("kv_cache")
    assert used() == awake, used() - awake
    assert where == [each.data_ptr() for each in (weights, numbers, cache)]
    assert numbers.tolist() == list(range(100)), "a backup brings back what was known"
    assert warm.item() == 1
    print(f"PASS {sys.argv[1]}")


main()
