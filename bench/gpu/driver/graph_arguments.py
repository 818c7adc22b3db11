# SPDX-License-Identifier: MIT
"""What an instantiated graph takes by the bytes of its kernels' arguments: a JSON line for each graph, each in a process
of its own. Needs libcuda alone."""

import ctypes as C
import json
import subprocess
import sys

PTX = """.version 7.0
.target sm_70
.address_size 64
.visible .entry k(.param .align 8 .b8 p[%d]) { ret; }
.visible .entry none() { ret; }
"""
BYTES = (0, 1024, 1100, 2048, 2300, 4000)
NODES = (64, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192, 12288)


class Node(C.Structure):  # CUDA_KERNEL_NODE_PARAMS_v2
    _fields_ = [
        ("function", C.c_void_p),
        ("grid", C.c_uint * 3),
        ("block", C.c_uint * 3),
        ("shared", C.c_uint),
        ("parameters", C.POINTER(C.c_void_p)),
        ("extra", C.c_void_p),
        ("kernel", C.c_void_p),
        ("context", C.c_void_p),
    ]


def need(result):
    if result != 0:
        sys.exit(f"the driver answered {result}")


def used(cuda):
    free, total = C.c_size_t(), C.c_size_t()
    need(cuda.cuMemGetInfo_v2(C.byref(free), C.byref(total)))
    return total.value - free.value


def measure(count, size):
    cuda = C.CDLL("libcuda.so.1")
    context, module, function, graph, ready, stream = (C.c_void_p() for _ in range(6))
    need(cuda.cuInit(0))
    need(cuda.cuDevicePrimaryCtxRetain(C.byref(context), 0))
    need(cuda.cuCtxSetCurrent(context))
    need(cuda.cuModuleLoadData(C.byref(module), (PTX % max(size, 8)).encode()))
    need(cuda.cuModuleGetFunction(C.byref(function), module, b"k" if size else b"none"))
    need(cuda.cuStreamCreate(C.byref(stream), 1))
    content = (C.c_char * max(size, 8))()
    pointers = (C.c_void_p * 1)(C.addressof(content))
    node = Node(function.value, (1, 1, 1), (32, 1, 1), 0, pointers, None, None, None)
    need(cuda.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, pointers, None))
    need(cuda.cuStreamSynchronize(stream))
    need(cuda.cuGraphCreate(C.byref(graph), 0))
    last = C.c_void_p()
    for i in range(count):
        made = C.c_void_p()
        before = (C.c_void_p * 1)(last)
        need(cuda.cuGraphAddKernelNode_v2(C.byref(made), graph, before if i else None, int(i > 0), C.byref(node)))
        last = made
    begun = used(cuda)
    need(cuda.cuGraphInstantiateWithFlags(C.byref(ready), graph, 0))
    instantiated = used(cuda)
    need(cuda.cuGraphLaunch(ready, stream))
    need(cuda.cuStreamSynchronize(stream))
    said = {"arguments": size, "nodes": count, "instantiated": instantiated - begun, "launched": used(cuda) - begun}
    print(json.dumps({"part": "graph arguments", **said}), flush=True)


if len(sys.argv) == 3:
    measure(int(sys.argv[1]), int(sys.argv[2]))
else:
    for bytes_of_arguments in BYTES:
        for nodes in NODES:
            subprocess.run([sys.executable, __file__, str(nodes), str(bytes_of_arguments)], check=False)
