#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs a wheel where there is neither compiler nor CUDA, and uses it: the command, simulated GPUs,
# the pytest plugin. Changes the system that it runs in: meant for the root of a bare system
# (tests/bare/run).
# usage: wheel_check.sh WHEEL SOURCE_DIR
set -Eeuo pipefail
trap 'echo "${0##*/}: line $LINENO: $BASH_COMMAND" >&2' ERR
wheel=$(realpath "$1") source=$(realpath "$2")
trace=$source/traces/qwen2.5-32b-tp2-h200.rvt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export DEBIAN_FRONTEND=noninteractive

fail() { # WHAT...
    echo "$*" >&2
    exit 1
}

apt-get install -y -qq --no-install-recommends python3-venv python3-pytest >"$work/log" 2>&1 ||
    fail "$(cat "$work/log")"
! command -v cc || fail "this system has a compiler: it shows nothing"
python3 -m venv --system-site-packages "$work/environment"
python=$work/environment/bin/python
# pip asks nobody: the wheel needs nothing.
"$python" -m pip install -q --no-index "$wheel"
cd "$work"

# The command.
"$work/environment/bin/reveille" replay "$trace" >replayed || fail "replay: status $?"
grep -q '^fits, with 7.5 GiB to spare$' replayed || fail "not the right replay"
"$work/environment/bin/reveille" record -o run.rvt true 2>log
grep -q "nothing was recorded" log || fail "record: $(cat log)"
"$work/environment/bin/reveille" run -- "$python" "$source/tests/bare/gpu_program.py" >log 2>&1 || fail "run: $(cat log)"
grep -q '^the GPU has 139.8 GiB, cuBLAS 13.1, cuBLAS of CUDA 12 12.8$' log || fail "run: $(cat log)"
"$work/environment/bin/reveille" report "$trace" -o page.html
grep -q uPlot page.html || fail "the page has no charts"

# Checks in TOML: the C++ file is in the wheel, its library inside.
printf 'schema = 1\n[[checks]]\nname = "peak"\ntrace = "%s"\n' "$trace" >check.toml
"$work/environment/bin/reveille" check check.toml >checked || fail "check: $(cat checked)"

# The package, simulated; what needs a driver says so and is there.
"$python" - <<'PY' || fail "the package does not work"
import ctypes, json, subprocess, sys
import reveille

with reveille.Context("sim") as gpu:
    weights = gpu.alloc("64MiB", "weights", backup="host")
    ctypes.memmove(weights, b"still here", 10)
    gpu.pause("weights")
    gpu.resume("weights")
    assert ctypes.string_at(weights, 10) == b"still here"
facts = json.loads(subprocess.run([sys.executable, "-m", "reveille", "--json"],
                                  check=True, capture_output=True).stdout)
print(json.dumps({key: facts[key] for key in ("library", "driver", "cuda") if key in facts}))
try:
    reveille.Context("cuda")
except reveille.NoDriver as error:
    assert "libcuda.so.1" in str(error), error
else:
    raise SystemExit("a driver where there is none")
PY

# The pytest plugin is found by itself, passes what fits and fails what does not.
cat >test_fits.py <<'PY'
import pytest


@pytest.mark.reveille_sim(devices="80GiB")
def test_fits(reveille_sim):
    reveille_sim.stage("rollout")
    reveille_sim.alloc("60GiB", "kv_cache")
    reveille_sim.assert_peak("rollout", at_most="64GiB")


@pytest.mark.reveille_sim(devices="80GiB")
def test_does_not(reveille_sim):
    reveille_sim.stage("rollout")
    reveille_sim.alloc("70GiB", "kv_cache")
    reveille_sim.assert_peak("rollout", at_most="64GiB")
PY
"$python" -m pytest -q -p no:cacheprovider test_fits.py >tested && fail "$(cat tested)"
grep -q '1 failed, 1 passed' tested || fail "$(cat tested)"

echo "wheel: $(getconf GNU_LIBC_VERSION), Python $("$python" -c 'import platform as p; print(p.python_version())'), all but the driver works"
