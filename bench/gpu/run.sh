#!/bin/bash
# SPDX-License-Identifier: MIT
# All that is to be known of a machine with a GPU, in one call, from programs that were built
# elsewhere: tests, then every measurement, then the table. A part that fails or hangs does not keep
# the others from running; the summary at the end, and the exit status, tell.
#
#     bench/gpu/run.sh DIRECTORY_OF_PROGRAMS OUTPUT_DIRECTORY [TEST...]
#
# The programs lie in that directory, or below it: bench_gpu, the tests named, and if they are to be
# used libcuda-costless.so with libcuda-fake.so, and torch_memory_saver*.so, the peer. The caller
# sets LD_LIBRARY_PATH. From the environment: BENCH_DISK, where backups on a disk are measured (the
# output directory), BENCH_DISK_GIB (8), BENCH_ARGS (--small, say).
set -u
if [ $# -lt 2 ]; then
    sed -n '3,13s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
programs=$1
out=$2
shift 2
mkdir -p "$out" || exit 1
here=$(dirname "$0")
read -ra bench_args <<<"${BENCH_ARGS:-}"
failed=0
: >"$out/summary.txt"
: >"$out/tests.log"
: >"$out/bench.log"

find_program() { # the first of that name
    find -L "$programs" -name "$1" -type f 2>/dev/null | head -n 1
}

tell() {
    echo "$*" | tee -a "$out/summary.txt"
}

# part NAME SECONDS COMMAND...: its status and time go into the summary.
part() {
    local name=$1 seconds=$2 begun=$SECONDS status
    shift 2
    timeout -k 5 "$seconds" "$@"
    status=$?
    case $status in
    0) tell "ok       $name ($((SECONDS - begun)) s)" ;;
    77) tell "skipped  $name" ;;
    124 | 137) tell "TIMEOUT  $name after $seconds s" ;;
    *) tell "FAILED   $name with $status ($((SECONDS - begun)) s)" ;;
    esac >&3
    [ $status = 0 ] || [ $status = 77 ] || failed=1
}
exec 3>&1

for test in "$@"; do
    echo "==== $test" >>"$out/tests.log"
    program=$(find_program "$test")
    part "$test" 120 "${program:-$test}" >>"$out/tests.log" 2>&1
done

bench=$(find_program bench_gpu)
bench=${bench:-bench_gpu}
peer=$(find_program 'torch_memory_saver*.so')
costless=$(find_program libcuda-costless.so)
part "bench_gpu" 400 "$bench" "${bench_args[@]}" ${peer:+--peer "$peer"} \
    >"$out/bench.jsonl" 2>>"$out/bench.log"
part "bench_gpu, disk" 200 "$bench" "${bench_args[@]}" --disk "${BENCH_DISK:-$out}" \
    --disk-gib "${BENCH_DISK_GIB:-8}" --one disk reveille >>"$out/bench.jsonl" 2>>"$out/bench.log"
if [ -n "$costless" ]; then
    RVL_CUDA_LIBRARY=$costless part "bench_gpu, on a driver that costs nothing" 60 \
        "$bench" --overhead --rounds 101 >"$out/costless.jsonl" 2>>"$out/bench.log"
else
    : >"$out/costless.jsonl"
fi
part "table" 30 python3 "$here/table.py" "$out/bench.jsonl" "$out/costless.jsonl" \
    >"$out/table.txt" 2>>"$out/bench.log"

if [ -s "$out/bench.log" ]; then
    tell "what was said meanwhile:"
    tail -n 40 "$out/bench.log" | tee -a "$out/summary.txt"
fi
cat "$out/table.txt"
exit $failed
