# SPDX-License-Identifier: MIT
"""Random calls of the whole Python package, compared with a model; Ctrl-C, forks and kills fall in.

usage: stress.py [--seed N] [--seconds S]

RVL_STRESS_SECONDS is the default of --seconds. A failure prints the seed, the thread, its step and
the call. docs/testing.md has more.
"""

import argparse
import contextlib
import gc
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings

import reveille
from communicators import Communicators
from names import Names
from owner import Owner
from regions import Regions

DEADLINE_S = 60
STEPS = 60
CHILD_STEPS = 15
HAS_TORCH = "RVL_TEST_CUDART_FAKE" in os.environ


class Run:
    """One run: its seed, what it has counted, and the rounds."""

    def __init__(self, seed, folder):
        self.seed, self.folder = seed, folder
        self.random = random.Random(seed)
        self.names = Names()
        self.rounds = self.interrupts = self.forks = self.killed_children = self.kills = 0
        self.signals = 0
        self.armed = False
        self.regions = None
        signal.signal(signal.SIGINT, self.on_interrupt)
        signal.signal(signal.SIGALRM, self.on_alarm)
        signal.siginterrupt(signal.SIGALRM, True)

    # ---- Signals ----

    def on_interrupt(self, _signal, _frame):
        if self.armed:
            self.armed = False
            self.interrupts += 1
            raise KeyboardInterrupt

    def on_alarm(self, _signal, _frame):
        self.signals += 1

    # ---- Contexts ----

    def new_context(self, roomy, **more):
        os.makedirs(os.path.join(self.folder, "disk"), exist_ok=True)
        return reveille.Context(
            devices="1GiB" if roomy else "24MiB",
            memory=more.pop("memory", "backed"),
            keep_bytes=self.random.choice((0, "8MiB")),
            verify=self.random.random() < 0.8,
            disk_directory=os.path.join(self.folder, "disk"),
            disk_tmpfs=True,
            **more,
        )

    def close(self, context):
        """Closes it on another thread, which must end."""
        closed = []
        thread = threading.Thread(target=lambda: closed.append(context.close()), daemon=True)
        thread.start()
        thread.join(DEADLINE_S)
        assert closed, f"close() does not end within {DEADLINE_S} s"
        assert context.closed

    # ---- Rounds ----

    def threads(self, tour=False):
        """Threads on one context; the main thread forks meanwhile."""
        roomy, backed = tour or self.random.random() < 0.5, self.random.random() < 0.6
        context = self.new_context(roomy, memory="backed" if backed else "accounted")
        count = 1 if tour else self.random.choice((1, 2, 4))
        seed, failures = self.random.randrange(1 << 32), []
        owners = [
            Owner(context, seed, i, roomy=roomy, folder=self.folder, backed=backed, alone=count == 1)
            for i in range(count)
        ]

        def work(owner):
            try:
                if tour:
                    owner.tour()
                for _ in range(STEPS):
                    owner.step()
            except BaseException:
                failures.append((owner.thread, owner.steps, owner.last, traceback.format_exc()))

        path = os.path.join(self.folder, "threads.rvt")
        with context.record(path):
            workers = [threading.Thread(target=work, args=(each,), daemon=True) for each in owners]
            for worker in workers:
                worker.start()
            if self.random.random() < 0.5 or tour:
                self.fork(context)
            for worker in workers:
                worker.join(DEADLINE_S)
                assert not worker.is_alive(), "a thread hangs: " + str([o.last for o in owners])
        for thread, step, last, why in failures:
            raise AssertionError(f"thread {thread}, step {step}, {last}:\n{why}")
        replayed = reveille.replay(path)
        assert replayed.event_count > 0
        left = sum(len(each.slots) for each in owners)
        assert context.close() == left, f"{left} allocations were left"
        os.unlink(path)

    def interrupted(self):
        """Ctrl-C anywhere in a call; then close() ends, and no memory stays."""
        before = count_contexts()
        context = self.new_context(True)
        owner = Owner(context, self.random.randrange(1 << 32), "main", roomy=True,
                      folder=self.folder, alone=True)  # fmt: skip
        delay_s = self.random.uniform(0, 0.05)
        sender = threading.Thread(target=interrupt_after, args=(delay_s,), daemon=True)
        try:
            self.armed = True
            sender.start()
            while self.armed:
                owner.step()
        except KeyboardInterrupt:
            pass
        except reveille.Vetoed as veto:  # by the exception, within a callback
            if not isinstance(veto.__cause__, KeyboardInterrupt):
                raise
        except (reveille.ReveilleError, AssertionError) as error:
            raise AssertionError(f"step {owner.steps}, {owner.last}: {error}") from error
        sender.join(DEADLINE_S)
        self.close(context)
        owner = context = None
        gc.collect()
        assert count_contexts() == before, "a context is still open"

    def fork(self, context):
        self.forks += 1
        kills = self.random.random() < 0.3
        child = os.fork()
        if child == 0:
            self.be_child(context)
        if kills:
            time.sleep(self.random.uniform(0, 0.02))
            os.kill(child, signal.SIGKILL)
        status = wait_for(child)
        killed = kills and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        self.killed_children += killed
        assert killed or status == 0, f"a forked child ended with {status}"

    def be_child(self, context):
        """Is refused, has a context of its own, and ends."""
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for call in (context.memory, context.pause, context.resume, context.stats,
                         context.step, lambda: context.alloc(1), lambda: context.stage("child"),
                         lambda: context.devices, context.close):  # fmt: skip
                try:
                    call()
                    raise AssertionError(f"{call} was not refused")
                except reveille.Forked:
                    pass
            self.folder = os.path.join(self.folder, f"child-{os.getpid()}")
            own = self.new_context(True)
            owner = Owner(own, self.seed, "child", roomy=True, folder=self.folder, alone=True)
            for _ in range(CHILD_STEPS):
                owner.step()
            own.close()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def kill(self):
        """A process that records is killed: nothing is left but the trace, which can be read."""
        folder = os.path.join(self.folder, "victim")
        os.mkdir(folder)
        seed = str(self.random.randrange(1 << 32))
        victim = subprocess.Popen([sys.executable, "-B", __file__, "--victim", folder, "--seed", seed])
        time.sleep(self.random.uniform(0, 1))
        victim.kill()
        self.kills += victim.wait(DEADLINE_S) == -signal.SIGKILL
        names = {"disk", "run.rvt", "own-victim.rvt"}
        assert set(os.listdir(folder)) <= names, os.listdir(folder)
        if os.path.exists(os.path.join(folder, "disk")):
            assert os.listdir(os.path.join(folder, "disk")) == []
        trace = os.path.join(folder, "run.rvt")
        if os.path.exists(trace):
            reveille.replay(trace, partial=True)
        shutil.rmtree(folder)

    def torch(self):
        if not HAS_TORCH:
            return
        if self.regions is None:
            self.regions = Regions(self.seed, self.folder)
            self.regions.tour()
        for _ in range(STEPS):
            self.regions.step()
        self.regions.end()

    def communicators(self):
        Communicators(self.random.randrange(1 << 32), self.folder).run(STEPS)

    def round(self):
        """One, drawn at random."""
        rounds = (self.threads, self.interrupted, self.kill, self.torch, self.communicators)
        if self.rounds < len(rounds):
            chosen = rounds[self.rounds]
        else:
            chosen = self.random.choices(rounds, (6, 12, 1, 2, 2))[0]
        tour = {"tour": True} if self.rounds == 0 else {}
        self.rounds += 1
        chosen(**tour)

    def may_meet_more(self):
        """On a busy machine few rounds are over in time, and rare calls have not come by chance."""
        return self.rounds < 30 and bool(self.names.missing(HAS_TORCH))


