#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# All that is to be known of several cards, in one call of some minutes: sections in the order of their value, each with a time limit.
# Nothing keeps a later section from running, and a call that is cut loses only what it was at.
# usage: two_cards.sh OUT LIBRARY_DIR SECONDS [SECTION...]
#   LIBRARY_DIR  a build folder, or one that has libreveille.so.0, libreveille-replay.so.0, libreveille-preload.so, libreveille-torch.so,
#                _headers.py, reveille and bench_gpu
#   SECONDS      for everything; a section gets what is left, and none begins with less than 10
#   SECTION      default: all of them, in the order at the end of this file
# From the environment:
#   NCCL         a libnccl.so.2 of 2.29.7 or newer, for what suspends communicators; otherwise PyTorch's is used
#   PEER         torch_memory_saver: a folder with its package, its test/ and its library, for "bench" and "peer"
#   RANKS        cards to use (all that PyTorch sees)
#   CASES        of checkpoint_ranks.py, for "checkpoint" (all)
#   SMALL=1      sizes for simulated GPUs: reveille run --gpus 2 --device h100-80g --keep-contents 128MiB -- two_cards.sh ...
# OUT gets results.jsonl, a line for each fact as it is learned; two_cards.log, all that was printed; and card.json of calibrate.
set -uo pipefail

# Starts this for every rank, and ends with the first failure: torchrun's own children would outlive a time limit.
if [ "${1-}" = --ranks ]; then
    export WORLD_SIZE=$2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + RANDOM % 9000))
    shift 2
    started=()
    for ((rank = 0; rank < WORLD_SIZE; rank++)); do
        RANK=$rank LOCAL_RANK=$rank "$@" &
        started+=($!)
    done
    status=0
    for each in "${started[@]}"; do wait "$each" || status=$?; done
    exit $status
fi
[ $# -ge 3 ] || { sed -n '3,18s/^# \{0,1\}//p' "$0" >&2; exit 2; }

begun=$SECONDS
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
mkdir -p "$1" || exit 2
out=$(cd "$1" && pwd)
given=$(cd "$2" && pwd) || exit 2
budget_s=$3
shift 3
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$out/two_cards.log results=$out/results.jsonl
: >"$log"
: >"$results"
failed=0

find_file() { find -L "$given" -maxdepth 3 -name "$1" -not -type d 2>/dev/null | head -n 1; }
for name in libreveille.so.0 libreveille-replay.so.0 libreveille-preload.so libreveille-torch.so _headers.py reveille bench_gpu; do
    file=$(find_file "$name")
    [ -n "$file" ] && ln -s "$file" "$work/$name" || echo "two_cards.sh: $given has no $name" | tee -a "$log"
done
# NVLink multicast stays off: it can leave a shared host's GPUs unusable.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
export OUT=$work RVL_LIBRARY_DIR=$work PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=$source/python:$here${PYTHONPATH:+:$PYTHONPATH}
export LD_LIBRARY_PATH=$work:$given${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
RANKS=${RANKS:-$("$python" -c 'import torch; print(torch.cuda.device_count())' 2>>"$log")}
gib=16 cycles=3 nccl_cycles=50 store_gib=40 links=(cuda 16 4) bucket=(20)
works=(given_back_102x160MiB kept_102x160MiB kept_2000x2MiB kept_1x4GiB) bench=()
if [ -n "${SMALL-}" ]; then
    gib=0.25 cycles=2 nccl_cycles=2 store_gib=0.25 links=(sim 0.125 2) bucket=(3 2 1024 64) works=(kept_1x4GiB) bench=(--small)
fi
newer=()
[ -z "${NCCL-}" ] || newer=(env "LD_PRELOAD=$NCCL")

left() { echo $((budget_s - (SECONDS - begun))); }

tell() { # NAME HOW SECONDS
    printf '%-9s %s (%s s)\n' "$2" "$1" "$3" | tee -a "$log"
    printf '{"section":"%s","ended":"%s","s":%s}\n' "$1" "$2" "$3" >>"$results"
}

# part NAME SECONDS COMMAND...: one program. Lines of JSON that it prints are results, at once.
part() {
    local name=$1 limit=$2 start=$SECONDS status how
    shift 2
    [ "$limit" -le "$(left)" ] || limit=$(left)
    if [ "$limit" -lt 10 ]; then
        tell "$name" LEFT-OUT 0
        return
    fi
    printf '\n==== %s: %s\n' "$name" "$*" >>"$log"
    timeout -s KILL "$limit" "$@" 2>>"$log" | tee -a "$log" | grep --line-buffered '^{' >>"$results"
    status=${PIPESTATUS[0]}
    case $status in
    0) how=ok ;;
    77) how=skipped ;;
    137) how=TIMEOUT ;;
    *) how=FAILED:$status ;;
    esac
    tell "$name" "$how" $((SECONDS - start))
    [ $status = 0 ] || [ $status = 77 ] || failed=1
}

ranks() { # NAME SECONDS COMMAND...
    local name=$1 limit=$2
    shift 2
    part "$name" "$limit" "$here/two_cards.sh" --ranks "$RANKS" "$@"
}

# ---- Sections ----

