# SPDX-License-Identifier: MIT
"""What memory on simulated GPUs is used for: PyTorch's own history of its allocator, kept for `reveille run`.

PyTorch records each allocation with its stack, in a ring. From time to time the ring is written to a file, as a snapshot
(docs/snapshot.md). `reveille run` reads the files at the end of the run, and finds the state at each peak there. A file covers all of
the time in its ring, so one is only needed where a peak would be lost.

Besides the stacks, a file needs to know which tensors are weights, gradients and the optimizer's state. These are collected where a
backward pass or an optimizer step ends. The history is divided into phases there, by the metadata that PyTorch puts on each entry, so
that each observation has its place among the entries. predict/snapshot/observed.h has the format.
"""

from __future__ import annotations

import collections
import ctypes
import gc
import importlib
import os
import pickle
import sys
import threading
import time
import weakref
from typing import Any
from urllib.parse import quote

import torch
import _thread

FOLDER = os.environ.get("REVEILLE_HISTORY", "")
_DRIVER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "libcuda.so.1")
_name = ctypes.PyDLL(_DRIVER).rvli_simulated_name  # the name of this process in traces
_name.restype, _name.argtypes = ctypes.c_char_p, ()
_MARKED = ctypes.PYFUNCTYPE(None, ctypes.c_uint64)
_on_mark = ctypes.PyDLL(_DRIVER).rvli_simulated_on_mark  # receives the time of each mark of a stage
_on_mark.restype, _on_mark.argtypes = None, (ctypes.c_void_p,)
ENTRIES = 1 << 16  # of the ring: about 60 MB with stacks of 30 frames
FILES_MOST = 32  # per process; after that, the last one is overwritten
CHECK_S = 0.1
STEP_S = 0.05  # optimizer steps that are nearer to the last are not checked
QUIET_S = 0.5  # after so long without a new peak, the last one is written, if there is time
SHARE = 0.05  # of a process's time, for looking and writing
MUCH = 1.5  # times the peak of the last file: another is then written, however long that takes
MUCH_BYTES = 1 << 28
ENTRY_S = 3e-5  # for each additional entry in a file; most of a small file's time is for looking around
NOTES_MOST = 1 << 16

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_OTHERS = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(os.path.abspath(os.__file__)) + os.sep, _HERE, "<frozen")
_PACKAGES = ("/site-packages/", "/dist-packages/")


def _is_own(name):
    return not name.startswith(_OTHERS) and not any(each in name for each in _PACKAGES)


def _place():
    """The calling line of the program, in the form of a note."""
    frame, other = sys._getframe(1), None
    while frame is not None:
        name = frame.f_code.co_filename
        if _is_own(name):
            break
        if other is None and any(each in name for each in _PACKAGES) and not name.startswith(_OTHERS[0]):
            other = frame
        frame = frame.f_back
    frame = frame or other
    if frame is None:
        return "0 - -"
    return f"{frame.f_lineno or 0} {frame.f_code.co_name.replace(' ', '_')} {frame.f_code.co_filename}"


# ---- Addresses of tensors ----


def _memory(tensor, found, depth=0):
    """Collects the addresses of a tensor's device memory. A tensor that stands for others has theirs."""
    inner = getattr(tensor, "_local_tensor", None)
    if inner is not None:
        _memory(inner, found, depth + 1)
    elif type(tensor) in _PLAIN:
        if tensor.is_cuda and tensor.layout is torch.strided:
            found.append(tensor.data_ptr())
    elif depth < 4 and hasattr(tensor, "__tensor_flatten__"):
        for name in tensor.__tensor_flatten__()[0]:
            _memory(getattr(tensor, name), found, depth + 1)
    elif tensor.is_cuda and tensor.layout is torch.strided and type(tensor).__name__ not in ("FakeTensor", "FunctionalTensor"):
        found.append(tensor.data_ptr())


_PLAIN = {torch.Tensor, torch.nn.Parameter, torch.nn.Buffer} if hasattr(torch.nn, "Buffer") else {torch.Tensor, torch.nn.Parameter}


