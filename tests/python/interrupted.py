# SPDX-License-Identifier: MIT
"""What test_interrupts.py runs in a process of its own: a scenario by its name.

Every context here has a file in memory behind it, so those that were not closed can be counted.
"""

import contextlib
import gc
import os
import random
import signal
import sys
import threading
import time
import traceback

import reveille
from reveille import _handle

INTERRUPTS = 3000
CLOSES = 400
CALLERS = 3
PATIENCE_S = 20
LONGEST_S = 0.0004


class Interrupted(BaseException):
    """What the signal handler raises, as Ctrl-C raises KeyboardInterrupt."""


def open_contexts():
    """How many contexts of the process are open."""
    names = []
    for number in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:  # the folder's own
            pass
    return sum("memfd:" in name for name in names)


def new_context():
    return reveille.Context("sim", devices="64MiB")


def close_elsewhere(context):
    """Closes it on another thread; fails if that does not end."""
    closed = []
    thread = threading.Thread(target=lambda: closed.append(context.close()), daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert closed == [0], "close() does not end"


armed = False  # an alarm that comes late, when its call has been left, interrupts nothing


def on_alarm(_signal, _frame):
    global armed
    if armed:
        armed = False
        raise Interrupted


def interrupt(work, longest_s=LONGEST_S):
    """Within which functions a signal handler raised; none if it did not."""
    global armed
    try:
        armed = True
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, longest_s))
        work()
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupted as raised:
        signal.setitimer(signal.ITIMER_REAL, 0)
        return [frame.name for frame in traceback.extract_tb(raised.__traceback__)][1:-1]
    return []


def calls():
    """Calls that are interrupted anywhere leave nothing behind that close() would wait for."""
    interrupted = 0
    while interrupted < INTERRUPTS:
        context = new_context()
        for work in (context.step, context.memory, lambda: context.devices, context.stats) * 25:
            interrupted += bool(interrupt(work))
        close_elsewhere(context)
        assert context.closed
    assert open_contexts() == 0


def closes():
    """A close() that was interrupted is gone on with by the next, and closes once."""
    interrupted = 0
    while interrupted < CLOSES:
        context = new_context()
        context.alloc("1MiB")
        interrupted += bool(interrupt(context.close, LONGEST_S / 4))
        assert context.close() in (0, 1)
        assert context.closed
        assert open_contexts() == 0


def opens():
    """A context is closed if its opening is interrupted; a recording has not begun."""
    interrupted = 0
    while interrupted < CLOSES:
        context, recording = None, None

        def use():
            nonlocal context, recording
            context = new_context()
            recording = context.record(os.devnull)
            recording.__enter__()

        where = interrupt(use)
        interrupted += bool(where)
        if recording is not None and "__enter__" not in where:
            with contextlib.suppress(reveille.InvalidState):  # just before it
                recording.__exit__()
        if context is not None:
            with context.record(os.devnull):  # raises if one were running
                pass
            context.close()
        context = None
        gc.collect()
        assert open_contexts() == 0


def crowd():
    """close() ends while other threads call and call; they hear that it is closed."""
    context, answers = new_context(), []
    started = threading.Barrier(CALLERS + 1)

    def call():
        started.wait()
        try:
            while True:
                context.stats()
        except reveille.InvalidState as error:
            answers.append(str(error))

    callers = [threading.Thread(target=call, daemon=True) for _ in range(CALLERS)]
    for caller in callers:
        caller.start()
    started.wait()
    time.sleep(0.1)
    close_elsewhere(context)
    for caller in callers:
        caller.join(PATIENCE_S)
    assert answers == ["the context is closed: open another"] * CALLERS, answers
    assert open_contexts() == 0


def running():
    """close() waits for a call that runs, and lets what that call asks for in."""
    context, seen, inside, go = new_context(), [], threading.Event(), threading.Event()

    def before(_tag):
        inside.set()
        go.wait(PATIENCE_S)
        seen.append((context.closed, context.memory()[1]))

    context.tag("w", before_unmap=before)
    context.alloc("1MiB", tag="w")
    pausing = threading.Thread(target=context.pause, daemon=True)
    pausing.start()
    assert inside.wait(PATIENCE_S)
    left = []
    closing = threading.Thread(target=lambda: left.append(context.close()), daemon=True)
    closing.start()
    while not context.closed:
        time.sleep(0.001)
    try:
        context.step()
        raise AssertionError("a new call was let in")
    except reveille.InvalidState:
        pass
    closing.join(0.05)
    assert left == [] and open_contexts() == 1
    go.set()
    pausing.join(PATIENCE_S)
    closing.join(PATIENCE_S)
    assert seen == [(True, 64 << 20)]
    assert left == [1] and open_contexts() == 0


def everywhere():
    """An exception before each single bytecode of a context's life, one after the other."""
    steps = 0
    while raised_at(steps):
        steps += 1
    assert steps > 300, steps


def raised_at(step):
    """Raises at the given bytecode of the package; whether there was one."""
    left, context = step, None

    def trace(frame, event, _argument):
        nonlocal left
        if not frame.f_code.co_filename.startswith(os.path.dirname(_handle.__file__)):
            return None
        if frame.f_code is _handle.Handle.finish.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and outside_finish(frame):
            if left == 0:
                sys.settrace(None)
                left = -1
                raise Interrupted
            left -= 1
        return trace

    sys._getframe().f_trace_opcodes = True  # before settrace(): 3.12 looks there alone
    sys.settrace(trace)
    try:
        context = new_context()
        context.step()
        context.close()
    except Interrupted:
        pass
    finally:
        sys.settrace(None)
    if context is not None:
        close_elsewhere(context)
    context = None
    gc.collect()
    assert open_contexts() == 0, f"interrupted at bytecode {step}"
    return left == -1


def outside_finish(frame):
    """What the garbage collector calls raises to nobody."""
    while frame is not None:
        if frame.f_code is _handle.Handle.finish.__code__:
            return False
        frame = frame.f_back
    return True


def collected():
    """Closing while the garbage collector finds other contexts, within sys._current_frames() too."""
    gc.disable()
    for more in range(1, 40):
        context = new_context()
        cycle = [new_context()]
        cycle.append(cycle)
        del cycle
        gc.set_threshold(gc.get_count()[0] + more)  # so many allocations from here on
        gc.enable()
        left = context.close()
        gc.disable()
        assert left == 0
        gc.collect()
        assert open_contexts() == 0


signal.signal(signal.SIGALRM, on_alarm)
random.seed(1)
SCENARIOS = (calls, closes, opens, crowd, running, everywhere, collected)
{each.__name__: each for each in SCENARIOS}[sys.argv[1]]()