machine() {
    {
        nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used --format=csv,noheader
        nvidia-smi topo -m
        uname -r
        nproc
        free -g
        date -u
    } >>"$log" 2>&1
    part machine 60 "$python" -c '
import json, os, torch
cards = [torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count())]
print(json.dumps({"part": "machine", "cards": [f"{c.name}, {c.total_memory >> 20} MiB" for c in cards], "torch": torch.__version__,
    "cores": os.cpu_count(), "nccl": torch.cuda.nccl.version(), "peer": [[i == j or torch.cuda.can_device_access_peer(i, j)
    for j in range(len(cards))] for i in range(len(cards))]}))'
}

# What the driver's checkpoint makes of connected processes.
checkpoint() {
    local some cases=("$python" "$source/bench/gpu/driver/checkpoint_ranks.py" --ranks "$RANKS" --errors "$log")
    read -ra some <<<"${CASES-}"
    NCCL_DEBUG=WARN part checkpoint 190 "${cases[@]}" --seconds 150 ${NCCL:+--nccl "$NCCL"} "${some[@]}"
}

# The same with PyTorch's own NCCL, if that is another.
checkpoint_own() {
    [ -n "${NCCL-}" ] || return 0
    local own
    own=$("$python" -c 'import glob, sys
print(*[f for p in sys.path for f in glob.glob(p + "/nvidia/nccl/lib/libnccl.so.2")][:1])')
    NCCL_DEBUG=WARN part checkpoint_own 60 "$python" "$source/bench/gpu/driver/checkpoint_ranks.py" --ranks "$RANKS" --errors "$log" \
        --seconds 40 ${own:+--nccl "$own"} nccl_alive nccl_alive_through_host nccl_alive_through_host_by_files nccl_alive_legacy_ipc nccl_destroyed
}

asleep() {
    ranks asleep 70 "${newer[@]}" "$python" "$here/asleep_ranks.py" asleep $gib $cycles communicators
    ranks asleep_preload 70 env "LD_PRELOAD=${NCCL:+$NCCL:}$work/libreveille-preload.so" "$python" "$here/asleep_ranks.py" asleep_preload $gib 2 communicators
    ranks asleep_destroyed 70 "$python" "$here/asleep_ranks.py" asleep_destroyed $gib $cycles destroyed
    [ -n "${REVEILLE_MACHINE-}" ] || # its NCCL has one way from card to card
        NCCL_P2P_DISABLE=1 ranks asleep_refused 40 "${newer[@]}" "$python" "$here/asleep_ranks.py" asleep_refused 0.25 1 refused
    REVEILLE_NCCL_VERSION=2.28.9 ranks asleep_refused_old 40 "$python" "$here/asleep_ranks.py" asleep_refused_old 0.25 1 refused
}

nccl() {
    CYCLES=$nccl_cycles ranks nccl 110 "${newer[@]}" "$python" "$here/communicators.py" nccl
    "$python" -c 'import json, sys
for path in sys.argv[1:]:
    print(json.dumps({"part": "communicators", **json.load(open(path))}))' "$work"/nccl_*.figures.json >>"$results" 2>>"$log"
}

killed() {
    part killed 100 "${newer[@]}" "$python" "$here/communicators_killed.py" killed "$RANKS"
}

links() {
    ranks links 60 "$python" "$here/links.py" "${links[@]}"
}

bucket() {
    ranks bucket 80 "$python" "$here/first_bucket.py" bucket "${bucket[@]}"
}

store() {
    local socket=$work/store.sock node
    "$work/reveille" store "$socket" >>"$log" 2>&1 &
    node=$!
    for _ in {1..100}; do [ -S "$socket" ] && break || sleep 0.05; done
    REVEILLE_STORE=$socket ranks store 110 "$python" "$here/store.py" cuda $store_gib 2
    kill "$node"
    wait "$node" 2>>"$log"
}

calibrate() {
    part calibrate 120 "$work/reveille" calibrate -o "$out/card.json"
}

bench() {
    local peer each subject
    peer=$(find -L "${PEER:-/nowhere}" -name 'torch_memory_saver_hook_mode_torch_cu13*.so' 2>/dev/null | head -n 1)
    for each in "${works[@]}"; do
        for subject in reveille ${peer:+peer}; do
            part "bench_${each}_$subject" 40 "$work/bench_gpu" "${bench[@]}" ${peer:+--peer "$peer"} --one "$each" "$subject"
        done
    done
}

# torch_memory_saver's own tests, on our libraries.
peer() {
    if [ -z "${PEER-}" ]; then
        tell peer skipped 0
        return 0
    fi
    mkdir -p "$work/peer"
    ONLY=suite_unmodified part peer 240 bash "$here/run.sh" "$work/peer" "$work" "$PEER"
    cat "$work"/peer/suite_unmodified.log >>"$log" 2>/dev/null
}

sections=(machine checkpoint asleep nccl killed links bucket checkpoint_own store bench calibrate peer)
for section in "${@:-${sections[@]}}"; do
    [[ " ${sections[*]} " == *" $section "* ]] || { echo "two_cards.sh: no section $section; there are ${sections[*]}"; exit 2; }
    $section
done
printf '{"part":"end","s":%s,"budget_s":%s}\n' $((SECONDS - begun)) "$budget_s" >>"$results"
exit $failed