class _NoInductor:
    """Stands for torch._inductor while it is not imported.

    PyTorch looks up lines of compiled code when it writes its history, and accesses that module. That would import it, for seconds, in a
    thread of ours. A program that imports it at the same moment would get half a module.
    """

    def __init__(self):
        self.writer = threading.get_ident()

    def __enter__(self):
        if "_inductor" not in vars(torch):
            torch._inductor = self

    def __exit__(self, *_):
        if vars(torch).get("_inductor") is self:
            del torch._inductor

    def __getattr__(self, name):
        if threading.get_ident() == self.writer:
            raise AttributeError(name)
        return getattr(importlib.import_module("torch._inductor"), name)


class _NoCollection:
    """Turns the garbage collector off: it would go through hundreds of thousands of new objects again and again, and free none."""

    def __enter__(self):
        self.was_on = gc.isenabled()
        gc.disable()

    def __exit__(self, *_):
        if self.was_on:
            gc.enable()


class _Budget:
    """Tells whether there is time for something, from the time that it has taken so far."""

    def __init__(self, share, first):
        self.share, self.first, self.spent, self.begin = share, first, 0.0, time.perf_counter()

    def allows(self, more=0.0):
        if self.first > 0:
            self.first -= 1
            return True
        return self.spent + more <= self.share * (time.perf_counter() - self.begin)

    def __enter__(self):
        self.since = time.perf_counter()

    def __exit__(self, *_):
        self.spent += time.perf_counter() - self.since


