#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Sleep and wake on a machine with a GPU and PyTorch, in both hook modes; then the facts of the driver.
# usage: asleep.sh OUT LIBRARY_DIR [CYCLES [GIB...]]
#   LIBRARY_DIR  has libreveille.so.0, libreveille-preload.so, libreveille-torch.so and _headers.py, or is a build folder
# Every line of results is in OUT. The exit status is 0 if all passed.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
mkdir -p "$1" || exit 2
out=$(cd "$1" && pwd)
libraries=$(cd "$2" && pwd) || exit 2
cycles=${3:-3}
shift $(($# < 3 ? $# : 3))
python=${PYTHON:-python3}
export OUT=$out RVL_LIBRARY_DIR=$libraries PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONPATH=$source/python:$here
failed=0

program() { # NAME SECONDS COMMAND...
    local name=$1 seconds=$2
    shift 2
    echo "== $name"
    timeout -k 5 "$seconds" "$@" >"$out/$name.log" 2>&1
    local status=$?
    grep -E '^(PASS|FAIL|SKIP|FACT|\{)' "$out/$name.log"
    if [ $status != 0 ]; then
        failed=1
        echo "== $name ended with $status"
        tail -n 15 "$out/$name.log"
    fi
}

program asleep_torch 280 "$python" "$here/asleep.py" torch "$cycles" "$@"
program asleep_preload 120 env LD_PRELOAD="$libraries/libreveille-preload.so" "$python" "$here/asleep.py" preload "$cycles"
exit $failed
