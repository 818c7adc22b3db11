# SPDX-License-Identifier: MIT
# What both scripts share. Nobody else may use the GPUs meanwhile: what is in use on the whole device is read.
P=$(cd "${P:-$(dirname "$0")}" && pwd); export PYTHONUNBUFFERED=1 NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1 # NVLink multicast stays off: it can leave a shared host's GPUs unusable
PY=${PY:-python3}; O=$1; mkdir -p "$O"; W=$(mktemp -d); export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}
# The folders of CUDA's libraries that come with PyTorch.
L=$($PY - <<'PYEOF'
import glob, sys
print(":".join(d for p in sys.path for d in sorted(glob.glob(p + "/nvidia/*/lib"))) + ":/usr/local/cuda/lib64")
PYEOF
)
n=0
# part SECONDS VARIABLE=VALUE... -- WORDS...: one process; what it says goes to files that are put together at the end
part() {
  local s=$1; shift; n=$((n + 1)); local id=$(printf %03d $n) env=(); while [ "$1" != -- ]; do env+=("$1"); shift; done; shift
  env "${env[@]}" timeout -k 2 $s "$@" > $W/$id.out 2> $W/$id.err; local r=$?
  [ $r = 0 ] || echo "{\"part\":\"$*\",\"what\":\"ended\",\"status\":$r}" >> $W/$id.out
}
gather() {
  cat $W/*.out > "$O/$1.jsonl"
  for f in $W/*.err; do [ -s "$f" ] && { echo "== $f"; tail -c 1500 $f; }; done | head -c 400000 > "$O/$1.log"
}
# The code that is loaded, by nvcc.
build() {
  local size; mkdir -p $P/cubins
  for f in special g64 nested asserts; do nvcc -arch=sm_90 -cubin -o $P/cubins/$f.cubin $P/$f.cu; done
  for size in "m1 16 64" "m4 64 64" "m16 256 64" "mk2 1024 2"; do
    set -- $size; $PY $P/gen.py $2 $3 0 > $W/$1.ptx; ptxas -arch=sm_90 $W/$1.ptx -o $P/cubins/$1.cubin; done
  nvcc -arch=sm_90 -cudart shared -shared -Xcompiler -fPIC -o $P/libsmall.so $P/small.cu
} > /dev/null 2>&1