class History:
    def __init__(self):
        self.modules: Any = weakref.WeakSet()
        self.optimizers: Any = weakref.WeakSet()
        self.kinds: set = set()  # of modules
        self.phases: Any = collections.deque(maxlen=NOTES_MOST)  # number, kind, place
        self.seen: Any = collections.deque(maxlen=4096)  # number, tag, addresses
        self.marks: Any = collections.deque(maxlen=NOTES_MOST)  # number, time
        self.graphs: set = set()  # pools into which CUDA graphs were captured
        self.between = False  # outside backward passes and optimizer steps
        self.marked = _MARKED(self.mark)
        self.number, self.depth = 0, 0
        self.looking, self.writing = _Budget(0.02, 6), _Budget(SHARE, 2)
        self.files, self.counted, self.last = 0, 0, (0.0, 0)  # last: seconds and entries of the last file
        self.peaks, self.risen, self.risen_s, self.stepped_s = (0, 0), None, 0.0, 0.0
        self.kept = 0  # the peak in the last file
        self.busy = threading.Lock()
        # An allocator of the program, such as vLLM's, may wait for Python's lock while PyTorch holds its own lock. If another thread
        # looked then, it would wait for PyTorch's lock while it holds Python's. So the program's thread looks, between two operations.
        self.checking, self.plugged = threading.Lock(), False
        self.stopped = False

    # ---- Phases ----

    def phase(self, kind, place="0 - -"):
        self.number += 1
        self.between = kind == "between"
        self.phases.append((self.number, kind, place))
        torch._C._cuda_setMemoryMetadata(f"rvl:{self.number}")

    def mark(self, wall_us):
        """Notes that a stage begins or ends. Times of PyTorch's history and of marks only agree to a few microseconds."""
        if self.between and not self.stopped:
            self.phase("between")
            self.marks.append((self.number, wall_us))

    def see(self, tag, tensors):
        found: list[int] = []
        for each in tensors:
            _memory(each, found)
        if found:
            yield tag, tuple(found)

    def look(self):
        """Collects what tensors are used for, at the beginning of a phase."""
        if not self.stopped and self.looking.allows():
            self.seen += [(self.number, *each) for each in self.look_around()]

    def look_around(self):
        with self.looking:
            modules = list(self.modules)
            parameters = [p for each in modules for p in each._parameters.values() if p is not None]
            yield from self.see("gradients", [p.grad for p in parameters if p.grad is not None])
            for each in list(self.optimizers):
                groups = [p for group in each.param_groups for p in group["params"]]
                yield from self.see("gradients", [p.grad for p in groups if p.grad is not None])
                parameters += groups
            yield from self.see("weights", parameters)
            yield from self.see("weights", [b for each in modules for b in each._buffers.values() if b is not None])
            for each in list(self.optimizers):
                yield from self.see("optimizer", list(_tensors_of(each.state)))

    # ---- Files ----

    def notes(self, seen_last):
        """seen_last: collected at the end of the file, after all its phases."""
        made = [f"phase {number} {kind} {place}" for number, kind, place in self.phases]
        made += [f"seen {number} {tag} " + ",".join(f"{each:x}" for each in found) for number, tag, found in (*self.seen, *seen_last)]
        made += [f"mark {number} {us:x}" for number, us in self.marks]
        made += [f"module {first} {last} {name} {file}" for first, last, name, file in self.classes()]
        made += ["graphs", *(f"graphs {first} {second}" for first, second in list(self.graphs))]
        return [{"name": "reveille:" + each, "stage": "START", "device": 0, "time_us": 0} for each in made]

    def classes(self):
        """Classes of modules outside PyTorch, with the lines of their code."""
        for each in list(self.kinds):
            if each.__module__.startswith("torch."):
                continue
            codes = [f.__code__ for f in vars(each).values() if hasattr(f, "__code__")]
            codes = [code for code in codes if code.co_filename == codes[0].co_filename]
            if codes:
                last = max((line or 0) for code in codes for _, _, line in code.co_lines())
                yield min(code.co_firstlineno for code in codes), last, each.__name__, codes[0].co_filename

    def path(self, ending):
        return os.path.join(FOLDER, f"{quote(_name().decode(), safe='')}.{ending}")

    def write(self):
        """Writes the ring to a file."""
        if not self.busy.acquire(blocking=False):
            return
        try:
            if self.stopped:
                return
            with self.writing, _NoCollection():
                since, entries, kept = time.perf_counter(), min(self.counted, ENTRIES), self.peaks[0]
                # No phase of this thread: it would stand between those of the program.
                seen = [(self.number + 1, *each) for each in self.look_around()]
                with _NoInductor():
                    snapshot = torch.cuda.memory._snapshot()
                snapshot["external_annotations"] = [*snapshot.get("external_annotations", ()), *self.notes(seen)]
                self.files = min(self.files + 1, FILES_MOST)
                path = self.path(f"{self.files}.pickle")
                with open(path + ".part", "wb") as file:
                    pickle.dump(snapshot, file, 4)
                os.replace(path + ".part", path)
                del snapshot
                self.last, self.kept = (time.perf_counter() - since, entries), kept
            self.risen = None
        except Exception as error:
            self.stop(repr(error))
        finally:
            self.busy.release()

    def stop(self, why):
        if not self.stopped:
            self.stopped = True
            print(f"reveille: what memory is for is not followed any further: {why}", file=sys.stderr)

    # ---- When ----

    def count(self):
        """The number of entries so far, and the highest peaks, from PyTorch's own counters."""
        counted, reserved, allocated = 0, 0, 0
        for device in range(torch.cuda.device_count()):
            stats = torch._C._cuda_memoryStats(device)
            if stats["allocation"]["all"]["allocated"]:
                counted += stats["allocation"]["all"]["allocated"] + 2 * stats["allocation"]["all"]["freed"]
                reserved += stats["reserved_bytes"]["all"]["peak"]
                allocated += stats["allocated_bytes"]["all"]["peak"]
        return counted, (reserved, allocated)

    def cost(self):
        """The seconds that a file takes now."""
        seconds, entries = self.last
        return seconds + ENTRY_S * max(min(self.counted, ENTRIES) - entries, 0)

    def has_time(self):
        much = self.peaks[0] > max(MUCH * self.kept, self.kept + MUCH_BYTES)
        return self.writing.allows(self.cost()) or much

    def check(self, at_once=False):
        self.counted, peaks = self.count()
        if peaks > self.peaks:
            self.risen, self.risen_s = self.counted, time.perf_counter()
        self.peaks = peaks
        if self.risen is None:
            return
        behind = self.counted - self.risen
        quiet = at_once or time.perf_counter() - self.risen_s > QUIET_S
        if behind > ENTRIES // 2 or (quiet and self.has_time()):
            self.write()

    def try_check(self):
        try:
            if not self.stopped:
                self.check()
        except Exception as error:
            self.stop(repr(error))

    def watch(self):
        while not self.stopped:
            time.sleep(CHECK_S)
            with self.checking:
                if not self.plugged:
                    self.try_check()
                    continue
            tensors = sys.modules.get("_reveille_tensors")
            if tensors is not None:
                tensors.due = self.try_check

    def finish(self):
        self.write()
        if not self.stopped:
            with open(self.path("end"), "wb"):
                pass  # marks that the last file goes to the end
        self.stopped = True
        _on_mark(None)

    # ---- Events ----

    def backward(self, run):
        def run_as_phase(*args, **kwargs):
            if self.stopped or self.depth > 0 or not torch.cuda.is_initialized():
                return run(*args, **kwargs)
            self.depth += 1
            self.phase("backward", _place())
            try:
                return run(*args, **kwargs)
            finally:
                self.depth -= 1
                self.phase("between")
                self.look()

        return run_as_phase

    def before_step(self, optimizer, *_):
        if not self.stopped and torch.cuda.is_initialized():
            self.optimizers.add(optimizer)
            self.phase("optimizer", _place())

    def after_step(self, *_):
        if not self.stopped and torch.cuda.is_initialized():
            self.phase("between")
            self.look()
            if time.perf_counter() - self.stepped_s > STEP_S:
                self.stepped_s = time.perf_counter()
                self.check(at_once=True)  # the program may be killed at any time, as actors of Ray are

    def on_out_of_memory(self, *_):
        self.counted = self.count()[0]
        if self.writing.allows(self.cost()):
            self.write()


