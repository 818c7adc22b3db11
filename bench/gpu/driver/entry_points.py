# SPDX-License-Identifier: MIT
"""What a driver answers of functions by version, and whether a query that is not ready is kept as the last error.

    entry_points.py OUT.jsonl [RUNTIME...]    needs libcuda.so.1

RUNTIME: a libcudart.so.13 or .12. Without it, PyTorch's or the system's is found; without any, only the driver is asked.
tests/simcuda/entry_points.py holds a simulated GPU against a card's answers.
"""
import ctypes
import glob
import json
import os
import subprocess
import sys

# Names, and the version that brought each; 0: names that are none.
NAMES = {"cuInit": 2000, "cuMemAlloc": 2000, "cuCtxCreate": 2000, "cuMemAllocAsync": 11020, "cuMemAddressReserve": 10020,
         "cuGraphExecUpdate": 10020, "cuLibraryLoadData": 12000, "cuCtxGetDevResource": 12040,
         "cuMemAdvise": 8000, "cuStreamGetCaptureInfo": 10010, "cuNone": 0, "cuMemAlloc_v2": 0,
         "cuGetProcAddress": 11030, "cuDeviceGetUuid": 9020}  # fmt: skip
ALSO_BY_THE_FIRST_FORM = ("cuInit", "cuNone", "cuLibraryLoadData")
COPY_BYTES, COPIES = 1 << 30, 8  # 8 GiB over the link: about 150 ms


class Answers:
    """Writes each answer to a file and to the terminal at once: what there is stays if the driver ends the process."""

    def __init__(self, path):
        self.file = open(path, "w", encoding="utf-8")

    def say(self, **facts):
        print(json.dumps(facts), file=self.file, flush=True)
        print(json.dumps(facts), flush=True)


def open_driver():
    cuda = ctypes.CDLL("libcuda.so.1")
    if cuda.cuInit(0) != 0:
        sys.exit("entry_points.py: cuInit() failed")
    return cuda


def version_of(cuda):
    version = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    return version.value


# ---- The driver's functions by version ----


def ask(cuda, answers, name, wanted, flags=0, form="cuGetProcAddress_v2", status=True):
    function, found = ctypes.c_void_p(1), ctypes.c_int(-1)
    arguments = [name.encode(), ctypes.byref(function), ctypes.c_int(wanted), ctypes.c_uint64(flags)]
    if form.endswith("_v2"):
        arguments.append(ctypes.byref(found) if status else None)
    result = getattr(cuda, form)(*arguments)
    forms = [one for one in (name, name + "_v2", name + "_v3", name + "_v4")
             if hasattr(cuda, one) and ctypes.cast(getattr(cuda, one), ctypes.c_void_p).value == function.value]  # fmt: skip
    answers.say(part=form, name=name, version=wanted, flags=flags, result=result, status=found.value,
                null=not function.value, untouched=function.value == 1, is_form=forms)  # fmt: skip


def ask_by_version(cuda, answers):
    own = version_of(cuda)
    for name, brought in NAMES.items():
        for wanted in sorted({0, 1, 1999, 2000, 3010, 3020, brought - 10, brought - 1, brought, 12000, 12050, own - 10, own,
                              own + 1, own + 10, 13020, 14000, 20000, 99990, -1}):  # fmt: skip
            ask(cuda, answers, name, wanted)
            if name in ALSO_BY_THE_FIRST_FORM:
                ask(cuda, answers, name, wanted, form="cuGetProcAddress")
    for flags in (0, 1, 2, 3, 4, 8):
        ask(cuda, answers, "cuMemAlloc", 12000, flags)
    ask(cuda, answers, "cuMemAlloc", 12000, status=False)


def ask_for_no_name(answers):
    """In a process of its own: it may end it, as the card's answers seem to say, which stop here."""
    done = subprocess.run([sys.executable, __file__, "--no-name"], check=False, capture_output=True, text=True)
    answers.say(part="null name", result=int(done.stdout) if done.returncode == 0 else None, status=done.returncode)


