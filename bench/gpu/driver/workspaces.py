# SPDX-License-Identifier: MIT
"""What cuFFT, cuSOLVER and cuSPARSE ask for and take, as CSV on stdout.

usage: workspaces.py fft | solver | torch

fft: workspaces of plans, and what is in use with the plan and behind it. Lengths are drawn.
solver: what the dense functions that PyTorch 2.11 calls want for drawn sizes, and on stderr what handles take.
torch: calls of PyTorch in processes of their own: what is in use, peaks, and each allocation of its allocator in bytes.
"""

import ctypes as C
import math
import os
import random
import sys
import time

import torch

COMPLEX = {"float32": 4, "float64": 5, "float16": 6}
REAL = {4: 0, 5: 1, 6: 2}  # cudaDataType of a complex type's parts
SECONDS = 100
BATCHES = 1, 1, 2, 3, 7, 10, 16, 64, 100, 1000, 4096


def in_use():
    free, total = torch.cuda.mem_get_info()
    return total - free


# ---- Plans of cuFFT ----


def layout_of(lengths, batch, apart, given):
    """embed, stride, distance"""
    if not given:
        return None, C.c_longlong(1), C.c_longlong(1)
    step = batch if apart else 1
    return (C.c_longlong * 3)(*lengths), C.c_longlong(step), C.c_longlong(1 if apart else math.prod(lengths))


