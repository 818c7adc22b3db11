#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What engines find out about their KV cache is printed and written: engines.py COMMAND.

vLLM runs in tests/simcuda/vllm_capacity.py. Here, packages with its name and SGLang's have only what is followed: a vLLM engine without
its own GPU, for two workers with different layers, and two ranks of SGLang.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

CORE = """
from types import SimpleNamespace as Some

def get_kv_cache_configs(vllm_config, specs, available):
    group = Some(layer_names=["a"])
    tensors = lambda layers: [Some(size=BLOCKS * 4096) for _ in range(layers)]
    return [Some(num_blocks=BLOCKS, kv_cache_groups=GROUPS * [group], kv_cache_tensors=tensors(layers)) for layers in (3, 2)]

class EngineCore:
    def __init__(self, vllm_config):
        config = self._initialize_kv_caches(vllm_config)
        assert config.num_blocks == BLOCKS

    def _initialize_kv_caches(self, vllm_config):
        configs = get_kv_cache_configs(vllm_config, [], [])
        assert [len(each.kv_cache_tensors) for each in configs] == [3, 2]
        cache = vllm_config.cache_config
        cache.num_gpu_blocks = configs[0].num_blocks
        if TOKENS:
            cache.kv_cache_size_tokens = TOKENS
        return configs[0]
"""
SCHEDULER = """
from types import SimpleNamespace as Some

class Scheduler:
    def __init__(self, rank):
        self.tp_group, self.page_size, self.max_total_num_tokens = Some(rank_in_group=rank), 64, 7042
        pool = Some(get_kv_size_bytes=lambda: SIZE)
        self.token_to_kv_pool_allocator = Some(get_kvcache=lambda: pool)
"""
VLLM = """
from types import SimpleNamespace as Some
from vllm.v1.engine.core import EngineCore
for _ in range({engines}):
    EngineCore(Some(cache_config=Some(block_size=16)))
"""
SGLANG = """
from sglang.srt.managers.scheduler import Scheduler
Scheduler(0)
Scheduler(1)
"""
USE = "import ctypes; assert ctypes.CDLL('libcudart.so.13').cudaFree(None) == 0\n"


def check(got, expected, what):
    assert got == expected, f"{what}: {got}, expected {expected}"


def module(folder, name, text):
    path = folder.joinpath(*name.split("."))
    path.parent.mkdir(parents=True, exist_ok=True)
    for each in [path.parent, *path.parent.parents]:
        if each == folder:
            break
        (each / "__init__.py").touch()
    path.with_suffix(".py").write_text(text)


def run(command, folder, program):
    written, marked = folder / "run.json", folder / "run.md"
    done = subprocess.run(
        [command, "run", "--device", "h100-80g", f"--json={written}", f"--markdown={marked}", "--", sys.executable, "-B", "-c", program],
        env=dict(os.environ, PYTHONPATH=str(folder)),
        capture_output=True,
        text=True,
    )
    check(done.returncode, 0, done.stderr)
    lines = [each for each in done.stdout.splitlines() if each.startswith("KV cache")]
    marked = [each[2:].replace("\\", "") for each in marked.read_text().splitlines() if each.startswith("- KV cache")]
    check(marked, lines, "Markdown")
    return lines, json.loads(written.read_text()).get("engines"), done


def of_vllm(command, folder, engines, groups, told, tokens):
    module(folder, "vllm.v1.engine.core", f"BLOCKS, GROUPS, TOKENS = 443, {groups}, {told}\n{CORE}")
    lines, found, _ = run(command, folder, VLLM.format(engines=engines) + USE)
    size = 443 * 4096 * 3
    known = {"engine": "vLLM", "count": engines, "kv_cache_tokens": tokens, "kv_cache_blocks": 443, "block_tokens": 16,
             "kv_cache_bytes": size, "option": f"--kv-cache-memory-bytes {size}"}
    check(found, [known], "vLLM's KV cache")
    who = "vLLM" if engines == 1 else f"each of {engines} engines of vLLM"
    check(lines, [f"KV cache of {who}: {tokens} tokens in 443 blocks of 16, 5.2 MiB on a GPU; the same by --kv-cache-memory-bytes {size}"], "line")