def print_answer_to_no_name():
    function = ctypes.c_void_p()
    print(open_driver().cuGetProcAddress_v2(None, ctypes.byref(function), 12000, ctypes.c_uint64(0), None))


# ---- The runtime: is an answer that something is not ready kept? ----


def find_runtime(paths):
    paths = paths or ["libcudart.so.13", "libcudart.so.12"]
    for root in sys.path:
        paths += glob.glob(os.path.join(root, "nvidia", "*", "lib", "libcudart.so.1[23]"))
    for path in paths:
        try:
            return ctypes.CDLL(path), path
        except OSError:
            pass
    return None, None


class Queue:
    """Copies in a stream, which keep it busy for a while."""

    def __init__(self, runtime):
        self.runtime = runtime
        self.memory, self.host, self.stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        size = ctypes.c_size_t(COPY_BYTES)
        calls = [runtime.cudaSetDevice(0), runtime.cudaMalloc(ctypes.byref(self.memory), size),
                 runtime.cudaMallocHost(ctypes.byref(self.host), size), runtime.cudaStreamCreate(ctypes.byref(self.stream))]  # fmt: skip
        if any(calls):
            sys.exit(f"entry_points.py: no memory or stream: {calls}")

    def fill(self):
        for _ in range(COPIES):
            self.runtime.cudaMemcpyAsync(self.memory, self.host, ctypes.c_size_t(COPY_BYTES), 1, self.stream)


def last_errors(runtime):
    return {"peek": runtime.cudaPeekAtLastError(), "get": runtime.cudaGetLastError(), "again": runtime.cudaGetLastError()}


def ask_what_is_kept(runtime, answers):
    queue, event = Queue(runtime), ctypes.c_void_p()
    runtime.cudaEventCreate(ctypes.byref(event))
    for what in ("event", "stream"):
        queue.fill()
        runtime.cudaEventRecord(event, queue.stream)
        answer = runtime.cudaEventQuery(event) if what == "event" else runtime.cudaStreamQuery(queue.stream)
        answers.say(part="not ready", what=what, answer=answer, **last_errors(runtime))
        runtime.cudaDeviceSynchronize()
    runtime.cudaSetDevice(77)  # an error before it: does it stay?
    queue.fill()
    answers.say(part="error before", answer=runtime.cudaStreamQuery(queue.stream), **last_errors(runtime))
    runtime.cudaDeviceSynchronize()


def ask_the_runtime_by_version(runtime, answers, own):
    if not hasattr(runtime, "cudaGetDriverEntryPointByVersion"):
        return
    for wanted in (11000, 12000, own, own + 10, 14000):
        for name in ("cuInit", "cuLibraryLoadData", "cuCtxGetDevResource"):
            function, found = ctypes.c_void_p(1), ctypes.c_int(-1)
            result = runtime.cudaGetDriverEntryPointByVersion(name.encode(), ctypes.byref(function), ctypes.c_uint(wanted),
                                                              ctypes.c_uint64(0), ctypes.byref(found))  # fmt: skip
            answers.say(part="cudaGetDriverEntryPointByVersion", name=name, version=wanted, result=result,
                        status=found.value, null=not function.value)  # fmt: skip


def main():
    if sys.argv[1] == "--no-name":
        print_answer_to_no_name()
        return
    answers, cuda = Answers(sys.argv[1]), open_driver()
    answers.say(part="driver", version=version_of(cuda))
    ask_by_version(cuda, answers)
    ask_for_no_name(answers)
    runtime, path = find_runtime(sys.argv[2:])
    answers.say(part="runtime", path=path)
    if runtime is not None:
        ask_what_is_kept(runtime, answers)
        ask_the_runtime_by_version(runtime, answers, version_of(cuda))


if __name__ == "__main__":
    main()
