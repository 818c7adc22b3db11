# SPDX-License-Identifier: MIT
"""Large tensors in host memory under `reveille run --keep-host`: what they hold, take and count.

    torch_host.py COMMAND

COMMAND is the command `reveille`. Each figure is compared: what is counted with the tensors' sizes, what
the process takes with what the kernel says, and a refusal with its text.
"""

import re
import subprocess
import sys

MIB = 1 << 20

INSIDE = """
import os, resource, torch
MIB = 1 << 20
def resident():
    words = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
    return int(words["VmRSS"].split()[0]) >> 10, int(words["RssAnon"].split()[0]) >> 10
small = torch.arange(4 * MIB // 8)
before = resident()[1]
large = torch.ones(3 << 28)  # 3 GiB
large.mul_(2)
print("grown", resident()[1] - before)
assert small[-1] == 4 * MIB // 8 - 1 and small[0] == 0
pinned = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)
on_gpu = large.cuda()
back = on_gpu.cpu()
if os.fork() == 0:
    del large, back
    os._exit(0)
os.wait()
del large
again = torch.empty(1 << 28)
print("done", again.numel(), small.sum().item())
"""


def run(command, *options):
    done = subprocess.run(
        [command, "run", "--device", "h100-80g", *options, "--", sys.executable, "-c", INSIDE],
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout + done.stderr


def main():
    command = sys.argv[1]
    status, said = run(command, "--keep-host", "64MiB")
    assert status == 0, said
    assert int(re.search(r"grown (\d+)", said)[1]) < 32, said
    # 4 MiB, 3 GiB, and 3 GiB that come back from the GPU; 1 GiB of pinned memory.
    needs = re.search(r"the host needs up to (\S+ \S+): (\S+ \S+) pinned, (\S+ \S+) of PyTorch's", said)
    assert needs and needs.groups() == ("7.0 GiB", "1.0 GiB", "6.0 GiB"), said
    count = 4 * MIB // 8
    assert f"done {1 << 28} {count * (count - 1) // 2}" in said, said
    status, said = run(command, "--keep-host", "64MiB", "--host-memory", "6GiB")
    assert status != 0 and "can't allocate memory: you tried to allocate 3221225472 bytes" in said, said
    assert re.search(r"/pageable asked for 3.0 GiB of host memory with 20\d\d.\d MiB free", said) or (
        re.search(r"/pageable asked for 3.0 GiB of host memory with 2.0 GiB free", said)
    ), said
    status, said = run(command, "--keep-host", "64KiB")
    assert status == 2 and "name a size of 1MiB or more" in said, said
    print("torch_host.py: ok")


main()
