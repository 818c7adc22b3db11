# SPDX-License-Identifier: MIT
"""An allocator that waits for Python's lock while PyTorch holds its own lock, like vLLM's. Meanwhile, the use of memory is collected.

    python torch_allocator.py REVEILLE [inside LIBRARY]
"""

import pathlib
import re
import subprocess
import sys
import tempfile

COUNT, SIZE = 20000, 2 << 20  # each is a separate request; all together take a few seconds, with a look every 0.1 s


def inside(library):
    import torch

    allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "with_python", "without")
    pool = torch.cuda.MemPool(allocator.allocator())
    with torch.cuda.use_mem_pool(pool):
        kept = [torch.empty(SIZE, dtype=torch.uint8, device="cuda") for _ in range(COUNT)]
    print(len(kept), "allocated")


def main():
    if sys.argv[2:3] == ["inside"]:
        inside(sys.argv[3])
        return
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/allocator.so"
        source = pathlib.Path(__file__).with_suffix(".c")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        done = subprocess.run([sys.argv[1], "run", "--device", "h100-80g", "--", sys.executable, __file__, "-", "inside", library],
                              capture_output=True, text=True, check=True, timeout=120)  # fmt: skip
    assert f"{COUNT} allocated" in done.stdout, done.stdout
    held = re.search(r"^at the peak of run: other tensors (\S+) GiB", done.stdout, re.M)
    assert held and abs(float(held[1]) - COUNT * SIZE / (1 << 30)) < 0.1, done.stdout
    print(f"{COUNT} allocations that waited for Python, {held[1]} GiB followed")


main()
