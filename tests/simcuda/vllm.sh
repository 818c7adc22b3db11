#!/bin/bash
# SPDX-License-Identifier: MIT
# vLLM on simulated GPUs. Installs it once (about 10 GB), builds the simulated libraries, and runs vllm_sleep.py in this folder: without
# and with CUDA graphs, on one GPU and with tensor parallelism on two; vllm_capacity.py, the KV cache that it finds room for;
# vllm_lengths.py; vllm_refusal.py, a wake-up without room; vllm_leaves.py, a sleep to nothing; and rl_engine.py, a step of reinforcement
# learning. Not part of the test suite: it takes about 30 minutes.
#
#   tests/simcuda/vllm.sh [VERSION [PART]...]      default: 0.33.0, and all of executor, sleep, capacity, lengths, refusal,
#   leaves, rl
#
# REVEILLE_VLLM: the environment to install into; default: ~/.cache/reveille-vllm/venv
set -euo pipefail
version=${1-0.33.0}
known="executor sleep capacity lengths refusal leaves rl"
parts=" ${*:2} "
for part in ${parts}; do
    [[ " $known " == *" $part "* ]] || { echo "vllm.sh: no part $part: there are $known" >&2 && exit 2; }
done
source=$(cd "$(dirname "$0")/../.." && pwd)
environment=${REVEILLE_VLLM-$HOME/.cache/reveille-vllm/venv}
build=$source/build/vllm
python=$environment/bin/python

# Its requirements without certifi's lower bound: 0.33.0 requires a release of certifi that some indexes lack. It is used to verify
# servers, which nothing here contacts.
if ! "$python" -c "import importlib.metadata as m; assert m.version('vllm') == '$version'" 2>/dev/null; then
    python3 -m venv "$environment"
    "$environment/bin/pip" install --quiet --upgrade pip
    wheel=$(mktemp -d)
    trap 'rm -r "$wheel"' EXIT
    PIP_FIND_LINKS='' "$environment/bin/pip" download --quiet --no-deps --dest "$wheel" "vllm===$version"
    unzip -p "$wheel"/vllm*.whl '*.dist-info/METADATA' | sed -n 's/^Requires-Dist: //p' | grep -v 'extra ==' |
        sed 's/^certifi.*/certifi/' >"$wheel/needs.txt"
    # pip may be configured with a folder or an index that has a build of PyTorch without CUDA.
    PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS='' "$environment/bin/pip" install --quiet -r "$wheel/needs.txt"
    "$environment/bin/pip" install --quiet --no-deps "$wheel"/vllm*.whl
fi
cmake -S "$source" -B "$build" -G Ninja -DRVL_BUILD_TESTS=OFF -DRVL_BUILD_BENCH=OFF >"$source/build/vllm.log"
cmake --build "$build" >>"$source/build/vllm.log"

# No network. vLLM's own sampler, since FlashInfer's is compiled with nvcc at its first use, which takes minutes.
export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_USE_FLASHINFER_SAMPLER=0
# The plugin as pip installs it, in a separate folder, so that vLLM's environment does not change.
site=$build/site
rm -rf "$site"
"$environment/bin/pip" install --quiet --no-deps --config-settings=build-dir="$build/site-build" --target "$site" "$source"
run() { # SCRIPT MODEL GPUS [OPTIONS]
    local script=$1 model=$2 gpus=$3
    shift 3
    # In the environment of reveille run, which adds to PYTHONPATH. Without that addition, nothing is computed, and the engine waits
    # forever for the number of its tokens.
    PYTHONPATH=$site timeout 900 "$build/cli/reveille" run --device h200 --gpus "$gpus" -- \
        "$python" "$source/tests/simcuda/$script.py" "$model" --gpus "$gpus" "$@"
}
wanted() { # PART
    [[ $parts == *" $1 "* || -z ${parts// /} ]]
}
if wanted executor; then
    timeout 300 env PYTHONPATH="$site" "$python" "$source/tests/simcuda/vllm_executor.py"
fi
if wanted sleep; then
    run vllm_sleep small 1
    run vllm_sleep small 1 --graphs -o "$build/cumem.json"
    run vllm_sleep small 1 --graphs --backend reveille --same-as "$build/cumem.json"
    run vllm_sleep small 2 --backend reveille
    run vllm_sleep small 2 --graphs --backend reveille --communicators
    run vllm_sleep small 2
    run vllm_sleep small 2 --graphs
    run vllm_sleep 7b 1 --graphs
fi
if wanted capacity; then
    timeout 1800 "$python" "$source/tests/simcuda/vllm_capacity.py" "$build/cli/reveille"
fi
if wanted lengths; then
    timeout 1800 "$python" "$source/tests/simcuda/vllm_lengths.py" "$build/cli/reveille"
fi
if wanted refusal; then
    run vllm_refusal small 1
    run vllm_refusal small 2
fi
if wanted leaves; then
    REVEILLE_AS_CUMEM=1 run vllm_leaves small 1
    REVEILLE_AS_CUMEM=1 run vllm_leaves small 1 --graphs
    REVEILLE_AS_CUMEM=1 run vllm_leaves 7b 1 --graphs
fi
if wanted rl; then
    timeout 1800 "$python" "$source/tests/simcuda/rl_engine.py" "$build/cli/reveille" "$python"
fi
