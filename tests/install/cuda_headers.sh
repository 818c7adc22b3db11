#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Where the CUDA headers are found: with pip's nvidia packages, if the CUDA Toolkit is not there; and
# what is said where they are nowhere.
# usage: cuda_headers.sh BUILD_DIR SOURCE_DIR CUDA_INCLUDE_DIR
set -euo pipefail
source=$2 include=$3
folder=$1/cuda-headers
unset CUDA_PATH PYTHONPATH

case $include in
*/nvidia/*/include | /usr/include*)
    echo "SKIP: the headers are in $include, which cannot be hidden"
    exit 77
    ;;
esac

configure() { # NAME: prints what is said
    cmake -S "$source" -B "$folder/$1" -G Ninja "-DCMAKE_IGNORE_PATH=$include" -DRVL_NVCC=OFF \
        -DRVL_NPM=OFF -DRVL_BUILD_TESTS=OFF 2>&1 | tr -s '\n ' ' '
}

expect() { # TEXT WHAT_WAS_SAID
    [[ $2 == *"$1"* ]] || {
        echo "expected: $1"
        echo "said: $2"
        exit 1
    }
}

rm -rf "$folder"
for package in cu13 cuda_runtime; do
    mkdir -p "$folder/$package-packages/nvidia/$package"
    ln -s "$include" "$folder/$package-packages/nvidia/$package/include"
    said=$(PYTHONPATH=$folder/$package-packages configure "with-$package")
    expect "CUDA headers: $folder/$package-packages/nvidia/$package/include" "$said"
    grep -q 'libreveille-preload.so' "$folder/with-$package/build.ninja"
done
mkdir -p "$folder/no-packages"
said=$(PYTHONPATH=$folder/no-packages configure without)
expect "cuda.h was not found. Left out: the CUDA backend, the hook libraries" "$said"
! grep -q 'libreveille-preload.so' "$folder/without/build.ninja"

# pip hides what a build says; one line reaches the terminal past it.
seen=$folder/terminal
export PYTHONPATH=$folder/no-packages
script -qec "cmake -S '$source' -B '$folder/pip' -G Ninja -DCMAKE_IGNORE_PATH='$include' -DRVL_NVCC=OFF \
    -DRVL_NPM=OFF -DRVL_BUILD_TESTS=OFF -DRVL_PYTHON=ON >'$folder/hidden' 2>&1" \
    /dev/null </dev/null >"$seen"
expect "reveille: cuda.h was not found: without real GPUs" "$(cat "$seen")"
expect "For all: pip install nvidia-cuda-runtime nvidia-cuda-crt" "$(cat "$seen")"
[ "$(wc -l <"$seen")" -eq 1 ]
