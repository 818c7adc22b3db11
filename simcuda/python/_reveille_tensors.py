# SPDX-License-Identifier: MIT
"""Small tensors on simulated GPUs, computed for real.

Kernels do not run on a simulated GPU, so what a program reads back would be zero, and a program that depends on it would behave
differently than on a card. Here every operator of PyTorch is intercepted. It runs on the simulated device unchanged, so that it
allocates what it allocates on a card. If all its inputs are small and known, it also runs on the CPU, and its results are written where
the driver keeps known content (_reveille_contents.py). Otherwise, its outputs become unknown.

So most of the backward pass need not be intercepted: see _reveille_backward.py. Most operators on small tensors only make a tensor from
others, again and again. These have a fast path, SmallTensors.twice().
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from typing import Any

import _reveille_assumed as assumed
import _reveille_backward as backward
import _reveille_contents as contents
import _reveille_host as host
import _reveille_operators as operators
import _reveille_plan as plans
import torch
from _reveille_contents import LIMIT, PLAIN, Unknown, content_of, keep, lose, size_of, watch
from _reveille_plan import Plan, tensors_in
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

KEPT, GIVEN, ONCE = range(3)  # rvli_reading

_TORCH = os.path.dirname(torch.__file__) + os.sep
_Tensor = torch.Tensor
_modes_below = torch._C._len_torch_dispatch_stack
_is_capturing = torch._C._cuda_isCurrentStreamCapturing
# ---- The program's line ----

_places: dict[Any, bytes] = {}


def _place():
    """The line of the program that reads, outside PyTorch."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name != __file__ and not name.startswith((_TORCH, "<")):
            break
        frame = frame.f_back
    if frame is None:
        return None
    key = (frame.f_code, frame.f_lineno)
    if key not in _places:  # kept forever, since the driver has their address
        text = f"{name[-180:]}:{frame.f_lineno} in {frame.f_code.co_name}"
        _places[key] = text.encode(errors="replace")[:250]
    return _places[key]


# ---- On the CPU ----


class _Random:
    """Numbers for small random tensors. The program's own generators are not changed."""

    lock = threading.Lock()
    state = torch.Generator().manual_seed(0).get_state()

    def __enter__(self):
        self.lock.acquire()
        self.before = torch.default_generator.get_state()
        torch.default_generator.set_state(_Random.state)

    def __exit__(self, *_):
        _Random.state = torch.default_generator.get_state()
        torch.default_generator.set_state(self.before)
        self.lock.release()


