#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Rooms of the tree: each includes headers of its own and of rooms below, and never of one above.

rooms.py SOURCE    fails with a line for each include that climbs, for each file in no room, and for each type that
                   headers of two rooms define
rooms.py --self    fails unless made-up includes are judged rightly

docs/architecture.md draws the same layers.
"""
import re
import sys
from pathlib import Path

# What a room may include besides itself and the public headers: rooms, or single files. A longer path is a room of its
# own, and not a part of the shorter one. A room is listed behind all that it may include, so there can be no circle.
ROOMS = {
    "include": [],
    "base": [],
    "nvtx": [],
    "trace": ["base"],
    "core": ["base", "trace"],
    "core/memory": ["base", "core"],
    "core/backup": ["base", "core", "core/memory"],
    "core/transition": ["base", "core", "core/memory", "core/backup"],
    "core/sleep": ["base", "core", "core/memory", "core/transition"],
    "core/context": ["base", "core", "core/memory", "core/backup", "core/transition", "core/sleep"],
    "core/forecast": ["base", "core", "core/memory", "core/backup", "core/transition", "core/context"],
    "backends/cuda": ["base", "core/backend.h"],
    "backends/sim": ["base", "core/backend.h"],
    "backends": ["base", "core/backend.h", "core/context", "backends/cuda", "backends/sim"],
    "predict/replay": ["base", "core/prefetch.h"],
    "predict/snapshot": ["base"],
    "predict/llm": ["base", "predict/snapshot"],
    "predict/plan": ["base"],
    "predict/profile": ["base"],
    "hooks/process": ["base"],
    "hooks/record": ["base", "trace", "hooks/process"],
    "hooks/export": ["base", "hooks/process"],
    "hooks/region": ["base", "hooks/process", "hooks/record", "hooks/export"],
    "hooks/ipc": ["base", "hooks/process", "hooks/export", "hooks/region"],
    "hooks/nccl": ["base", "hooks/process", "hooks/record", "hooks/region"],
    "hooks/library": ["base", "nvtx", "hooks/process", "hooks/record", "hooks/region", "hooks/ipc", "hooks/nccl"],
    "hooks/shim": ["base", "hooks/process", "hooks/region", "hooks/library"],
    "hooks/preload": ["base", "nvtx", "hooks/process", "hooks/record", "hooks/region", "hooks/ipc", "hooks/shim"],
    "hooks/torch": ["hooks/process", "hooks/region", "hooks/shim"],
    "simcuda/wire": ["base"],
    "simcuda/driver": ["base", "nvtx", "simcuda/wire"],
    "simcuda/runtime": ["simcuda/wire", "simcuda/driver"],
    "simcuda/blas": ["simcuda/wire", "simcuda/driver"],
    "simcuda/dnn": ["base", "simcuda/wire"],
    "simcuda/math": ["simcuda/wire", "simcuda/driver"],
    "simcuda/nccl": ["simcuda/wire", "simcuda/driver"],
    "simcuda/nvml": ["simcuda/wire", "simcuda/driver"],
    "simcuda/audit": [],
    "simcuda/cute": [],
    "simcuda/machine": ["base", "core/prefetch.h", "simcuda/wire"],
    "cli": ["simcuda/machine", "base/error.h", "base/json.h", "base/output.h", "base/shown.h", "predict/snapshot/json.h"],
    "bench": ["base", "core", "core/backup", "core/context", "tests/support"],
}
PUBLIC = "reveille/"
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
GENERATED = re.compile(r"\.inc$")


def room_of(path):
    """The room that a path from the root lies in, or None."""
    fits = [room for room in ROOMS if path == room or path.startswith(room + "/")]
    return max(fits, key=len, default=None)


def climbs(room, target):
    """Whether a file of the room may not include the target, a path from the root."""
    beside = [name for name in ROOMS[room] if name not in ROOMS]  # single files, and folders that are no rooms
    return room_of(target) not in (room, *ROOMS[room]) and not any(
        target == name or target.startswith(name + "/") for name in beside)


def circles(rooms):
    """The rooms that may include one that is listed behind them."""
    order = list(rooms)
    return [f"{room} may include {below}, which is listed behind it" for room in order for below in rooms[room]
            if below in rooms and order.index(below) >= order.index(room)]


def target_of(folder, room, name, exists):
    """Where an include leads, as a path from the root; None: not to a file of the tree."""
    places = [f"{folder}/{name}", name, f"{room}/{name}", f"tests/support/{name}", f"tests/{name}"]
    return next((place for place in places if exists(place)), None)


def check(source):
    faults = circles(ROOMS)
    seen = 0
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source).as_posix()
        if path.suffix not in (".c", ".h", ".cpp", ".cu") or name.startswith(("build", "tests/")):
            continue
        room = room_of(name)
        if room is None:
            if not name.startswith(("python/", "examples/", "man/", ".")):
                faults.append(f"{name}: lies in no room")
            continue
        for include in INCLUDE.findall(path.read_text(encoding="utf-8")):
            if include.startswith(PUBLIC) or GENERATED.search(include):
                continue
            target = target_of(path.parent.relative_to(source).as_posix(), room, include,
                               lambda at: (source / at).is_file())
            seen += 1
            if target is None:
                faults.append(f"{name}: no file for {include}")
            elif climbs(room, target):
                faults.append(f"{name}: {room} includes {target}, which lies above it")
    return seen, faults


TYPE = re.compile(r"^(?:\} (rvli_\w+);|typedef (?:struct|enum|union) \w+ (rvli_\w+);)", re.MULTILINE)


def types_of_two_rooms(source):
    """Types that two headers of different folders define: one word, one meaning."""
    found = {}
    for path in sorted(source.rglob("*.h")):
        name = path.relative_to(source)
        if name.parts[0] in ("build", "tests"):
            continue
        for match in TYPE.finditer(path.read_text(encoding="utf-8")):
            found.setdefault(match[1] or match[2], {}).setdefault(name.parent.as_posix(), name.as_posix())
    return [f"{' and '.join(places.values())}: both have a {kind}"
            for kind, places in sorted(found.items()) if len(places) > 1]


def check_itself():
    cases = [
        ("core", "base/error.h", False), ("core", "core/tables.h", False),
        ("core", "backends/cuda/driver.h", True), ("base", "core/tables.h", True),
        ("backends", "core/backend.h", False), ("cli", "base/output.h", False),
        ("cli", "base/pool.h", True), ("cli", "core/tables.h", True),
        ("hooks/shim", "core/tables.h", True), ("hooks/export", "hooks/region/saver.h", True),
        ("core", "core/transition/transition.h", True), ("core/transition", "core/tables.h", False),
        ("predict/llm", "predict/replay/x.h", True),
    ]
    wrong = [case for case in cases if climbs(case[0], case[1]) != case[2]]
    assert circles({"a": ["b"], "b": []}) and not circles({"b": [], "a": ["b", "b/x.h"]})
    assert room_of("hooks/shim/abi.c") == "hooks/shim" and room_of("elsewhere/x.c") is None
    return wrong


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    if sys.argv[1] == "--self":
        wrong = check_itself()
        for case in wrong:
            print(f"judged wrongly: {case}")
        return 1 if wrong else 0
    source = Path(sys.argv[1]).resolve()
    seen, faults = check(source)
    faults += types_of_two_rooms(source)
    for fault in faults:
        print(fault)
    print(f"{seen} includes, {len(faults)} faults")
    return 1 if faults or seen < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
