# SPDX-License-Identifier: MIT
"""A wake-up that uses a cache without its content is seen: `REVEILLE_POISON=1 poison.py`."""

from __future__ import annotations

import time

import reveille
import torch

from common import MIB, Checks

SIZE = 2048 * MIB


def seconds_of_resume(tag: str) -> float:
    begun = time.monotonic()
    reveille.resume(tag)
    return time.monotonic() - begun


def stale_use_is_seen() -> None:
    with reveille.region("weights", backup="host"):
        weights = torch.ones(1024, device="cuda")
    with reveille.region("kv_cache"):
        caches = [torch.ones(SIZE // kind.itemsize, dtype=kind, device="cuda") for kind in (torch.float32, torch.bfloat16)]
        index = torch.zeros(1024, dtype=torch.int64, device="cuda")
    reveille.pause()
    resumed_s = seconds_of_resume("kv_cache")
    reveille.resume("weights")
    assert weights.sum().item() == 1024
    for cache in caches:
        assert bool(cache.isnan().all()), cache.dtype
        assert (weights[:16].sum() * cache[0]).isnan().item()
        cache.zero_()  # it can be written to as before
        assert cache.sum().item() == 0
    assert index.tolist() == [-1] * 1024
    print(f"      {2 * SIZE >> 30} GiB came back as NaN: {resumed_s * 1e3:.0f} ms", flush=True)


if __name__ == "__main__":
    checks = Checks("poison")
    checks.run_on_card("stale use is seen", stale_use_is_seen, "what is filled is too large to be kept")
    checks.end()