class _Shadow:
    """A call on the CPU, with copies of the content of device tensors. Raises Unknown."""

    def __init__(self, plan, func, args, kwargs):
        self.plan, self.func, self.copies = plan, func, {}
        self.decided = plan.is_decided(args)
        self.written = {id(each) for each in plan.writes(args, kwargs)}
        unread = plan.unread.union(operators.unread(plan.name, args))
        self.args = [self.of(each, i in unread) for i, each in enumerate(args)]
        self.kwargs = {
            name: self.of(each, name in plan.unread) for name, each in kwargs.items()
        }
        if self.kwargs.get("pin_memory"):
            self.kwargs["pin_memory"] = False

    def of(self, value, unread=False):
        if isinstance(value, _Tensor):
            if id(value) not in self.copies:
                self.copies[id(value)] = self.copy(value, unread)
            return self.copies[id(value)]
        if isinstance(value, (list, tuple)):
            return [self.of(each, unread) for each in value]
        if isinstance(value, torch.device):
            return torch.device("cpu")
        return None if isinstance(value, torch.Generator) else value

    def copy(self, tensor, unread):
        if unread:
            return torch.empty(tensor.size(), dtype=tensor.dtype, device="cpu")
        if tensor.is_cuda and self.decided:
            return self.content_or_zero(tensor)
        if tensor.is_cuda:
            return content_of(tensor)
        return tensor.clone() if id(tensor) in self.written else tensor

    @staticmethod
    def content_or_zero(tensor):
        try:
            return content_of(tensor)
        except Unknown:
            return torch.zeros(tensor.size(), dtype=tensor.dtype, device="cpu")

    def run(self):
        try:
            return self.run_as(self.plan.on_cpu)
        except NotImplementedError:  # maybe only for this dtype
            parts = operators.in_parts(self.func)
            if parts is None:
                raise Unknown from None
        except Exception:  # any error: the program did not request this call
            raise Unknown from None
        try:
            return self.run_as(parts)
        except Exception:
            raise Unknown from None

    def run_as(self, func):
        if not self.plan.random:
            return func(*self.args, **self.kwargs)
        with _Random():
            return func(*self.args, **self.kwargs)

    def count(self, args, result):
        """The number that the operator on the device reads from there."""
        if isinstance(result, _Tensor) and result.layout in contents.PARTS:
            return result._nnz()
        if self.plan.count is not None:
            try:
                return self.plan.count(args)
            except Unknown:
                return 0
        first = result[0] if isinstance(result, (tuple, list)) and result else result
        if isinstance(first, _Tensor):
            return first.size(0) if first.dim() else first.numel()
        return int(first) if isinstance(first, (bool, int)) else 0

    def settle(self, out, result, args, kwargs):
        """Writes the computed content to the device's tensors, and returns the operator's result."""
        for each in self.plan.writes(args, kwargs):
            self.put(each, self.copies.get(id(each)))
        for real, shadow in zip(self.plan.made(out), self.plan.made(result)):
            if isinstance(real, _Tensor):
                self.put(real, shadow)
        single = len(self.plan.fresh) == 1
        return result if single and isinstance(out, (bool, int, float, complex)) else out

    @staticmethod
    def put(tensor, content):
        if tensor.is_cuda:
            keep(tensor, content)
        elif content is not None and tensor.size() == content.size():
            tensor.copy_(content)


# ---- Every operator ----


due: Any = None  # a call to make when this thread allocates nothing (_reveille_history)


def _call_due():
    global due
    call, due = due, None
    if call is not None:
        call()


