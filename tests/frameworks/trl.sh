#!/bin/bash
# SPDX-License-Identifier: MIT
# TRL's GRPO on a simulated GPU, unmodified: two whole steps, and a table of TRL's own phases.
#
#   tests/frameworks/trl.sh REVEILLE [VERSION [vllm]]      default: 1.16.0, without an engine
#
# With vllm, a vLLM engine is in the same process, and sleeps while the trainer works. It uses verl.sh's environment (REVEILLE_VERL,
# default ~/.cache/reveille-verl), with TRL in addition. Installs TRL and PyTorch into a separate environment. Not part of the test suite.
# Exits with 77 if it cannot be installed.
# REVEILLE_TORCH: the environment that has PyTorch (tests/simcuda/torch.sh); default: ~/.cache/reveille-torch
# REVEILLE_TRL: the environment for TRL; default: ~/.cache/reveille-trl
set -euo pipefail
reveille=$1
version=${2-1.16.0}
source=$(cd "$(dirname "$0")/../.." && pwd)
torch=${REVEILLE_TORCH-$HOME/.cache/reveille-torch}
environment=${REVEILLE_TRL-$HOME/.cache/reveille-trl}

skip() {
    echo "SKIP: $*"
    exit 77
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

run() { # PYTHON [vllm]
    local python=$1
    shift
    "$reveille" run --device h100-80g --stages GRPOTrainer. --json="$folder/run.json" -- \
        "$python" "$source/tests/frameworks/trl_grpo.py" "$folder/said.json" "$@"
    "$python" "$source/tests/frameworks/trl_check.py" "$folder/said.json" "$folder/run.json" "$@"
}

if [ "${3-}" = vllm ]; then
    python=${REVEILLE_VERL-$HOME/.cache/reveille-verl}/bin/python
    "$python" -c "import vllm" 2>/dev/null || skip "there is no vLLM beside $python: run tests/frameworks/verl.sh first"
    timeout 300 "$python" -m pip install --quiet --no-deps --target "$folder/trl" "trl==$version" ||
        skip "pip could not install trl==$version"
    PYTHONPATH=$folder/trl VLLM_USE_FLASHINFER_SAMPLER=0 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 run "$python" vllm
    exit
fi
[ -x "$torch/bin/python" ] || skip "there is no PyTorch in $torch: run tests/simcuda/torch.sh first"
python=$environment/bin/python
if ! "$python" -c "import trl; assert trl.__version__ == '$version'" 2>/dev/null; then
    "$torch/bin/python" -m venv "$environment" || skip "there is no venv"
    packages=$("$torch/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    echo "$packages" >"$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/reveille-torch.pth"
    timeout 900 "$environment/bin/pip" install --quiet "trl==$version" || skip "pip could not install trl==$version"
fi
run "$python"
