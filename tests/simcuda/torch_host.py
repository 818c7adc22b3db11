# SPDX-License-Identifier: MIT
"""Large host tensors under `reveille run --keep-host`: their content, their memory and their count.

    torch_host.py COMMAND

COMMAND is the command `reveille`. Each figure is compared: the count with the tensors' sizes, the memory of the process with the
kernel's figures, and a refusal with its text.
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
torch.cuda.init()
small = torch.arange(4 * MIB // 8)
before = resident()[1]
large = torch.ones(3 << 28)  # 3 GiB
large.mul_(2)
print("grown", resident()[1] - before)
assert small[-1] == 4 * MIB // 8 - 1 and small[0] == 0
# Copies between large tensors are left out: what was written last is still there.
large.fill_(2)
other = large.view(1 << 14, -1).t().to(torch.float16)
assert (other.dtype, other.shape, other.stride()) == (torch.float16, (3 << 14, 1 << 14), (1, 3 << 14))
del other
large.copy_(torch.tensor(7.0))
assert large[0] == large[-1] == 2 and torch.equal(large[:5].to(torch.float64), torch.full((5,), 2.0).double())
sparse = torch.ones(4).to_sparse()
assert torch.zeros(4).to_sparse().copy_(sparse).to_dense().sum() == 4 == sparse.clone().to_dense().sum()
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

# A file of 2 GiB with holes, and a few bytes between them that are not aligned to pages.
HOLES = """
import os, tempfile, torch
def file_pages():
    return next(int(line.split()[1]) >> 10 for line in open("/proc/self/status") if line.startswith("RssFile"))
SIZE, WRITTEN = 2 << 30, {12345: 7, (1 << 30) + 4097: 8, (2 << 30) - 1: 9}
with tempfile.NamedTemporaryFile() as file:
    file.truncate(SIZE)
    for at, value in WRITTEN.items():
        os.pwrite(file.fileno(), bytes([value]), at)
    torch.empty(4 << 20, device="cuda")
    before = file_pages()
    mapped = torch.empty(0, dtype=torch.uint8).set_(torch.UntypedStorage.from_file(file.name, False, SIZE))
    assert mapped.count_nonzero().item() == len(WRITTEN)
    assert all(mapped[at].item() == value for at, value in WRITTEN.items())
    mapped[1 << 20 : 5 << 20] = 3
    assert mapped[4 << 20 : 6 << 20].sum().item() == 3 << 20, "what is written to a hole"
    print("pages of the file", file_pages() - before)
    assert os.pread(file.fileno(), 1, 4 << 20) == bytes(1), "and the file is as it was"
"""


def run(command, *options, program=INSIDE):
    done = subprocess.run(
        [command, "run", "--device", "h100-80g", *options, "--", sys.executable, "-c", program],
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
    # 4 MiB, 3 GiB, and 3 GiB copied back from the GPU; 1 GiB of pinned memory.
    needs = re.search(r"the host needs up to (\S+ \S+): (\S+ \S+) pinned, (\S+ \S+) of PyTorch's", said)
    assert needs and needs.groups() == ("7.0 GiB", "1.0 GiB", "6.0 GiB"), said
    count = 4 * MIB // 8
    assert f"done {1 << 28} {count * (count - 1) // 2}" in said, said
    status, said = run(command, "--keep-host", "64MiB", "--host-memory", "6GiB")
    assert status != 0 and "can't allocate memory: you tried to allocate 3221225472 bytes" in said, said
    assert re.search(r"/pageable asked for 3.0 GiB of host memory with 20\d\d.\d MiB free", said) or (
        re.search(r"/pageable asked for 3.0 GiB of host memory with 2.0 GiB free", said)
    ), said
    pages = {}  # MiB of the file that the kernel keeps for the process
    for options in (), ("--keep-host", "64MiB"):
        status, said = run(command, *options, program=HOLES)
        assert status == 0, said
        pages[options] = int(re.search(r"pages of the file (-?\d+)", said)[1])
    assert pages.pop(()) > 2000 and pages.popitem()[1] < 32, said
    status, said = run(command, "--keep-host", "64KiB")
    assert status == 2 and "name a size of 1MiB or more" in said, said
    print("torch_host.py: ok")


main()
