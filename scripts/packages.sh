# SPDX-License-Identifier: MIT
# What is needed, by purpose; sourced by the other scripts.
build_packages=(build-essential cmake ninja-build pkg-config python3
    libcmocka-dev libjansson-dev libzstd-dev uthash-dev libbsd-dev liburing-dev)
check_packages=(clang clang-format clang-tidy libclang-rt-14-dev gcovr)
