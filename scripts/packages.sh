# SPDX-License-Identifier: MIT
# Debian packages by purpose; sourced by the other scripts.

# What the libraries and the command are built with.
build_packages=(gcc libc6-dev cmake ninja-build pkg-config
    libjansson-dev libzstd-dev liblz4-dev libdeflate-dev uthash-dev liburing-dev)
# Checks in TOML: a C++ compiler and a header.
toml_packages=(g++ libtomlplusplus-dev)
# Brings CUDA's headers, where there is no CUDA Toolkit.
header_packages=("python3-venv=reveille run and reveille record, without a CUDA Toolkit")
# What the tests need beside it.
test_packages=(build-essential python3 python3-venv python3-pip libcmocka-dev libbsd-dev abigail-tools)
# What else is used, and what is missing without it: PACKAGE=WHAT.
optional_packages=(
    "libtomlplusplus-dev=checks of reveille check that are written in TOML")
command -v npm >/dev/null || optional_packages+=("npm=pages of reveille report")
# Tests of pages and completions; without them they are skipped.
manual_packages=(mandoc man-db groff zsh fish bash-completion)
browser_packages=()
command -v chromium >/dev/null || browser_packages+=(chromium fonts-dejavu-core)
# Brings LLVM's plugin for the linker (llvm-14-linker-tools), by which release-clang optimizes over files.
clang_packages=(clang)
check_packages=("${clang_packages[@]}" clang-format clang-tidy libclang-rt-14-dev gcovr)
bare_packages=(debootstrap iproute2)
# Keeps what was compiled.
cache_packages=(ccache)
# Tests of recipes, by what they are tried with: PACKAGE=WHAT.
recipe_packages=("patchelf=test of vcpkg's port" "buildah=test of the container's image")
