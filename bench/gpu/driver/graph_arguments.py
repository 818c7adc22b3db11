# SPDX-License-Identifier: MIT
"""What instantiated graphs take: a JSON line for each reading, each kind of graph in a process of its own.

    graph_arguments.py [PART...]          needs libcuda.so.1 alone
    graph_arguments.py --again FILE...    asks again what files of its lines were asked

arguments: by the bytes of their kernels' arguments. streams: by how many streams the process has. graphs: of many of one
size, at each power of two.
"""

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
STREAMS = (1, 2, 3, 4, 8, 34)
NODES_BY_STREAMS = (1024, 1536, 2048, 4096)
NODES_OF_MANY = {1: 1024, 16: 512, 64: 256, 300: 64, 1024: 16}  # and so many graphs


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


class Program:
    """A context, streams, and a kernel with so many bytes of arguments, which has run once."""

    def __init__(self, size, streams):
        self.cuda = cuda = C.CDLL("libcuda.so.1")
        context, module, self.function = C.c_void_p(), C.c_void_p(), C.c_void_p()
        need(cuda.cuInit(0))
        need(cuda.cuDevicePrimaryCtxRetain(C.byref(context), 0))
        need(cuda.cuCtxSetCurrent(context))
        need(cuda.cuModuleLoadData(C.byref(module), (PTX % max(size, 8)).encode()))
        need(cuda.cuModuleGetFunction(C.byref(self.function), module, b"k" if size else b"none"))
        self.streams = [C.c_void_p() for _ in range(streams)]
        for stream in self.streams:
            need(cuda.cuStreamCreate(C.byref(stream), 1))
        self.content = (C.c_char * max(size, 8))()
        self.pointers = (C.c_void_p * 1)(C.addressof(self.content))
        for stream in self.streams:
            need(cuda.cuLaunchKernel(self.function, 1, 1, 1, 32, 1, 1, 0, stream, self.pointers, None))
            need(cuda.cuStreamSynchronize(stream))

    def graph(self, count):
        """Kernels one behind the other."""
        node = Node(self.function.value, (1, 1, 1), (32, 1, 1), 0, self.pointers, None, None, None)
        graph, last = C.c_void_p(), C.c_void_p()
        need(self.cuda.cuGraphCreate(C.byref(graph), 0))
        for i in range(count):
            made = C.c_void_p()
            before = (C.c_void_p * 1)(last)
            need(self.cuda.cuGraphAddKernelNode_v2(C.byref(made), graph, before if i else None, int(i > 0), C.byref(node)))
            last = made
        return graph

    def instantiate(self, graph):
        ready = C.c_void_p()
        need(self.cuda.cuGraphInstantiateWithFlags(C.byref(ready), graph, 0))
        return ready

    def launch(self, ready):
        need(self.cuda.cuGraphLaunch(ready, self.streams[0]))
        need(self.cuda.cuStreamSynchronize(self.streams[0]))


def say(part, **facts):
    print(json.dumps({"part": part, **facts}), flush=True)


def measure_one(part, size, count, streams):
    program = Program(size, streams)
    graph = program.graph(count)
    begun = used(program.cuda)
    ready = program.instantiate(graph)
    instantiated = used(program.cuda)
    program.launch(ready)
    facts = {"streams": streams} if part == "graph streams" else {}
    say(part, arguments=size, nodes=count, **facts, instantiated=instantiated - begun, launched=used(program.cuda) - begun)


def measure_many(count, graphs):
    program = Program(0, 1)
    graph = program.graph(count)
    begun = used(program.cuda)
    for made in range(1, graphs + 1):
        program.launch(program.instantiate(graph))
        if made & (made - 1) == 0:
            say("graph count", nodes=count, graphs=made, launched=used(program.cuda) - begun)


def alone(*words):
    """In a process of its own, which begins with nothing."""
    subprocess.run([sys.executable, __file__, "--alone", *map(str, words)], check=False)


def main(parts):
    for size in BYTES if "arguments" in parts else ():
        for nodes in NODES:
            alone("graph arguments", size, nodes, 1)
    for streams in STREAMS if "streams" in parts else ():
        for nodes in NODES_BY_STREAMS:
            alone("graph streams", 0, nodes, streams)
    for nodes, graphs in NODES_OF_MANY.items() if "graphs" in parts else ():
        alone("graph count", nodes, graphs)


def again(paths):
    asked = set()
    for path in paths:
        with open(path, encoding="utf-8") as file:
            asked |= {question(json.loads(line)) for line in file}
    for words in sorted(asked):
        alone(*words)


def question(row):
    if row["part"] == "graph count":
        return row["part"], row["nodes"], NODES_OF_MANY[row["nodes"]]
    return row["part"], row["arguments"], row["nodes"], row.get("streams", 1)


if sys.argv[1:2] == ["--again"]:
    again(sys.argv[2:])
elif sys.argv[1:2] == ["--alone"]:
    numbers = [int(word) for word in sys.argv[3:]]
    measure_many(*numbers) if sys.argv[2] == "graph count" else measure_one(sys.argv[2], *numbers)
else:
    main(sys.argv[1:] or ["arguments", "streams", "graphs"])
