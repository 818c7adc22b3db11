#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds the port that scripts/release made by vcpkg's own CMake scripts, as x64-linux, and links a program with it. vcpkg's program
# itself is not needed: it only fetches, and this machine's libraries stand for its packages. Needs patchelf.
# usage: vcpkg_port.sh VCPKG RELEASE SOURCE_DIR      VCPKG: a checkout; RELEASE: build/release-VERSION
set -Eeuo pipefail
trap 'echo "${0##*/}: line $LINENO: $BASH_COMMAND" >&2' ERR
vcpkg=$(realpath "$1") release=$(realpath "$2") source=$(realpath "$3")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What vcpkg would have fetched and installed before.
mkdir -p "$work/downloads"
cp "$release"/reveille-*.tar.gz "$work/downloads/"
configs=
for port in vcpkg-cmake vcpkg-cmake-config; do
    mkdir -p "$work/installed/x64-linux/share/$port"
    cp "$vcpkg/ports/$port"/*.cmake "$work/installed/x64-linux/share/$port/"
    configs+=";$work/installed/x64-linux/share/$port/vcpkg-port-config.cmake"
done

cmake -DCMD=BUILD -DPORT=reveille "-DCURRENT_PORT_DIR=$release/recipes/vcpkg" -DFEATURES=core \
    -DTARGET_TRIPLET=x64-linux -D_HOST_TRIPLET=x64-linux "-DTARGET_TRIPLET_FILE=$vcpkg/triplets/x64-linux.cmake" \
    "-DVCPKG_ROOT_DIR=$vcpkg" "-DDOWNLOADS=$work/downloads" "-DBUILDTREES_DIR=$work/trees" "-DPACKAGES_DIR=$work/packages" \
    "-D_VCPKG_INSTALLED_DIR=$work/installed" "-DVCPKG_PORT_CONFIGS=${configs#;}" "-DVCPKG_CONCURRENCY=$(nproc)" \
    -DVCPKG_PLATFORM_TOOLSET=external -DVCPKG_BASE_VERSION=2026-05-27 "-DNINJA=$(command -v ninja)" -P "$vcpkg/scripts/ports.cmake"

package=$work/packages/reveille_x64-linux
"$package/tools/reveille/reveille" replay "$source/traces/qwen2.5-32b-tp2-h200.rvt" | grep -qx 'fits, with 7.5 GiB to spare'
for left in bin debug/bin debug/include debug/share; do # vcpkg accepts none of them
    [ ! -e "$package/$left" ]
done

mkdir "$work/user"
cat >"$work/user/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(user C)
find_package(Reveille REQUIRED)
add_executable(user user.c)
target_link_libraries(user PRIVATE Reveille::reveille)
CMAKE
cat >"$work/user/user.c" <<'C'
#include <stdio.h>
#include "reveille/reveille.h"
int main(void)
{
    rvl_context *gpu;
    return rvl_context_open("sim", NULL, &gpu) != RVL_OK || puts("opened") < 0 || rvl_context_close(gpu, NULL) != RVL_OK;
}
C
cmake -S "$work/user" -B "$work/user/build" -G Ninja -DCMAKE_BUILD_TYPE=Release "-DCMAKE_PREFIX_PATH=$package" >/dev/null
cmake --build "$work/user/build" >/dev/null
"$work/user/build/user" | grep -qx opened
echo "vcpkg's port builds, static, debug and release, and a program links it"
