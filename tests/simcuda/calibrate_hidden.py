#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""reveille calibrate beside a program that NVML does not list, as in a container: it waits for the program, and finally refuses.

    calibrate_hidden.py REVEILLE

On a simulated card. Its NVML lists no processes, so only the memory shows the other program.
"""
import ctypes
import subprocess
import sys
import time

HELD_BYTES = 300 << 20


def hold(seconds):
    """The other program: takes a context and 300 MiB for a while."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    calls = [cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0),
             cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), cuda.cuCtxSetCurrent(context),
             cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(HELD_BYTES))]
    print("held" if calls == [0] * len(calls) else f"failed: {calls}", flush=True)
    time.sleep(seconds)


def beside(reveille, seconds, tries):
    """Inside `reveille run`: calibrates beside such a program."""
    with subprocess.Popen([sys.executable, __file__, "--hold", seconds], stdout=subprocess.PIPE, text=True) as other:
        print(other.stdout.readline().strip(), file=sys.stderr, flush=True)
        done = subprocess.run([reveille, "calibrate", "--no-disk", "--tries", tries], check=False)
        other.kill()
    sys.exit(done.returncode)


def run(reveille, seconds, tries):
    words = [reveille, "run", "--device", "2GiB", "--", sys.executable, __file__, "--beside", reveille, seconds, tries]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=240)


def expect(done, status, *texts):
    for text in ("held", *texts):
        if text not in done.stderr:
            sys.exit(f"{text!r} is not said: {done.stderr}")
    if done.returncode != status:
        sys.exit(f"ended with {done.returncode}, not {status}: {done.stderr}")


def main():
    reveille = sys.argv[1]
    who = "a program that NVML does not name (82"  # 300 MiB, and 526 MiB of its context
    expect(run(reveille, "60", "1"), 2, who, "uses card 0, after 1 try: end it")
    expect(run(reveille, "3", "9"), 0, who, "uses card 0: waiting")


if __name__ == "__main__":
    if sys.argv[1] == "--hold":
        hold(float(sys.argv[2]))
    elif sys.argv[1] == "--beside":
        beside(*sys.argv[2:])
    else:
        main()
