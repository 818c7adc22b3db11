# SPDX-License-Identifier: MIT
"""Looks into the wheel that is shipped: its files, its tag, what a package index would show of it.

usage: wheel_contents.py WHEEL
"""

from __future__ import annotations

import email
import re
import sys
import zipfile

LARGEST_BYTES = 4 << 20
MUST_HAVE = [
    r"reveille/__init__\.py",
    r"reveille/_headers\.py",
    r"reveille/bin/reveille",
    r"reveille/lib/libreveille\.so\.0",
    r"reveille/lib/libreveille-replay\.so\.0",
    r"reveille/lib/libreveille-preload\.so",
    r"reveille/lib/libreveille-torch\.so",
    r"reveille/lib/reveille-cuda/libreveille-find\.so",
    r"reveille/lib/reveille-cuda/libcuda\.so\.1",
    r"reveille/lib/reveille-cuda/libcudart\.so\.12",
    r"reveille/lib/reveille-cuda/libcudart\.so\.13",
    r"reveille/lib/reveille-cuda/libcublas\.so\.12",
    r"reveille/lib/reveille-cuda/libcublas\.so\.13",
    r"reveille/lib/reveille-cuda/libcublasLt\.so\.12",
    r"reveille/lib/reveille-cuda/libcublasLt\.so\.13",
    r"reveille/lib/reveille-cuda/libcudnn\.so\.9",
    r"reveille/lib/reveille-cuda/libcufft\.so\.11",
    r"reveille/lib/reveille-cuda/libcufft\.so\.12",
    r"reveille/lib/reveille-cuda/libcusolver\.so\.11",
    r"reveille/lib/reveille-cuda/libcusolver\.so\.12",
    r"reveille/lib/reveille-cuda/libcusparse\.so\.12",
    r"reveille/lib/reveille-cuda/libnccl\.so\.2",
    r"reveille/lib/reveille-cuda/libnvidia-ml\.so\.1",
    r"reveille/lib/reveille-cuda/python/sitecustomize\.py",
    r"reveille/alias/torch_memory_saver_hook_mode_preload\.abi3\.so",
    r"reveille/licences/lib(jansson|zstd|lz4|deflate|uring|tomlplusplus)",
    r"reveille\.pth",
    r"reveille_gpu-[0-9.]+\.dist-info/licenses/LICENSE",
]
MUST_NOT_HAVE = [r"libjansson.*\.so", r"lib(zstd|lz4).*\.so", r"reveille\.libs/", r"\.h$"]


def check_files(names: list[str]) -> list[str]:
    wrong = [f"lacks {one}" for one in MUST_HAVE if not any(re.fullmatch(one, n) for n in names)]
    for one in MUST_NOT_HAVE:
        wrong += [f"has {name}" for name in names if re.search(one, name)]
    return wrong


def check_metadata(text: str) -> list[str]:
    wrong = []
    about = email.message_from_string(text)
    for key, value in [
        ("Name", "reveille-gpu"),
        ("License-Expression", "MIT"),
        ("License-File", "LICENSE"),
        ("Description-Content-Type", "text/markdown"),
        ("Requires-Python", ">=3.9"),
    ]:
        if about[key] != value:
            wrong.append(f"{key} is {about[key]!r}, not {value!r}")
    readme = about.get_payload()
    for target in re.findall(r"\]\(([^)]*)\)", readme):
        if not re.match(r"https?://|#", target):
            wrong.append(f"its readme has a link that leads nowhere: {target}")
    if "pip install" not in readme or len(readme) < 500:
        wrong.append("its readme is not the package's")
    return wrong


def check_readme_shows(text: str) -> list[str]:
    from readme_renderer import markdown  # what package indexes use

    page = markdown.render(email.message_from_string(text).get_payload())
    return [] if page and "<h1" in page else ["its readme cannot be shown"]


def check_machine(wheel: zipfile.ZipFile, path: str) -> list[str]:
    """Every program and library is for the processor that the wheel's name says."""
    number = {"x86_64": 62, "aarch64": 183}[re.search(r"(x86_64|aarch64)\.whl$", path)[1]]
    heads = {name: wheel.open(name).read(20) for name in wheel.namelist()}
    elves = {name: int.from_bytes(head[18:20], "little") for name, head in heads.items() if head[:4] == b"\x7fELF"}
    return [f"{name} is for processor {its}, not {number}" for name, its in elves.items() if its != number] or (
        [] if len(elves) > 10 else [f"has {len(elves)} programs and libraries"])  # fmt: skip


def main() -> int:
    path = sys.argv[1]
    with zipfile.ZipFile(path) as wheel:
        sizes = {one.filename: one.compress_size for one in wheel.infolist()}
        (metadata,) = [n for n in sizes if n.endswith(".dist-info/METADATA")]
        text = wheel.read(metadata).decode()
        wrong = check_files(list(sizes)) + check_metadata(text) + check_readme_shows(text)
        wrong += check_machine(wheel, path)
    total = sum(sizes.values())
    if total > LARGEST_BYTES:
        wrong.append(f"has {total} bytes, more than {LARGEST_BYTES}")
    if not re.search(r"-py3-none-manylinux_[\w.]*_(x86_64|aarch64)\.whl$", path):
        wrong.append(f"its name has not the tag of every Python 3: {path}")
    for one in wrong:
        print(f"{path}: {one}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
