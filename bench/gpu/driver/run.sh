#!/bin/bash
# SPDX-License-Identifier: MIT
# What the driver takes, part by part, on one GPU. run.sh OUTDIR. About 150 s; every process ends before second 190.
. "${P:-$(dirname "$0")}/common.sh"; export TURN=$W/turn; : > $TURN
end=$(($(date +%s) + ${LIMIT:-190})); rest() { echo $((end - $(date +%s))); }
build
{ nvidia-smi --query-gpu=name,driver_version,memory.used --format=csv,noheader; uname -r; date -u; env | grep -i "cuda\|nccl\|torch"; } > $W/000.err 2>&1
C() { [ $(rest) -gt 3 ] && part 25 LD_LIBRARY_PATH=$L "${v[@]}" -- $PY $P/probe.py "$@"; v=(); }
v=(); pids=()
# T NAME WORDS...: PyTorch, in the background; the card is one process's at a time
T() { n=$((n + 1)); local r=$(rest); if [ $r -gt 8 ]; then ( n=$((n - 1)); part $r "${v[@]}" -- $PY $P/steps.py "$@" ) & pids+=($!); fi; v=(); if [ -n "$SERIAL" ]; then wait; else sleep 0.3; fi; }
T ops; T sft each; T gen each; T conv each
C ctx_driver; C ctx_runtime; v=(CUDA_MODULE_LOADING=EAGER); C ctx_runtime; C small; v=(CUDA_MODULE_LOADING=EAGER); C small
C special; C assert_module; for k in empty asserted l64 l512 l1024 l4096 prints mallocs; do C first_launch $k; done
C local_up; C limit_up; C copies; C blas create; C blas bf16 workspace; C blas bf16
for m in "m1 16 64" "m4 64 64" "m16 256 64" "mk2 1024 2"; do C modules $m; done
v=(CUDA_MODULE_LOADING=EAGER); C modules m4 64 64; v=(CUDA_MODULE_LOADING=EAGER); C modules m16 256 64; C modules_many
for t in fp32 fp16 fp64; do C blas $t workspace; done
for k in flash efficient math cudnn mm conv normal,fill,add,sum add,normal bmm,mm backward; do T first $k; done
T sft; T pools
v=(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True); T ops
v=(CUDA_MODULE_LOADING=EAGER); T eager
wait "${pids[@]}"
gather driver; ls -la "$O"; rm -rf $W
