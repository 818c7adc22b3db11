# SPDX-License-Identifier: MIT
"""Takes a GiB of a GPU and handles of cuBLAS, as CUDA's programs do, without a compiler or a package."""

import ctypes
import sys


def check(status: int, what: str) -> None:
    if status != 0:
        sys.exit(f"{what} answered {status}")


def handle_version(library: ctypes.CDLL) -> str:
    handle, version = ctypes.c_void_p(), ctypes.c_int()
    check(library.cublasCreate_v2(ctypes.byref(handle)), "cublasCreate")
    check(library.cublasGetVersion_v2(handle, ctypes.byref(version)), "cublasGetVersion")
    check(library.cublasDestroy_v2(handle), "cublasDestroy")
    return f"{version.value // 10000}.{version.value // 100 % 100}"


runtime = ctypes.CDLL("libcudart.so.13")
address, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
check(runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(1 << 30)), "cudaMalloc")
check(runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)), "cudaMemGetInfo")
versions = [handle_version(ctypes.CDLL(f"libcublas.so.{major}")) for major in (13, 12)]
print(f"the GPU has {total.value / 2**30:.1f} GiB, cuBLAS {versions[0]}, cuBLAS of CUDA 12 {versions[1]}")
check(runtime.cudaFree(address), "cudaFree")
