# SPDX-License-Identifier: MIT
# What is needed, by purpose; sourced by the other scripts.
build_packages=(build-essential cmake ninja-build pkg-config python3
    libcmocka-dev libjansson-dev libzstd-dev libdeflate-dev uthash-dev libbsd-dev liburing-dev
    python3-venv python3-pip)
# The page of `reveille report` needs a library that npm fetches, `mpirun reveille plan` needs MPI, and
# `reveille check` reads TOML by toml++; everything else is built without them.
optional_packages=(libopenmpi-dev openmpi-bin libtomlplusplus-dev)
command -v npm >/dev/null || optional_packages+=(npm)
browser_packages=()
command -v chromium >/dev/null || browser_packages+=(chromium fonts-dejavu-core)
check_packages=(clang clang-format clang-tidy libclang-rt-14-dev gcovr)
