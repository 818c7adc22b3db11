#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# In the unpacked source archive, with PREFIX of conda-build.
set -euo pipefail
cmake -S . -B build-conda -G Ninja ${CMAKE_ARGS-} -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$PREFIX" \
    -DCMAKE_INSTALL_LIBDIR=lib -DRVL_BUILD_TESTS=OFF -DRVL_BUILD_BENCH=OFF
cmake --build build-conda
cmake --install build-conda
