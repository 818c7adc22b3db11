# SPDX-License-Identifier: MIT
"""`python -m reveille`: reports the libraries, the driver, the devices and the hooks it found."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from . import _alias, _c, _fabric, _hooks
from ._context import Context
from ._options import profiles
from ._sizes import format_size
from .errors import ReveilleError


def driver_version() -> str | None:
    """CUDA version that the driver supports ("12.4"). None without a driver."""
    try:
        name = os.environ.get("RVL_CUDA_LIBRARY") or "libcuda.so.1"  # as in the C library
        function = ctypes.CDLL(name).cuDriverGetVersion
    except (OSError, AttributeError):
        return None
    number = ctypes.c_int()
    if function(ctypes.byref(number)) != 0:
        return None
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def _device(context: Context, device: Any, backend: str) -> dict[str, Any]:
    free, total = context.memory(device.index)
    fabric = _fabric.probe(device.index) if backend == "cuda" else "none"
    return {
        "index": device.index,
        "name": device.name,
        "free_bytes": free,
        "total_bytes": total,
        "fabric": fabric,
    }


def backend_facts(name: str) -> dict[str, Any]:
    """Facts about a backend: whether it can be used, why not, and its devices."""
    try:
        with Context(name) as context:
            devices = [_device(context, device, name) for device in context.devices]
        return {"name": name, "usable": True, "status": "RVL_OK", "why": "", "devices": devices}
    except ReveilleError as error:
        return {
            "name": name,
            "usable": False,
            "status": error.status_name,
            "why": error.message,
            "devices": [],
        }


def hook_facts() -> dict[str, Any]:
    """Where the hook libraries are, and whether this process has loaded them."""
    paths = {mode: _c.hook_library_path(mode) for mode in _hooks.MODES}
    return {
        "preload": str(paths["preload"]) if paths["preload"].exists() else None,
        "torch": str(paths["torch"]) if paths["torch"].exists() else None,
        "preloaded": _hooks.preloaded() is not None,
        "torch_memory_saver": str(_alias.FOLDER),
        "as_torch_memory_saver": _alias.wanted(),
    }


def facts() -> dict[str, Any]:
    """All facts to print."""
    return {
        "schema": 1,
        "version": _c.some_text(_c.core().rvl_version()),
        "library": str(_c.library_path()),
        "replay_library": str(_c.library_path("reveille-replay")),
        "driver": driver_version(),
        "hooks": hook_facts(),
        "backends": [backend_facts(name) for name in ("cuda", "sim")],
        "profiles": [profile.name for profile in profiles()],
    }


def _hook_lines(hooks: dict[str, Any]) -> list[str]:
    missing = "not built: the CUDA headers were missing"
    state = "in this process" if hooks["preloaded"] else "not in this process"
    stands_in = {True: "this package", False: "not this package", None: "not understood"}
    return [
        f"preload    {hooks['preload'] or missing}; {state}",
        f"torch      {hooks['torch'] or missing}",
        f"saver      torch_memory_saver is {stands_in[hooks['as_torch_memory_saver']]} "
        f"({_alias.VARIABLE})",
    ]


def _lines(found: dict[str, Any]) -> list[str]:
    lines = [
        f"reveille   {found['version']}",
        f"library    {found['library']}",
        f"driver     {'CUDA ' + found['driver'] if found['driver'] else 'none'}",
    ]
    for backend in found["backends"]:
        verdict = "usable" if backend["usable"] else backend["why"]
        lines.append(f"{backend['name']:<10} {verdict}")
        for device in backend["devices"]:
            sizes = f"{format_size(device['free_bytes'])} of {format_size(device['total_bytes'])}"
            lines.append(f"           device {device['index']}: {device['name']}, {sizes} free")
            if device["fabric"] != "none":
                lines.append(f"           device {device['index']}: sharing over the fabric: {device['fabric']}")
    lines += _hook_lines(found["hooks"])
    lines.append(f"simulates  {', '.join(found['profiles'])}")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the facts. Returns 0, even without a GPU, or 1 without the C libraries."""
    parser = argparse.ArgumentParser(
        prog="python -m reveille", description="Says what Reveille found on this machine."
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--torch-memory-saver",
        action="store_true",
        help="print the folder that stands in for torch_memory_saver, for PYTHONPATH",
    )
    options = parser.parse_args(arguments)
    if options.torch_memory_saver:
        print(_alias.FOLDER)
        return 0
    try:
        found = facts()
    except ImportError as error:
        print(f"reveille: {error}", file=sys.stderr)
        return 1
    print(json.dumps(found) if options.json else "\n".join(_lines(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
