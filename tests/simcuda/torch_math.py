# SPDX-License-Identifier: MIT
"""Memory of torch.fft, torch.linalg and torch.sparse on a simulated H100, compared with the card.

    reveille run --device h100-80g -- python torch_math.py [ROWS [CALL...]]   ROWS: so many rows of each call; default: 12 of all calls

The rows are those of bench/results/2026-11-27-h100/torch_math.csv (bench/gpu/driver/workspaces.py torch). Each runs again, in order. The
comparison covers the peaks of what PyTorch allocates and reserves, and the bytes in use outside its allocator.
"""

import collections
import pathlib
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "bench/gpu/driver"))
import torch
import workspaces

MIB = 1 << 20
# Calls that differ by more than one percent of the peak, or are known to work differently, and why.
OPEN = {
    "f.": (0.51, "some lengths have a copy of the data more or less"),
    "L.svdvals": (0.55, "PyTorch computes the vectors, too, where a mode sees its operators, as here"),
    "L.svd(x(b,m,n),driver": (0.05, "the parts of small ones"),
    "L.qr(x(b": (0.02, "the parts of small ones"),
    "L.eigh(s(n,b))": (0.02, "the parts of small ones"),
    "k(m,n)@k": (0.35, "how many entries the result has is assumed"),
    "o(m,n)": (0.96, "how many entries are left is assumed"),
    "k(m,n)+k": (0.50, "how many entries the result has is assumed"),
    "T.sparse.sampled": (0.42, "three of sixty have a buffer that no rule gives"),
}
IN_USE_MOST, IN_USE_MOST_FFT = 6 * MIB, 18 * MIB  # kernels


def bound_of(call):
    return next((bound for start, (bound, _) in OPEN.items() if call.startswith(start)), 0.01)


def rows():
    found = collections.defaultdict(list)
    for line in (SOURCE / "bench/results/2026-11-27-h100/torch_math.csv").read_text().splitlines()[1:]:
        row = line.split(";")
        if not row[11]:
            found[row[0]].append(row)
    return found


def compare(call, wanted):
    worst_peak, worst_in_use, same = 0, 0, 0
    for row in wanted:
        kind = getattr(torch, row[1].removeprefix("torch."))
        got = workspaces.run_call(call, kind, *map(int, row[2:6]))
        assert not got[11], f"{call} {row[1:6]}: {got[11]}"
        worst_peak = max(worst_peak, abs(got[8] / int(row[8]) - 1))
        worst_in_use = max(worst_in_use, abs(got[7] - int(row[7])))
        same += got[10] == row[10]
    print(
        f"{call}: {same} of {len(wanted)} allocate the same, peak off by up to {worst_peak:.2%}, "
        f"in use by up to {worst_in_use // MIB} MiB",
        flush=True,
    )
    assert worst_peak <= bound_of(call), f"{call}: the peak is off by {worst_peak:.1%}"
    most = IN_USE_MOST_FFT if call.startswith("f.") else IN_USE_MOST
    assert worst_in_use <= most, f"{call}: {worst_in_use} bytes more or less are in use"


def main():
    count, failed = int(sys.argv[1]) if len(sys.argv) > 1 else 12, []
    found = rows()
    assert len(found) == len(workspaces.CALLS), sorted(set(workspaces.CALLS) - set(found))
    for call in sys.argv[2:] or workspaces.CALLS:
        if not workspaces.in_child(lambda call=call: compare(call, found[call][:count])):
            failed.append(call)
    sys.exit(f"off: {' '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
