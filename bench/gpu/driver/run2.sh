#!/bin/bash
# SPDX-License-Identifier: MIT
# What NCCL takes, on the two (or more) GPUs that CUDA_VISIBLE_DEVICES names. run2.sh OUTDIR. At most 100 s.
. "${P:-$(dirname "$0")}/common.sh"; end=$(($(date +%s) + 92)); gpus=$(tr ',' '\n' <<< "$CUDA_VISIBLE_DEVICES" | grep -c .)
left() { local s=$((end - $(date +%s))); [ $s -gt ${1:-3} ]; }
{ nvidia-smi topo -m; nvidia-smi --query-gpu=index,memory.used --format=csv,noheader; env | grep -i "cuda\|nccl"; } > $W/000.err 2>&1
N() { left 8 && part 25 LD_LIBRARY_PATH=$L "${v[@]}" -- $PY $P/nccl.py "$@"; v=(); }
T2() { left 20 && part 50 "${v[@]}" -- $PY -m torch.distributed.run --master-port $((20000 + RANDOM % 20000)) --nproc-per-node 2 $P/torch2.py "$@"; v=(); }
v=(); N default
T2 ranks
for c in 1 4 8 16; do v=(NCCL_MAX_NCHANNELS=$c); N channels $c; done
[ $gpus -ge 4 ] && { v=(NRANKS=4); N four; v=(NRANKS=3); N three; }
v=(NCCL_CUMEM_ENABLE=0); N no cumem; v=(NCCL_BUFFSIZE=1048576); N buffers of 1 MiB; v=(NCCL_P2P_DISABLE=1); N no p2p
T2 eager
gather nccl; ls -la "$O"; rm -rf $W