def interrupt_after(delay_s):
    """Sends SIGINT to the process, or to this thread: Python's handler runs on the main one."""
    time.sleep(delay_s)
    if delay_s > 0.02:
        os.kill(os.getpid(), signal.SIGINT)
    else:
        signal.raise_signal(signal.SIGINT)


def count_contexts():
    """How many contexts on backed memory are open in this process."""
    names = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the folder's own
            names.append(os.readlink(f"/proc/self/fd/{number}"))
    return sum("memfd:reveille-sim" in name for name in names)


def wait_for(child):
    """Status of a child, which must end within the deadline."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found == child:
            return status
        time.sleep(0.001)
    raise AssertionError(f"process {child} does not end within {DEADLINE_S} s")


def be_victim(folder, seed):
    """Records until it is killed."""
    signal.alarm(2 * DEADLINE_S)
    os.makedirs(os.path.join(folder, "disk"), exist_ok=True)
    context = reveille.Context(devices="64MiB", disk_directory=os.path.join(folder, "disk"),
                               disk_tmpfs=True)  # fmt: skip
    with context.record(os.path.join(folder, "run.rvt")):
        owner = Owner(context, seed, "victim", roomy=False, folder=folder, alone=True)
        while True:
            owner.step()


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    drawn = int.from_bytes(os.urandom(4), "little")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("RVL_STRESS_SEED", drawn)))
    parser.add_argument("--seconds", type=float,
                        default=float(os.environ.get("RVL_STRESS_SECONDS", "5")))  # fmt: skip
    parser.add_argument("--victim", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    arguments = read_arguments()
    if arguments.victim:
        be_victim(arguments.victim, arguments.seed)
    warnings.simplefilter("ignore", DeprecationWarning)  # that forks and threads do not go together
    sys.unraisablehook = lambda _raised: None  # Ctrl-C within a callback that cannot raise
    folder = tempfile.mkdtemp(prefix="reveille-stress-")
    print(f"stress: --seed {arguments.seed} --seconds {arguments.seconds:g}", flush=True)
    run = Run(arguments.seed, folder)
    end = time.monotonic() + arguments.seconds
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try:
        run.names.make_errors()
        while run.rounds < 5 or time.monotonic() < end or run.may_meet_more():
            run.round()
    except BaseException:
        traceback.print_exc()
        print(f"stress: FAILED: --seed {arguments.seed}, round {run.rounds}", file=sys.stderr)
        os._exit(1)
    signal.setitimer(signal.ITIMER_REAL, 0)
    shutil.rmtree(folder)
    print(f"stress: {run.rounds} rounds, {run.names.calls} calls of {len(run.names.wanted)} names; "
          f"{run.interrupts} interrupts, {run.signals} signals, {run.forks} forks "
          f"({run.killed_children} killed), {run.kills} kills")  # fmt: skip
    if not HAS_TORCH:
        print("SKIP: regions: the fake CUDA driver was not built")
    missing = run.names.missing(HAS_TORCH)
    if missing:
        print(f"stress: never used, add a use of each: {', '.join(missing)}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
