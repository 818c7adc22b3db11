#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""reveille calibrate on the fake driver: the profile it writes, and what it refuses.

    calibrate.py REVEILLE FAKE_DRIVER FAKE_NVML
"""
import json
import os
import subprocess
import sys
import tempfile

MIB = 1 << 20
CAPACITY = 96 * MIB
TRACE = """reveille-trace 1.0
clock boot=- mono_ns=0 wall_ns=0
device 0 profile=h200 capacity_bytes=150109880320 granularity_bytes=2097152
process engine pid=0
stage 1 engine 0 begin
alloc 2 engine 0 1 0 {bytes} weights backup=host
pause 3 engine 0 weights
stage 4 engine 0 asleep
end 4
"""


def run(reveille, *words, **settings):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("FAKE_", "RVL_", "CUDA_"))}
    environment.update({name: str(value) for name, value in settings.items() if value is not None})
    return subprocess.run([reveille, *words], capture_output=True, text=True, check=False, timeout=240,
                          env=environment)


def expect(condition, what):
    if not condition:
        sys.exit(f"calibrate.py: {what}")


def check_profile(reveille, fake, folder):
    """What is written is read again, and says what the fake card is like."""
    path = os.path.join(folder, "card.json")
    done = run(reveille, "calibrate", "-o", path, "--no-disk", "--gpu", "0", **fake)
    expect(done.returncode == 0, f"calibrate ended with {done.returncode}: {done.stderr}")
    expect(f"({CAPACITY} bytes) for programs" in done.stdout, f"no capacity in {done.stdout}")
    expect("Worst peak: 0.000 %." in done.stdout, f"the peaks do not agree: {done.stdout[-900:]}")
    profile = json.load(open(path, encoding="utf-8"))
    expect(profile["capacity_bytes"] == CAPACITY, "another capacity")
    expect(profile["granularity_bytes"] == 2 * MIB, "another granularity")
    acts = {(one["act"], one["bytes"]): one for one in profile["measured"]}
    for act in ("create", "map", "set_access", "unmap", "release"):
        one = acts[(act, 2 * MIB)]
        expect(one["count"] == 3 and one["least"] <= one["median"] <= one["most"],  # the means of three rounds
               f"no spread of {act}: {one}")
        expect(profile["costs"][act]["from"] == "measured", f"{act} is not called measured")
    for wait in ("host_first", "clear", "idle_clearing"):
        expect(profile["waits"][wait]["from"] == "measured", f"{wait} is not called measured")
    expect(("pause_first", 2 * MIB) in acts, "the first pause of a process was not measured")
    expect(profile["costs"]["disk_write"]["from"] == "assumed", "a disk that nobody measured")
    expect([one["stage"] for one in profile["agreement"]].count("pause weights#2") == 1, "one round only")
    return path


def check_use(reveille, path, folder):
    """The file is a device for the other commands."""
    trace = os.path.join(folder, "run.rvt")
    with open(trace, "w", encoding="utf-8") as file:
        file.write(TRACE.format(bytes=97 * MIB))
    done = run(reveille, "replay", trace, "--device", path, "--json")
    expect(done.returncode == 3, f"97 MiB fit into 96: {done.stdout} {done.stderr}")
    expect(json.loads(done.stdout)["devices"][0]["capacity_bytes"] == CAPACITY, "another device")
    done = run(reveille, "devices", "--device", path)
    expect(done.returncode == 0 and "measured" in done.stdout and "assumed" in done.stdout,
           f"devices does not tell sources: {done.stdout} {done.stderr}")
    done = run(reveille, "devices", "--device", path, "--json")
    expect(json.loads(done.stdout) == json.load(open(path, encoding="utf-8")), "devices --json is another")


def check_fit(reveille, path, folder):
    """The measurements of a file make the same profile again, without a card; and other ones another."""
    again = os.path.join(folder, "again.json")
    done = run(reveille, "calibrate", "--fit", path, "-o", again)
    expect(done.returncode == 0 and done.stdout == "", f"--fit: {done.returncode} {done.stdout} {done.stderr}")
    profile, fitted = (json.load(open(one, encoding="utf-8")) for one in (path, again))
    expect(profile.pop("agreement") and profile == fitted, "another profile of the same measurements")
    for one in profile["measured"]:
        if one["act"] == "reserve":
            one.update({key: 70000 for key in ("least", "median", "most")})
    with open(again, "w", encoding="utf-8") as file:
        json.dump(profile, file)
    done = run(reveille, "calibrate", "--fit", again, "-o", again)
    expect(done.returncode == 0 and done.stdout.startswith("reserve") and "70000 ns" in done.stdout
           and done.stdout.count("\n") == 1, f"what changes is not told: {done.stdout} {done.stderr}")
    fitted = json.load(open(again, encoding="utf-8"))
    expect(fitted["costs"]["reserve"] == {"call_ns": 70000, "fs_per_byte": 0, "from": "measured"}, "no new cost")
    done = run(reveille, "calibrate", "--fit", again, "--json")
    expect(done.returncode == 0 and json.loads(done.stdout) == fitted, f"--json prints another: {done.stdout[:300]}")
    done = run(reveille, "calibrate", "--fit", again, "-o", os.path.join(folder, "none", "again.json"))
    expect(done.returncode == 2 and "none/again.json" in done.stderr, f"no such folder: {done.returncode} {done.stderr}")
    done = run(reveille, "calibrate", "--fit", again, "-o", "/dev/full")
    expect(done.returncode == 1 and "/dev/full: No space left on device: free some" in done.stderr
           and "version" not in done.stderr, f"a full disk: {done.returncode} {done.stderr}")
    for change, why in (({"measured": []}, "has no measurements"), ({"measured": [{"act": "map"}]}, "measured[0] is not a measurement"),
                        ({"measured": [{**profile["measured"][0], "least": 3, "median": 2}]}, "measured[0] is not a measurement"),
                        ({"costs": {}}, "is missing")):
        with open(again, "w", encoding="utf-8") as file:
            json.dump({**profile, **change}, file)
        done = run(reveille, "calibrate", "--fit", again)
        expect(done.returncode == 2 and why in done.stderr, f"{why}: {done.returncode} {done.stderr}")
    done = run(reveille, "calibrate", "--fit", path, "--gpu", "1")
    expect(done.returncode == 2 and "--gpu: not with --fit" in done.stderr, f"--gpu: {done.returncode} {done.stderr}")
    for one, why in (("h200", "is not the file of a profile"), ("tests", "tests is not the file of a profile"), ("./none.json", "cannot be read")):
        done = run(reveille, "calibrate", "--fit", one)
        expect(done.returncode == 2 and why in done.stderr, f"{why}: {done.returncode} {done.stderr}")


def check_neighbours(reveille, fake):
    """A program that stays is refused by name; one that goes has a part measured again."""
    done = run(reveille, "calibrate", "--no-disk", "--tries", "1", FAKE_NVML_PROCESS="vllm", **fake)
    expect(done.returncode == 2 and "vllm (process 4711, 3.0 GiB) uses card 0" in done.stderr and
           "--gpu" in done.stderr, f"a neighbour is not refused: {done.returncode} {done.stderr}")
    done = run(reveille, "calibrate", "--no-disk", FAKE_NVML_PROCESS="vllm", FAKE_NVML_FROM=4,
               FAKE_NVML_UNTIL=4, **fake)
    expect(done.returncode == 0 and "vllm (process 4711, 3.0 GiB) uses card 0: measuring again" in done.stderr,
           f"a neighbour that goes: {done.returncode} {done.stderr}")
    done = run(reveille, "calibrate", "--no-disk", "--tries", "1", FAKE_NVML_PROCESS="vllm", FAKE_NVML_FROM=4,
               **fake)
    expect(done.returncode == 2 and "after 1 try:" in done.stderr and done.stdout == "",
           f"a neighbour that comes later and stays: {done.returncode} {done.stderr}")


def check_refusals(reveille, fake, folder):
    done = run(reveille, "calibrate", RVL_CUDA_LIBRARY=os.path.join(folder, "none.so"))
    expect(done.returncode == 2 and "no CUDA driver" in done.stderr and "unset it" in done.stderr,
           f"no driver: {done.returncode} {done.stderr}")
    done = run(reveille, "calibrate", FAKE_CUDA_DEVICES=-1, **fake)
    expect(done.returncode == 2 and "no device" in done.stderr, f"no card: {done.returncode} {done.stderr}")
    done = run(reveille, "calibrate", "--gpu", "2", CUDA_VISIBLE_DEVICES="0,1", **fake)
    expect(done.returncode == 2 and "lists fewer cards" in done.stderr, f"--gpu 2 of 2: {done.stderr}")
    done = run(reveille, "calibrate", "-o", os.path.join(folder, "card.html"), **fake)
    expect(done.returncode == 2 and "end it in .json" in done.stderr, f"an ending: {done.stderr}")
    done = run(reveille, "calibrate", "-o", os.path.join(folder, "none", "card.json"), **fake)
    expect(done.returncode == 2 and "none/card.json" in done.stderr, f"no such folder: {done.stderr}")
    kept = os.path.join(folder, "kept.json")
    with open(kept, "w", encoding="utf-8") as file:
        file.write("older")
    before = sorted(os.listdir(folder))
    done = run(reveille, "calibrate", "-o", os.path.join(folder, "none", "card.json"), FAKE_CUDA_DEVICES=-1, **fake)
    expect("none/card.json" in done.stderr and "no device" not in done.stderr, f"measured first: {done.stderr}")
    done = run(reveille, "calibrate", "-o", kept, FAKE_CUDA_DEVICES=-1, **fake)
    with open(kept, encoding="utf-8") as file:
        expect(done.returncode == 2 and file.read() == "older", f"an older profile is gone: {done.returncode} {done.stderr}")
    expect(sorted(os.listdir(folder)) == before, f"a draft is left: {os.listdir(folder)}")
    closed = os.path.join(folder, "closed")
    os.mkdir(closed, 0o500)
    for disk, why in ((os.path.join(folder, "none"), "No such file or directory"), (__file__, "Not a directory"),
                      (closed, "Permission denied")):
        if disk == closed and os.geteuid() == 0:
            continue  # root may write everywhere
        done = run(reveille, "calibrate", "--disk", disk, **fake)
        expect(done.returncode == 2 and done.stderr.startswith(f"reveille: calibrate: --disk {disk}: {why}: name a folder"),
               f"--disk {disk}: {done.returncode} {done.stderr}")
    for option in ("--tries", "--gpu"):
        done = run(reveille, "calibrate", option, "101", **fake)
        expect(done.returncode == 2 and "whole number" in done.stderr, f"{option} 101: {done.stderr}")


def main():
    reveille, driver, nvml = sys.argv[1:4]
    fake = {"RVL_CUDA_LIBRARY": driver, "RVL_NVML_LIBRARY": nvml, "FAKE_CUDA_CAPACITY_BYTES": CAPACITY}
    with tempfile.TemporaryDirectory() as folder:
        check_refusals(reveille, fake, folder)
        path = check_profile(reveille, fake, folder)
        check_use(reveille, path, folder)
        check_fit(reveille, path, folder)
        check_neighbours(reveille, fake)
    return 0


if __name__ == "__main__":
    sys.exit(main())
