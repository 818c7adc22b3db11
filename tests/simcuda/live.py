# SPDX-License-Identifier: MIT
"""The live lines of `reveille run`, on a terminal emulated here: live.py REVEILLE PROGRAM.

The terminal understands the part of xterm that is used: rows, a scrolling region, a saved cursor. Lines that scroll out at the top are
kept, so that every line of the program can be checked.
"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from terminal import read_terminal

CONTEXT = 552402944
COLUMNS = 100
SEQUENCE = re.compile(r"\x1b(?:\[([0-9;?]*)([A-Za-z])|([78DM]))")


class Screen:
    def __init__(self, rows):
        self.rows, self.lines, self.gone = rows, [""] * rows, []
        self.row = self.column = 0
        self.top, self.bottom = 0, rows - 1
        self.saved = (0, 0)
        self.rest = ""
        self.sequences = 0

    def resize(self, rows):
        """As xterm does it: rows are added and removed at the bottom, and the region is reset to the whole screen."""
        while rows < len(self.lines):
            if self.row == len(self.lines) - 1:
                self.gone.append(self.lines.pop(0))
                self.row -= 1
            else:
                self.lines.pop()
        self.lines += [""] * (rows - len(self.lines))
        self.rows, self.top, self.bottom = rows, 0, rows - 1

    def down(self):
        if self.row == self.bottom:
            line = self.lines.pop(self.top)
            self.lines.insert(self.bottom, "")
            if self.top == 0:
                self.gone.append(line)
        elif self.row < self.rows - 1:
            self.row += 1

    def put(self, letter):
        assert self.column < COLUMNS, "a line is wider than the terminal"
        line = self.lines[self.row].ljust(self.column)
        self.lines[self.row] = line[: self.column] + letter + line[self.column + 1 :]
        self.column += 1

    def obey(self, numbers, kind, short):
        self.sequences += 1
        given = [int(n) for n in numbers.split(";") if n] if numbers else []
        if short == "7":
            self.saved = (self.row, self.column)
        elif short == "8":
            self.row, self.column = self.saved
        elif short == "D":
            self.down()
        elif kind == "A":
            self.row = max(self.row - (given or [1])[0], 0)
        elif kind == "H":
            self.row, self.column = [*given, 1, 1][0] - 1, [*given, 1][1] - 1
            assert self.row < self.rows, "a row that the terminal does not have"
        elif kind == "r":
            self.top, self.bottom = (given[0] - 1, given[1] - 1) if given else (0, self.rows - 1)
            self.row = self.column = 0
        elif kind == "K":
            self.lines[self.row] = ""
        elif kind != "m":
            raise AssertionError(f"an unknown sequence: {numbers}{kind}{short}")

    def feed(self, text):
        text = self.rest + text
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                match = SEQUENCE.match(text, at)
                if not match:
                    break
                self.obey(*match.groups())
                at = match.end()
                continue
            if text[at] == "\n":
                self.down()
            elif text[at] == "\r":
                self.column = 0
            else:
                self.put(text[at])
            at += 1
        self.rest = text[at:]

    def all(self):
        return [line.rstrip() for line in self.gone + self.lines if line.strip()]


class Terminal:
    """A process with a terminal of its own, and the terminal's content."""

    def __init__(self, line, rows=16, environment=None, stop_behind=False):
        self.main, side = pty.openpty()
        self.screen = Screen(rows)
        self.set_rows(rows)
        if stop_behind:
            settings = termios.tcgetattr(side)
            settings[3] |= termios.TOSTOP
            termios.tcsetattr(side, termios.TCSANOW, settings)
        self.process = subprocess.Popen(
            line,
            stdin=side,
            stdout=side,
            stderr=side,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**os.environ, "TERM": "xterm", "LC_ALL": "C", **(environment or {})},
        )
        os.close(side)

    def set_rows(self, rows):
        fcntl.ioctl(self.main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, COLUMNS, 0, 0))
        self.screen.resize(rows)

    def read(self, until, limit_s=60):
        """Feeds the screen until a condition holds. False: the process ended, or time ran out."""
        end = time.monotonic() + limit_s
        while not until():
            if time.monotonic() > end:
                return False
            if select.select([self.main], [], [], 0.1)[0]:
                try:
                    self.screen.feed(os.read(self.main, 65536).decode())
                except OSError:  # the other side is closed
                    self.screen.feed(read_terminal(self.main).decode())
                    return until()
        return True

    def finish(self):
        self.read(lambda: False)
        status = self.process.wait(30)
        os.close(self.main)
        return status


def gpu_line(number, used_bytes, peak_bytes, most_bytes=None):
    def size(count):
        unit, name = (1 << 30, "GiB") if count >= 1 << 30 else (1 << 20, "MiB")
        return f"{count / unit:.1f} {name}"

    most = rf", most: simcuda-program\[\d+\] {size(most_bytes)}" if most_bytes else ""
    used = f"{used_bytes} B" if used_bytes == 0 else size(used_bytes)
    peak = f"{peak_bytes} B" if peak_bytes == 0 else size(peak_bytes)
    return re.compile(rf"GPU {number}: {used} of 139.8 GiB, peak {peak}, stage run{most}$")


