#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# On a machine with a GPU and PyTorch: torch_memory_saver's own tests with Reveille's libraries, and
# programs of ours. Results, logs and summary.json go to OUT; the exit status is 0 if all passed.
# usage: run.sh OUT LIBRARY_DIR [PEER]
#   LIBRARY_DIR  a build folder, or one that has libreveille.so.0, libreveille-replay.so.0,
#                libreveille-preload.so, libreveille-torch.so and _headers.py
#   PEER         torch_memory_saver: a checkout of its repository, with the folder test/. Its Python
#                package is taken from there, and its own libraries are not used. Left out: its tests
#                are not run
#   SCALE        (variable) of examples/rl_step, 1.0 for an H200; 0 leaves it out
#   ONLY         (variable) an extended regular expression: the programs to run
# Programs run in OUT, so that nothing is written beside the sources.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
mkdir -p "$1" || exit 2
out=$(cd "$1" && pwd)
given=$(cd "$2" && pwd) || exit 2
libraries=$out/lib
peer=${3:+$(cd "$3" && pwd)}
python=${PYTHON:-python3}
export OUT=$out RVL_LIBRARY_DIR=$libraries PYTHONDONTWRITEBYTECODE=1
ours=$source/python:$here
preload=$libraries/libreveille-preload.so
mkdir -p "$libraries"
for name in libreveille.so.0 libreveille-replay.so.0 libreveille-preload.so libreveille-torch.so _headers.py; do
    file=$given/$name
    [ -e "$file" ] || file=$given/hooks/$name
    [ -e "$file" ] || { echo "run.sh: $given has no $name, nor has its folder hooks"; exit 2; }
    ln -sf "$file" "$libraries/$name"
done
touch "$out/statuses.txt" # what other calls ran there stays
cd "$out"

# program NAME COMMAND...: runs it, keeps its log and its exit status
program() {
    local name=$1
    shift
    [[ $name =~ ${ONLY:-.} ]] || return 0
    echo "== $name"
    rm -f "$out/$name.xml" "$out/$name.json"
    timeout "${LIMIT_S:-300}" "$@" >"$out/$name.log" 2>&1
    local status=$?
    sed -i "/^$name /d" "$out/statuses.txt"
    echo "$name $status" >>"$out/statuses.txt"
    grep -E '^(PASS|FAIL|SKIP)|^ +[A-Za-z_]+:? .*GiB|^      [A-Z][A-Za-z]+:|(passed|failed).* in ' \
        "$out/$name.log" | tail -n 40
    [ "$status" = 0 ] || tail -n 15 "$out/$name.log"
}

# ---- torch_memory_saver's own tests ----

# Its Python package, untouched, with links to our libraries where it looks for its own.
peer_tree() {
    rm -rf "$out/peer"
    mkdir -p "$out/peer"
    cp -r "$peer/torch_memory_saver" "$peer/test" "$out/peer/"
    for mode in preload torch; do
        for major in 12 13; do
            ln -s "$libraries/libreveille-$mode.so" \
                "$out/peer/torch_memory_saver/torch_memory_saver_hook_mode_${mode}_cu$major.abi3.so"
        done
    done
}

if [ -n "$peer" ]; then
    peer_tree
    tests=(test_examples.py test_utils.py test_configure_subprocess.py)
    (
        cd "$out/peer/test" &&
            PYTHONPATH=$out/peer LIMIT_S=580 program suite_unmodified "$python" -m pytest -q \
                -p no:cacheprovider --junit-xml="$out/suite_unmodified.xml" "${tests[@]}"
        # The same on reveille.torch_memory_saver, except for what reaches into the package's insides.
        cd "$out/peer/test" &&
            PYTHONPATH=$source/python/reveille/alias:$source/python LIMIT_S=580 \
                program suite_alias "$python" -m pytest -q -p no:cacheprovider \
                --deselect 'test_examples.py::test_cpu_backup[preload]' \
                --deselect 'test_examples.py::test_cpu_backup[torch]' \
                --junit-xml="$out/suite_alias.xml" test_examples.py
    )
fi

# ---- Our programs ----

export PYTHONPATH=$ours${PYTHONPATH:+:$PYTHONPATH} # `reveille run` has a folder there
program found "$python" -m reveille
program regions_torch "$python" "$here/regions.py" torch
program regions_preload env LD_PRELOAD="$preload" "$python" "$here/regions.py" preload
program poison env REVEILLE_POISON=1 "$python" "$here/poison.py"
program in_order "$python" "$here/in_order.py"
program ipc env LD_PRELOAD="$preload" "$python" "$here/ipc.py"
program recorded "$python" "$here/recorded.py"
program one_card "$python" -m torch.distributed.run --nproc-per-node 2 --master-port 29417 "$here/one_card.py"
devices=$("$python" -c 'import torch; print(torch.cuda.device_count())' 2>"$out/devices.log")
if [ "${devices:-0}" -gt 1 ]; then
    program two_devices_torch "$python" "$here/two_devices.py" torch
    program two_devices_preload env LD_PRELOAD="$preload" "$python" "$here/two_devices.py" preload
    if [ -z "${REVEILLE_MACHINE-}" ]; then # its sums are large, and in graphs: unknown on simulated GPUs
        ranks=("$python" -m torch.distributed.run --nproc-per-node "$devices" "$here/ranks.py")
        program ranks "${ranks[@]}" ranks
        program ranks_unregistered env NCCL_GRAPH_REGISTER=0 NCCL_LOCAL_REGISTER=0 "${ranks[@]}" ranks_unregistered
    fi
fi
if [ "${SCALE:=1.0}" != 0 ]; then
    step=$source/examples/rl_step/rl_step.py
    program rl_step "$python" "$step" -o "$out/rl_step" --scale "$SCALE"
    program rl_step_together "$python" "$step" -o "$out/rl_step_together" --scale "$SCALE" --together
    program rl_step_bucket_region "$python" "$step" -o "$out/rl_step_bucket_region" --scale 0.1 \
        --steps 2 --bucket-region
fi

"$python" "$here/summary.py" "$out"
