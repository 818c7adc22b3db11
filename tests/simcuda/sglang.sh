#!/bin/bash
# SPDX-License-Identifier: MIT
# SGLang on simulated GPUs, with Reveille in place of torch_memory_saver. Installs it once (about 11 GB), builds the simulated libraries
# (CuTe DSL's with its archive), and runs sglang_release.py in this folder. Not part of the test suite: it takes about 10 minutes, and
# twice as long the first time, while SGLang compiles kernels with nvcc.
#
#   tests/simcuda/sglang.sh [VERSION [short|page]]      default: 0.5.23
#
# short: only the first of the runs.
# page: instead runs the commands of docs/guides/adopt/sglang.md as written (tests/frameworks/adopt.py), in 10 minutes. They install this
# tree's package into the environment.
# REVEILLE_SGLANG: the environment to install into; default: ~/.cache/reveille-sglang/venv
set -euo pipefail
version=${1-0.5.23}
source=$(cd "$(dirname "$0")/../.." && pwd)
environment=${REVEILLE_SGLANG-$HOME/.cache/reveille-sglang/venv}
build=$source/build/sglang
python=$environment/bin/python

# pip may be configured with a folder or an index that has a build of PyTorch without CUDA.
install() {
    PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS='' "$environment/bin/pip" install --quiet "$@"
}
if ! "$python" -c "import importlib.metadata as m; assert m.version('sglang') == '$version'" 2>/dev/null; then
    python3 -m venv "$environment"
    install --upgrade pip
    install "sglang===$version"
fi
packages=$("$python" -c "import sysconfig; print(sysconfig.get_path('purelib'))")
. "$source/tests/simcuda/toolkit.sh"
export HF_HUB_OFFLINE=1 SGLANG_CUDA_COREDUMP_BEFORE_CRASH_WAIT_SECS=0
if [ "${2-}" = page ]; then
    make_toolkit "$python" "$build/cuda" "$packages/reveille/lib/reveille-cuda/libcuda.so.1"
    exec python3 "$source/tests/frameworks/adopt.py" "$python" sglang
fi

cmake -S "$source" -B "$build" -G Ninja -DRVL_BUILD_TESTS=OFF -DRVL_BUILD_BENCH=OFF \
    -DRVL_CUTE_ARCHIVE="$packages/nvidia_cutlass_dsl/cu13/lib/libcuda_dialect_runtime_static.a" >"$source/build/sglang.log"
cmake --build "$build" >>"$source/build/sglang.log"
make_toolkit "$python" "$build/cuda" "$build/simcuda/libcuda.so.1"
export REVEILLE_AS_TORCH_MEMORY_SAVER=1 RVL_LIBRARY_DIR=$build
run() { # GPUS ARGUMENTS
    local gpus=$1
    shift
    # Set in the command's environment, since reveille run also adds to PYTHONPATH.
    timeout 900 "$build/cli/reveille" run --device h200 --gpus "$gpus" -- bash -c \
        'PYTHONPATH=$1/python/reveille/alias:$1/python:$PYTHONPATH; export PYTHONPATH; shift; exec "$@"' \
        saver "$source" "$python" "$source/tests/simcuda/sglang_release.py" "$@"
}
run 1 stages --backup -o "$build/eager.json"
[ "${2-}" != short ] || exit 0
run 1 stages --graphs default -o "$build/default.json"
run 1 stages --graphs released -o "$build/graphs.json"
run 2 stages --gpus 2 --graphs released -o "$build/two.json"
REVEILLE_COMMUNICATORS=1 run 2 stages --gpus 2 --graphs released -o "$build/communicators.json"
run 2 instances -o "$build/instances.json"