def _tensors_of(value, depth=0):
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < 4 and isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors_of(each, depth + 1)
    elif depth < 4 and isinstance(value, collections.abc.Mapping):
        for each in value.values():
            yield from _tensors_of(each, depth + 1)


# ---- Installation ----


def begin(_module):
    """Called when PyTorch was imported. The history begins with the first use of CUDA."""
    if torch.version.cuda is None or not FOLDER:
        return
    history = History()
    _follow_modules(history)
    _follow_captures(history)
    _follow_allocators(history)
    engine = torch.autograd._engine_run_backward
    torch.autograd._engine_run_backward = history.backward(engine)
    from torch.optim import optimizer

    optimizer.register_optimizer_step_pre_hook(history.before_step)
    optimizer.register_optimizer_step_post_hook(history.after_step)
    torch.cuda._lazy_call(lambda: _start(history))


def _follow_modules(history):
    from torch.nn.modules import module

    def follow(owner, *_):
        history.modules.add(owner)
        history.kinds.add(type(owner))

    module.register_module_parameter_registration_hook(follow)
    module.register_module_buffer_registration_hook(follow)
    module.register_module_module_registration_hook(follow)
    restore = module.Module.__setstate__

    def restore_and_follow(owner, state):  # a copy does not register
        restore(owner, state)
        follow(owner)

    module.Module.__setstate__ = restore_and_follow


def _follow_allocators(history):
    kind = torch.cuda.memory.CUDAPluggableAllocator
    make = kind.__init__

    def make_and_follow(allocator, *args, **kwargs):
        with history.checking:
            history.plugged = True
        make(allocator, *args, **kwargs)

    kind.__init__ = make_and_follow


def _follow_captures(history):
    """A pool that is given to a capture belongs to graphs. A pool that a capture makes is recognized by its number."""
    begin_capture = torch.cuda.CUDAGraph.capture_begin

    def capture_begin(graph, pool=None, *args, **kwargs):
        if pool is not None:
            history.graphs.add(tuple(pool))
        return begin_capture(graph, pool, *args, **kwargs)

    torch.cuda.CUDAGraph.capture_begin = capture_begin


def _finish_before_exit(history):
    """os._exit() runs no other functions. Programs with threads that would not end often use it."""
    leave, process = os._exit, os.getpid()

    def finish_and_exit(status):
        if os.getpid() == process and not history.stopped:
            history.finish()
        leave(status)

    os._exit = finish_and_exit


def _start(history):
    try:
        record = torch.cuda.memory._record_memory_history
        if torch.cuda.get_allocator_backend() != "native":
            return history.stop(f"the allocator {torch.cuda.get_allocator_backend()} has no history")
        record(enabled="all", context="alloc", stacks="python", max_entries=ENTRIES)
        torch._C._cuda_attach_out_of_memory_observer(history.on_out_of_memory)
    except Exception as error:
        return history.stop(repr(error))

    def record_for_program(*args, **kwargs):
        if not history.stopped:
            history.stop("the program records PyTorch's history itself")
            record(enabled=None)
        return record(*args, **kwargs)

    torch.cuda.memory._record_memory_history = record_for_program
    history.phase("between")
    _on_mark(ctypes.cast(history.marked, ctypes.c_void_p))
    import multiprocessing.util

    # It also runs at the end of multiprocessing's workers, where atexit does not.
    multiprocessing.util.Finalize(None, history.finish, exitpriority=1000)
    _finish_before_exit(history)
    _thread.start_new_thread(history.watch, ())
    return None
