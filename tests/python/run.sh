#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs the Python package into a fresh virtual environment, from the root of the repository and
# from python, and runs its tests there. Exits 77 where that cannot be tried.
# usage: run.sh PYTHON BUILD_DIR SOURCE_DIR [CUDA_FAKE [CUDART_FAKE [NCCL_FAKE]]], paths of libraries
set -euo pipefail
python=$1 build=$2 source=$3
export RVL_TEST_CUDA_FAKE=${4-} RVL_TEST_CUDART_FAKE=${5-} RVL_TEST_NCCL_FAKE=${6-}
venv=$build/python/venv
pip_s=150 # at most, where an index takes calls and does not answer

skip() {
    echo "SKIP: $1"
    exit 77
}

unset RVL_LIBRARY_DIR PYTHONPATH PYTHONHOME LD_PRELOAD REVEILLE_AS_TORCH_MEMORY_SAVER
export PIP_DISABLE_PIP_VERSION_CHECK=1
rm -rf "$venv"
mkdir -p "$build/python"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' ||
    skip "$python is older than Python 3.9"
"$python" -m venv "$venv" ||
    skip "$python makes no virtual environment with pip: apt-get install python3-venv"
"$venv/bin/python" -m pip --version || skip "$python has no pip: apt-get install python3-pip"
timeout "$pip_s" "$venv/bin/python" -m pip install --quiet --retries 1 --timeout 20 \
    'scikit-build-core>=0.11' 'pytest>=7' ||
    skip "pip cannot get scikit-build-core and pytest: no package index answers"
timeout "$pip_s" "$venv/bin/python" -m pip install --quiet --retries 1 --timeout 20 \
    'prometheus_client>=0.19' ||
    echo "pip cannot get prometheus_client: the tests of reveille.prometheus are skipped"

# One build folder for both: the second finds everything built.
for from in "$source/python" "$source"; do
    "$venv/bin/python" -m pip install --quiet --no-build-isolation --no-deps --force-reinstall \
        --config-settings=build-dir="$build/python/build" "$from"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$venv/bin/python" -B -m pytest -q -p no:cacheprovider -c "$source/pyproject.toml" \
    "$source/tests/python"