class SmallTensors(TorchDispatchMode):
    """A mode on every thread's stack."""

    def __init__(self):
        super().__init__()
        self.plans = {}

    # Operators that take functions, such as flex_attention, run unchanged.
    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls):
        return True

    # The wrapper that keeps the compiler out would cost as much as everything else here: see begin().
    @classmethod
    def _should_skip_dynamo(cls):
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if _modes_below():  # PyTorch's own modes, for tensors without memory
            return func(*args, **(kwargs or {}))
        if due is not None:
            _call_due()
        for each in types:
            if each.__torch_dispatch__ is not PLAIN:
                return NotImplemented  # a subclass: its inner operators are intercepted again
        kwargs = kwargs or {}
        plan = self.plans.get(id(func))  # by id, since PyTorch computes an operator's hash in Python
        if plan is None:
            if not hasattr(func, "_schema"):
                return func(*args, **kwargs)  # it takes functions
            plan = self.plans[id(func)] = Plan(func)
        if plan.calls:
            return self.inside(func.decompose, args, kwargs)
        if plan.view:
            return func(*args, **kwargs)
        if plan.makes_one and not kwargs:
            twins = contents.twins_of(args)
            if twins is not None and not _is_capturing():
                return self.twice(plan, func, args, twins)
        cuda, small = self.look(args, kwargs)
        if not cuda:
            return (plan.on_host or func)(*args, **kwargs)
        if small and not plan.never:
            try:
                return self.compute(plan, func, args, kwargs)
            except Unknown:
                pass
        copies = plan.name == "aten::copy_" and not _is_capturing()  # while it is captured, nothing is copied
        part = contents.after_copy(*args[:2]) if copies else None
        out = self.read(plan, func, args, kwargs) if plan.reads else func(*args, **kwargs)
        if plan.collective:
            self.watch((args, tuple(kwargs.values()), out))
        self.lose(plan, out, args, kwargs)
        if part is not None:
            contents.keep_part(args[0], part)
        if plan.assume is not None:
            self.assume(plan, out, args, kwargs)
        return out

    def inside(self, run, args, kwargs):
        """Runs an operator so that those that it calls are intercepted. In inference mode, it is intercepted before it has called any."""
        torch._C._push_on_torch_dispatch_stack(self)
        try:
            return run(*args, **kwargs)
        finally:
            torch._C._pop_torch_dispatch_stack(None)

    @staticmethod
    def watch(tensors):
        """The simulated NCCL sets the content of its buffers itself. This makes the content end with their storages, too."""
        for each in tensors_in(tensors):
            if contents.may_be_known(each):
                watch(each.untyped_storage())

    @staticmethod
    def lose(plan, out, args, kwargs):
        if (plan.written or plan.name in operators.HIDDEN_WRITES) and not plan.collective:
            for each in plan.writes(args, kwargs):
                if each.is_cuda:
                    lose(each)
        if plan.copies:  # the copied part may have been known
            for each in tensors_in((out,)):
                if each.is_cuda:
                    lose(each)
        return out

    @staticmethod
    def assume(plan, out, args, kwargs):
        """Replaces what was chosen from unknown numbers: see _reveille_assumed.py."""
        chosen = plan.assume(args, kwargs) or ()
        made = [(each, content) for each, content in zip(tensors_in((out,)), chosen) if content is not None]
        for each, content in made:
            if each.is_cuda:
                keep(each, content)
        if made:
            contents.note_assumed(sum(each.nbytes for each, _ in made), _place())

    @staticmethod
    def look(args, kwargs):
        """Whether a device takes part, and whether all tensors are small. Stops once both are known."""
        cuda, small = False, True
        for each in args:
            if isinstance(each, _Tensor):
                cuda = cuda or each.is_cuda
                small = small and size_of(each) <= LIMIT
            elif type(each) in (list, tuple) and each:
                inner_cuda, inner_small = SmallTensors.look(each, None)
                cuda, small = cuda or inner_cuda, small and inner_small
            if cuda and not small:
                return cuda, small
        if kwargs:
            device = kwargs.get("device")
            inner_cuda, inner_small = SmallTensors.look(kwargs.values(), None)
            cuda = cuda or inner_cuda or (device is not None and device.type == "cuda")
            small = small and inner_small
        return cuda, small

    def compute(self, plan, func, args, kwargs):
        """Runs on the CPU and on the device. Raises Unknown if nothing was done on the device yet."""
        shadow = _Shadow(plan, func, args, kwargs)
        if torch.cuda.is_initialized() and _is_capturing():
            raise Unknown  # each replay writes it again, from what is known then
        if plan.reads:
            result = shadow.run()
            number = shadow.count(args, result)
            out = self.there(lambda: self.given(number, func, args, kwargs), shadow, lambda: result)
            return shadow.settle(out, result, args, kwargs)
        out = self.there(lambda: self.run_there(plan, func, args, kwargs), shadow, shadow.run)
        try:
            if any(size_of(each) > LIMIT for each in tensors_in((out,))):
                raise Unknown
            result = shadow.run()
        except Unknown:
            return self.lose(plan, out, args, kwargs)
        return shadow.settle(out, result, args, kwargs)

    def run_there(self, plan, func, args, kwargs):
        if not plan.reads_inside:
            return func(*args, **kwargs)
        return self.inside(functools.partial(func._op_dk, torch._C.DispatchKey.CUDA), args, kwargs)

    def twice(self, plan, func, args, twins):
        """As compute(), for one tensor made from others with content at hand."""
        try:
            out = plan.run(*args)
        except RuntimeError as error:
            out = self.instead(error, plan, _Shadow(plan, func, args, {}).run)
        if out.nbytes > LIMIT:
            return out
        try:
            result = plan.run_on_cpu(*twins)
        except Exception:
            try:
                result = _Shadow(plan, func, args, {}).run()  # it knows other ways
            except Unknown:
                return self.lose(plan, out, args, {})
        contents.keep_twin(out, result)
        return out

    def there(self, run, shadow, result):
        """Runs on the device."""
        try:
            return run()
        except RuntimeError as error:
            return self.instead(error, shadow.plan, result)

    @staticmethod
    def instead(error, plan, result):
        """Takes the result from the CPU if the device lacks a function that is not simulated, or if a check of zeros failed."""
        library = operators.missing_library(error, plan.func)
        if plan.written or (library is None and not operators.fails_its_check(error, plan.func)):
            raise error
        try:
            computed = result()
        except Unknown:
            raise error from None
        if library is not None:
            operators.tell_missing(library, plan.func)
        return tree_map(lambda each: each.cuda() if isinstance(each, _Tensor) else each, computed)

    @staticmethod
    def given(number, func, args, kwargs, how=GIVEN):
        contents.reading(how, number, None)
        try:
            return func(*args, **kwargs)
        finally:
            contents.reading(KEPT, 0, None)

    def read(self, plan, func, args, kwargs):
        """Reads content that is not known completely. The driver counts the unknown bytes that the program sees."""
        if plan.count is not None:
            try:
                how = ONCE if plan.name in operators.CHECKS_BEFORE else GIVEN
                return self.given(plan.count(args), func, args, kwargs, how)
            except Unknown:
                pass
        contents.reading(KEPT, 0, _place())
        try:
            return func(*args, **kwargs)
        finally:
            contents.reading(KEPT, 0, None)