def plan(fft, types, layout, lengths, batch):
    """layout: 0: as it comes; 1, 2: numbers of the input, of the output, are apart"""
    handle, size = C.c_int(), C.c_size_t()
    taken, out, by = types
    half = [*lengths[:-1], lengths[-1] // 2 + 1]
    before = in_use()
    fft.cufftCreate(C.byref(handle))
    fft.cufftSetAutoAllocation(handle, 0)
    inside = layout_of(half if taken > 3 > out else lengths, batch, layout & 1, layout)
    outside = layout_of(half if out > 3 > taken else lengths, batch, layout & 2, layout)
    numbers = (C.c_longlong * 3)(*lengths)
    answer = fft.cufftXtMakePlanMany(
        handle, len(lengths), numbers, *inside, taken, *outside, out, C.c_longlong(batch), C.byref(size), by
    )
    with_it = in_use()
    fft.cufftDestroy(handle)
    if answer == 0:
        row = taken, out, layout, batch, "x".join(map(str, lengths)), size.value, with_it - before, in_use() - before
        print(*row, sep=",", flush=True)


def is_prime(n):
    return all(n % d for d in range(2, math.isqrt(n) + 1))


def drawn_length(most):
    """A power of two, any, a prime, or one of small factors."""
    kind, most = random.randrange(4), max(most, 2)
    n = int(2 ** random.uniform(0, math.log2(most)))
    if kind == 0:
        return 2 ** random.randint(0, int(math.log2(most)))
    if kind == 2:
        while not is_prime(n):
            n -= 1
    if kind < 3:
        return n
    made = 1
    while True:
        factor = random.choice((2, 2, 2, 3, 5, 7, 11, 13))
        if made * factor > n:
            return made
        made *= factor


def fft():
    torch.fft.fft(torch.ones(8, device="cuda"))  # loads it
    library, end = C.CDLL("libcufft.so.12"), time.time() + SECONDS
    kinds = [types for by in COMPLEX.values() for types in ((by, by, by), (REAL[by], by, by), (by, REAL[by], by))]
    print("in_type,out_type,layout,batch,lengths,workspace,in_use_with,in_use_behind")
    for n in range(1, 2200):
        plan(library, (4, 4, 4), 0, [n], 1)
    while time.time() < end:
        room, lengths = 2**26, []
        for _ in range(random.choice((1, 1, 1, 2, 2, 3))):
            lengths.append(drawn_length(min(room, random.choice((room, 2**14, 2**10)))))
            room = max(1, room // lengths[-1])
        plan(library, random.choice(kinds), random.choice((0, 0, 0, 1, 2, 3)), lengths, min(room, random.choice(BATCHES)))


# ---- Workspaces of cuSOLVER: a function, and a letter for each argument behind the handle ----

SIGNATURES = (
    "potrf:unAnW getrf:mnAmW geqrf:mnAmW orgqr:mnkAmAW ormqr:0jmnkAmAAmW sytrf:nAnW gesvd:mnW syevd:junAnAW syevj:junAnAWs "
    "syevjBatched:junAnAWsb gesvdj:jumnAmAAmAnWg gesvdjBatched:jmnAmAAmAnWgb gesvdaStridedBatched:jkmnAmxAyAmxAnxWb "
    "Xpotrf:puNtANtDH Xgeqrf:pMNtAMtAtDH Xsyevd:pjuNtANrAtDH Xgeev:p0jNtANtAtANtANtDH XsyevBatched:pjuNtANrAtDHQ "
    "Xsytrs:uNMtANAtANDH"
)


def symbol_of(function, letter):
    if function[0] == "X":
        return f"cusolverDn{function}_bufferSize"
    if letter in "CZ" and function != "sytrf":
        function = function.replace("or", "un", 1) if function[:2] == "or" else function
        function = function.replace("sy", "he", 1) if function[:2] == "sy" else function
    return f"cusolverDn{letter}{function}_bufferSize"


def drawn_sizes(function, round_of):
    near = 2 ** random.randint(0, 14) + random.choice((-1, 0, 1))
    n = random.choice((int(2 ** random.uniform(0, 14.3)), near, random.randint(1, 600))) or 1
    m = n if round_of % 2 else int(n * 2 ** random.uniform(-3, 3)) + 1
    if "dB" in function or ("dj" in function and round_of < 200):
        m, n = m % 40 + 1, n % 40 + 1
    if function == "orgqr" and m < n:
        m, n = n, m
    k = min(m, n) if round_of % 3 else random.randint(1, min(m, n))
    return m, n, m if function == "ormqr" and round_of % 3 else k


def ask_solver(solver, handle, settings, matrix, function, arguments, letter, round_of):
    m, n, k = drawn_sizes(function, round_of)
    batch, job, second = random.choice((1, 2, 3, 8, 32, 100, 512)), round_of // 2 % 2, round_of // 4 % 2
    work, device, host, wide = C.c_int(-1), C.c_size_t(), C.c_size_t(), C.c_longlong
    kind = "SDCZ".index(letter)
    words = {**settings, "0": 0, "u": second, "j": job, "m": m, "n": n, "k": k, "b": batch, "A": matrix}
    words |= {"N": wide(n), "M": wide(m), "Q": wide(batch), "x": wide(m * n), "y": wide(min(m, n))}
    words |= {"t": (0, 1, 4, 5)[kind], "r": kind % 2, "W": C.byref(work), "D": C.byref(device), "H": C.byref(host)}
    if getattr(solver, symbol_of(function, letter))(handle, *(words[each] for each in arguments)) == 0:
        said = device.value if function[0] == "X" else work.value
        print(function, letter, job, second, m, n, k, batch, said, host.value, sep=",", flush=True)


def solver():
    torch.linalg.qr(torch.eye(3, device="cuda"))  # loads it
    library, handle = C.CDLL("libcusolver.so.12"), C.c_void_p()
    for _ in range(3):
        before = in_use()
        library.cusolverDnCreate(C.byref(handle))
        print(f"a handle takes {in_use() - before}", file=sys.stderr)
    settings = {"p": C.c_void_p(), "s": C.c_void_p(), "g": C.c_void_p()}
    for each, name in zip("psg", ("Params", "SyevjInfo", "GesvdjInfo")):
        getattr(library, f"cusolverDnCreate{name}")(C.byref(settings[each]))
    room = torch.empty(1 << 24, device="cuda")
    print("function,type,job,second,m,n,k,batch,workspace,host_bytes")
    for function, arguments in (each.split(":") for each in SIGNATURES.split()):
        for letter in "SDCZ":
            for i in range(350):
                ask_solver(library, handle, settings, C.c_void_p(room.data_ptr()), function, arguments, letter, i)


# ---- Calls of PyTorch ----

CALLS = (
    "x(n)@x(n,m) f.fft(x(b,n)) f.rfft(x(b,n)) f.irfft(x(b,n)) f.fft2(x(b,m,n)) f.fft(x(n,b),dim=0) L.cholesky(s(n)) "
    "L.cholesky(s(n,b)) L.inv(s(n)) L.solve(s(n,b),x(b,n,m)) L.lu_factor(x(m,n)) L.ldl_factor(s(n)) L.qr(x(m,n)) "
    "L.qr(x(b,m,n),'complete') L.eigh(s(n)) L.eigh(s(n,b)) L.svd(x(m,n)) L.svd(x(b,m,n),False) "
    "L.svdvals(x(m,n),driver='gesvd') L.svd(x(b,m,n),driver='gesvda') L.eig(s(n)) L.lstsq(x(m+n,n),x(m+n,b)) "
    "T.cholesky_inverse(s(n)) k(m,n)@x(n,b) k(m,n)@x(n) k(m,n)@k(n,m) o(m,n)@x(n,b) o(m,n)@o(n,m) "
    "o(m,n).coalesce().to_sparse_csr() k(m,n)+k(m,n) T.sparse.sampled_addmm(k(m,n),x(m,b),x(b,n)) S(x(n,1),g(n)) "
    "S(x(n,b),g(n)) z(n)@x(n*r,b) S(x(n*r,b),z(n))"
).split()
TYPES = torch.float, torch.double, torch.cfloat, torch.cdouble


def names_of(kind, b, m, n, r):
    """x: dense; s: one with a heavy diagonal; k, g, o, z: sparse, with r entries in each row, or blocks of r."""

    def x(*sizes):
        return torch.randn(*sizes, dtype=kind)

    a, csr = torch.arange, torch.sparse_csr_tensor
    return {
        **{"T": torch, "L": torch.linalg, "f": torch.fft, "S": torch.triangular_solve, "x": x},
        **{"b": b, "m": m, "n": n, "r": r},
        "s": lambda n, *b: x(*b, n, n) + n * torch.eye(n),
        "k": lambda m, n: csr(a(m + 1) * r, a(m * r) % r * (n // r), x(m * r), (m, n)),
        "g": lambda n: csr(a(n + 1), a(n), x(n), (n, n)),
        "o": lambda m, n: torch.sparse_coo_tensor(
            torch.stack((a(m * r) // r, a(m * r) % r * (n // r))), x(m * r), (m, n)
        ),
        "z": lambda n: torch.sparse_bsr_tensor(a(n + 1), a(n), x(n, r, r), (n * r, n * r)),
    }


def drawn_call(call):
    m, n = (int(2 ** random.uniform(2, 11)) for _ in "mn")
    b, kind = random.choice((1, 2, 5, 16, 64)), random.choice(TYPES)
    if call[0] == "L" and ("b," in call or ",b" in call):
        m, n = m % 200 + 2, n % 200 + 2
    return kind, b, m, n, random.randint(1, min(m, n, 33))


def beside():
    """What is in use beside PyTorch's own allocator."""
    return in_use() - torch.cuda.memory_reserved()


def run_call(call, kind, b, m, n, r):
    """A row: what is in use before and behind, peaks, allocations, and what PyTorch said."""
    memory, error = torch.cuda.memory, ""
    memory.reset_peak_memory_stats()
    memory._record_memory_history("all", None)
    before = beside()
    try:
        eval(call, names_of(kind, b, m, n, r))
        torch.cuda.synchronize()
    except Exception as said:
        error = str(said)[:50].replace("\n", " ")
    made = [str(each["size"]) for each in memory._snapshot()["device_traces"][0] if each["action"] == "alloc"]
    memory._record_memory_history(None)
    peaks = memory.max_memory_allocated(), memory.max_memory_reserved()
    return [call, kind, b, m, n, r, before, beside(), *peaks, "+".join(made), error]


def in_child(work):
    """CUDA begins in a process of its own."""
    if os.fork():
        return os.wait()[1] == 0
    torch.set_default_device("cuda")
    torch.zeros(9)
    work()
    sys.stdout.flush()
    os._exit(0)


def calls():
    print("call;type;b;m;n;r;in_use_before;in_use_behind;peak_allocated;peak_reserved;allocations;error", flush=True)

    def sixty(call):
        random.seed(1)
        for _ in range(60):
            print(*run_call(call, *drawn_call(call)), sep=";")

    for call in CALLS:
        in_child(lambda call=call: sixty(call))


if __name__ == "__main__":
    {"fft": fft, "solver": solver, "torch": calls}[sys.argv[1]]()