def of_sglang(command, folder, size, size_bytes):
    module(folder, "sglang.srt.managers.scheduler", f"SIZE = {size}\n{SCHEDULER}")
    lines, found, done = run(command, folder, SGLANG + USE)
    known = {"engine": "SGLang", "count": 1, "kv_cache_tokens": 7042, "kv_cache_blocks": 110, "block_tokens": 64,
             "kv_cache_bytes": size_bytes or None, "option": "--max-total-tokens 7042"}
    check(found, [known], f"SGLang's KV cache: {done.stderr}")
    room = f", {size_bytes // 1024}.0 KiB on a GPU" if size_bytes else ""
    check(lines, [f"KV cache of SGLang: 7042 tokens in 110 blocks of 64{room}; the same by --max-total-tokens 7042"], "line")


def gate(command, folder, program, kv_tokens, status, text):
    """`reveille check` with `kv_tokens`: it prints this text about the run on a terminal, in Markdown, in JUnit and on GitHub."""
    module(folder, "vllm.v1.engine.core", f"BLOCKS, GROUPS, TOKENS = 443, 1, 7080\n{CORE}")
    check_of = {"name": "engine", "command": [sys.executable, "-B", "-c", program], "devices": "h100-80g", "kv_tokens": kv_tokens}
    (folder / "c.json").write_text(json.dumps({"schema": 1, "checks": [check_of]}))
    marked, junit = folder / "c.md", folder / "c.xml"
    done = subprocess.run([command, "check", f"--markdown={marked}", f"--junit={junit}", "--github", folder / "c.json"],
                          env=dict(os.environ, PYTHONPATH=str(folder)), capture_output=True, text=True)  # fmt: skip
    check(done.returncode, status, done.stderr)
    fits = "  engine on h100-80g: fits, with 78.7 GiB to spare\n"
    check(fits in done.stdout, True, done.stdout)
    size = 443 * 4096 * 3
    told = f"KV cache of vLLM: 7080 tokens in 443 blocks of 16, 5.2 MiB on a GPU; the same by --kv-cache-memory-bytes {size}"
    check(f"  engine on h100-80g: {told}\n" in done.stdout, "EngineCore" in program, done.stdout)
    check(told in marked.read_text().replace("\\", ""), "EngineCore" in program, marked.read_text())
    check("1 stage, " + ("0" if status == 0 else "1") + " failed\n" in done.stdout, True, done.stdout)
    check(f"  engine on h100-80g: KV CACHE TOO SMALL: {text}" in done.stdout, status != 0, done.stdout)
    for where in marked.read_text().replace("\\", ""), junit.read_text().replace("&#34;", '"'), done.stdout.replace("KV CACHE TOO SMALL: ", ""):
        check(text in where, status != 0, where)
    check("::error file=" in done.stdout, status != 0, done.stdout)


def main(command):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        of_vllm(command, folder, 1, 1, 7080, 7080)
        of_vllm(command, folder, 2, 1, None, 443 * 16)
        of_vllm(command, folder, 1, 2, None, 221 * 16)
        of_sglang(command, folder, "(4096, 8192)", 12288)
        of_sglang(command, folder, "3072", 3072)
        of_sglang(command, folder, "(0, 0)", 0)

        gate(command, folder, VLLM.format(engines=1) + USE, 7080, 0, "fewer than")
        gate(command, folder, VLLM.format(engines=1) + USE, 7081, 3, 'the KV cache has room for 7080 tokens, fewer than "kv_tokens", 7081')
        gate(command, folder, USE, 1, 3, 'no engine has said how large its KV cache is, and "kv_tokens" is 1')

        lines, found, _ = run(command, folder, USE)
        check((lines, found), ([], None), "a program without an engine")
        module(folder, "vllm.v1.engine.core", "")
        lines, found, done = run(command, folder, "import vllm.v1.engine.core\n" + USE)
        check((lines, found), ([], None), "a vLLM that has none of this")
        check("reveille: vLLM's KV cache is not told of: AttributeError" in done.stderr, True, done.stderr)

        # Reporting a KV cache does not count as using a GPU.
        module(folder, "vllm.v1.engine.core", f"BLOCKS, GROUPS, TOKENS = 443, 1, None\n{CORE}")
        done = subprocess.run([command, "run", "--", sys.executable, "-B", "-c", VLLM.format(engines=1)],
                              env=dict(os.environ, PYTHONPATH=name), capture_output=True, text=True)
        check(done.returncode, 2, done.stderr)
        check("no process of the command has used CUDA" in done.stderr, True, done.stderr)
    print("KV caches of engines are told of")


if __name__ == "__main__":
    main(*sys.argv[1:])