# ---- Installation ----


def begin(_module):
    """Called when PyTorch was imported: from now on, every operator in every thread is intercepted."""
    if torch.version.cuda is None:
        return
    _keep_compiler_out()
    mode = SmallTensors()
    push, pop = torch._C._push_on_torch_dispatch_stack, torch._C._pop_torch_dispatch_stack
    run = threading.Thread._bootstrap_inner

    def run_with_mode(thread):
        push(mode)
        try:
            run(thread)
        finally:
            pop(None)  # otherwise PyTorch drops it after the thread's end, and aborts if the interpreter ends meanwhile

    threading.Thread._bootstrap_inner = run_with_mode
    _stay_while_printed(mode)
    backward.begin(mode, contents.knows, LIMIT)
    push(mode)


def _stay_while_printed(mode):
    """Keeps the mode while a tensor is printed, which PyTorch does with all modes off. Otherwise the number of shown elements would be read
    from memory that no kernel has written."""
    module = torch._tensor_str
    show = module._str_intern

    def show_known(*args, **kwargs):
        torch._C._push_on_torch_dispatch_stack(mode)
        try:
            return show(*args, **kwargs)
        finally:
            torch._C._pop_torch_dispatch_stack(None)

    module._str_intern = show_known


def _skipping():
    """A function that keeps torch.compile from compiling a code object when it runs within a compiled function. None: there is none."""
    frames = torch._C._dynamo.eval_frame
    if not hasattr(frames, "set_code_exec_strategy"):  # before PyTorch 2.7
        return getattr(frames, "skip_code", None)
    strategy = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
    return lambda code: frames.set_code_exec_strategy(code, strategy)


def _codes(owner, file):
    """The code objects of a module or class, and of the functions within them, that this file has."""
    left = [getattr(getattr(each, "__func__", each), "__code__", None) for each in vars(owner).values()]
    left = [code for code in left if code is not None and code.co_filename == file]
    while left:
        code = left.pop()
        yield code
        left += [each for each in code.co_consts if isinstance(each, type(code))]


def _keep_compiler_out():
    skip = _skipping()
    for module in (sys.modules[__name__], backward, contents, plans, assumed, host, operators, operators.instead):
        classes = [each for each in vars(module).values() if isinstance(each, type) and each.__module__ == module.__name__]
        for owner in (module, *classes) if skip else ():
            for code in _codes(owner, module.__file__):
                skip(code)


def watch_compiled(module):
    """Compiled code runs its own kernels, so what it changes in place becomes unknown."""
    run = module.CompiledFxGraph.__call__

    def run_and_lose(graph, inputs):
        changed = [inputs[i] for i in getattr(graph, "mutated_input_idxs", ())]
        changed = [
            (each.data_ptr(), each.nbytes)
            for each in changed
            if isinstance(each, _Tensor) and each.is_cuda
        ]  # addresses, since references would keep memory
        out = run(graph, inputs)
        for addr, size in changed:
            contents.forget(addr, size)
        return out

    module.CompiledFxGraph.__call__ = run_and_lose