def check_lines(screen, count):
    """Every line of the program is there, complete, once, and in order."""
    said = [line for line in screen.all() if line.startswith("line ")]
    assert said == [f"line {i}" for i in range(1, count + 1)], said


def talking(program, count, *words):
    """A shell program that prints lines all the time, beside a program with memory."""
    held = " ".join([program, *words])
    return [
        "sh",
        "-c",
        f"{held} >/dev/null & i=0; while [ $i -lt {count} ]; do i=$((i + 1)); echo line $i; "
        "sleep 0.05; done; wait",
    ]


def beside_a_program_that_talks(reveille, program):
    GIB = 1 << 30
    words = ["malloc", str(GIB), "malloc", str(GIB), "free", "held", "5"]
    terminal = Terminal([reveille, "run", "--gpus", "2", "--", *talking(program, 100, *words)])
    screen = terminal.screen
    both = [gpu_line(0, CONTEXT + GIB, CONTEXT + 2 * GIB, CONTEXT + GIB), gpu_line(1, 0, 0)]

    def drawn():
        return all(line.match(text) for line, text in zip(both, screen.lines[-2:]))

    assert terminal.read(drawn, 20), screen.lines
    assert (screen.top, screen.bottom) == (0, 13)
    seen = len(screen.all())
    assert terminal.read(lambda: len(screen.all()) > seen + 20, 20), "the program is held up"
    assert drawn(), screen.lines
    assert terminal.finish() == 0
    check_lines(screen, 100)
    assert (screen.top, screen.bottom) == (0, 15)
    assert not [line for line in screen.all() if line.startswith("GPU ")], screen.lines
    assert any("device 0: h200, 139.8 GiB; peak 2.5 GiB in run" in x for x in screen.all())


def another_size(reveille, program):
    """The program is silent during the change: output at that moment may be below the live lines."""
    line = f"{program} malloc 1 held 9 >/dev/null & seq -f 'line %g' 40; sleep 7; "
    line += "seq -f 'line %g' 41 80; wait"
    terminal = Terminal([reveille, "run", "--", "sh", "-c", line])
    screen = terminal.screen

    def at(row):
        return lambda: screen.lines[row].startswith("GPU 0: 528.8 MiB of ")

    assert terminal.read(at(15), 20), screen.lines
    for rows in (24, 12):
        terminal.set_rows(rows)
        assert terminal.read(at(rows - 1), 1), screen.lines
        assert screen.bottom == rows - 2
        assert len([x for x in screen.all() if x.startswith("GPU ")]) == 1, screen.all()
    assert terminal.finish() == 0
    check_lines(screen, 80)


def none_where_none_is_wanted(reveille, program):
    line = [program, "malloc", "1", "held", "4"]
    for words, environment in (
        (["--progress=never"], None),
        ([], {"TERM": "dumb"}),
    ):
        terminal = Terminal([reveille, "run", "--color=never", *words, "--", *line], environment=environment)
        assert terminal.finish() == 0
        assert terminal.screen.sequences == 0
        assert not [x for x in terminal.screen.all() if "GPU" in x], terminal.screen.lines
    small = Terminal([reveille, "run", "--color=never", "--", *line], rows=6)
    assert small.finish() == 0 and small.screen.sequences == 0
    short = Terminal([reveille, "run", "--color=never", "--", program, "malloc", "1"])
    assert short.finish() == 0 and short.screen.sequences == 0
    said = subprocess.run([reveille, "run", "--", *line], capture_output=True, text=True, check=True)
    assert said.stderr == "" and "\x1b" not in said.stdout, said


def plain_lines_when_asked(reveille, program):
    said = subprocess.run(
        [reveille, "run", "--progress", "--", program, "malloc", "1", "held", "12"],
        capture_output=True,
        text=True,
        check=True,
    )
    pattern = r"reveille: GPU 0: 528.8 MiB of 139.8 GiB, peak 528.8 MiB, stage run, most: .*\n"
    assert re.fullmatch(pattern, said.stderr), said.stderr


def a_terminal_that_stops_who_is_behind(reveille, program):
    line = [reveille, "run", "--", program, "malloc", "1", "held", "4"]
    terminal = Terminal(line, stop_behind=True)
    assert terminal.read(lambda: terminal.screen.lines[15].startswith("GPU 0: "), 20)
    assert terminal.finish() == 0


def after_a_signal(reveille, program):
    terminal = Terminal([reveille, "run", "--", program, "malloc", "1", "held", "60"])
    assert terminal.read(lambda: terminal.screen.lines[15].startswith("GPU 0: "), 20)
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.finish() == 128 + signal.SIGTERM
    assert (terminal.screen.top, terminal.screen.bottom) == (0, 15)
    assert not [x for x in terminal.screen.all() if x.startswith("GPU ")]


def main():
    for test in (
        beside_a_program_that_talks,
        another_size,
        none_where_none_is_wanted,
        plain_lines_when_asked,
        a_terminal_that_stops_who_is_behind,
        after_a_signal,
    ):
        test(*sys.argv[1:3])
        print(f"{test.__name__}: ok", flush=True)


if __name__ == "__main__":
    main()
