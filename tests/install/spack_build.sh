#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs by Spack what scripts/release made, without CUDA and with it, and uses the command. This machine's compiler and libraries are
# Spack's externals, so that it builds nothing else but its compiler wrapper; a mirror in a folder stands for the addresses of archives.
# So is CUDA, as a cluster has it: CUDA_HOME (/usr/local/cuda). Where it has no headers, reveille+cuda is left out.
# Needs clingo in the Python that SPACK_PYTHON names (python3).
# usage: spack_build.sh SPACK PACKAGES WRAPPER RELEASE SOURCE_DIR
#     SPACK, PACKAGES, WRAPPER: checkouts of spack, spack-packages and compiler-wrapper; RELEASE: build/release-VERSION
set -Eeuo pipefail
trap 'echo "${0##*/}: line $LINENO: $BASH_COMMAND" >&2' ERR
spack=$(realpath "$1") packages=$(realpath "$2") wrapper=$(realpath "$3") release=$(realpath "$4") source=$(realpath "$5")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SPACK_DISABLE_LOCAL_CONFIG=1 SPACK_USER_CONFIG_PATH=$work/user SPACK_USER_CACHE_PATH=${SPACK_USER_CACHE_PATH-$work/cache} SPACK_PYTHON=${SPACK_PYTHON-$(command -v python3)}
"$SPACK_PYTHON" -c 'import clingo' || exit 1

repository=$work/repo/spack_repo/them
mkdir -p "$repository/packages/reveille" "$work/scope"
printf 'repo:\n  namespace: them\n  api: v2.0\n' >"$repository/repo.yaml"
cp "$release/recipes/spack/package.py" "$repository/packages/reveille/"

sum=$(sha256sum "$release"/reveille-*.tar.gz | cut -d' ' -f1)
mkdir -p "$work/mirror/_source-cache/archive/${sum:0:2}"
cp "$release"/reveille-*.tar.gz "$work/mirror/_source-cache/archive/${sum:0:2}/$sum.tar.gz"

# What is in a checkout is not packed as in the archive that Spack knows the sum of, so that one is installed without a check.
recipe=$packages/repos/spack_repo/builtin/packages/compiler_wrapper/package.py
read -r version known < <(sed -nE 's/^ *version\("([0-9.]+)", sha256="([0-9a-f]+)".*/\1 \2/p' "$recipe")
mkdir -p "$work/mirror/_source-cache/archive/${known:0:2}"
git -C "$wrapper" archive --prefix="compiler-wrapper-$version/" HEAD |
    gzip -n >"$work/mirror/_source-cache/archive/${known:0:2}/$known.tar.gz"

external() { # PACKAGE VERSION PREFIX [MORE]
    printf '  %s:\n    buildable: false\n    externals:\n    - {spec: "%s@%s %s", prefix: "%s"}\n' "$1" "$1" "$2" "${4-}" "$3"
}
library() { # PACKAGE DEBIAN'S [MORE]
    external "$1" "$(dpkg-query -Wf '${Version}' "$2" | sed -E 's/^[0-9]+://; s/[-+].*//')" /usr "${3-}"
}
cuda_home=${CUDA_HOME-/usr/local/cuda}
cuda=$(sed -nE 's/^#define CUDA_VERSION ([0-9]+)/\1/p' "$cuda_home/include/cuda.h" 2>/dev/null || true)
{
    echo "packages:"
    printf "  gcc:\n    externals:\n    - spec: gcc@%s languages:='c,c++'\n      prefix: /usr\n" "$(gcc -dumpfullversion)"
    printf '      extra_attributes: {compilers: {c: "%s", cxx: "%s"}}\n' "$(command -v gcc)" "$(command -v g++)"
    printf '  pkgconfig: {require: [pkg-config]}\n'
    library pkg-config pkg-config
    library cmake cmake
    library ninja ninja-build
    library jansson libjansson-dev
    library zstd libzstd-dev
    library lz4 liblz4-dev
    library libdeflate libdeflate-dev build_system=makefile # as Spack has that version
    library liburing liburing-dev
    library uthash uthash-dev
    library tomlplusplus libtomlplusplus-dev
    [ -z "$cuda" ] || external cuda $((cuda / 1000)).$((cuda % 1000 / 10)) "$(realpath "$cuda_home")"
} >"$work/scope/packages.yaml"
cat >"$work/scope/repos.yaml" <<YAML
repos::
  them: $repository
  builtin: $packages/repos/spack_repo/builtin
YAML
printf 'mirrors::\n  here: file://%s\n' "$work/mirror" >"$work/scope/mirrors.yaml"
printf 'config:\n  install_tree: {root: %s}\n  build_stage: [%s]\n  source_cache: %s\n  build_jobs: %s\n' \
    "$work/installed" "$work/stage" "$work/sources" "$(nproc)" >"$work/scope/config.yaml"

run() {
    "$spack/bin/spack" --config-scope "$work/scope" "$@"
}

install() { # SPEC or options of install
    run install --fail-fast "$@" >"$work/said" 2>&1 || {
        cat "$work/said" >&2
        exit 1
    }
}

run --version
install --no-checksum compiler-wrapper

check() { # VARIANT
    local prefix
    install "reveille$1"
    prefix=$(run location -i "reveille$1")
    "$prefix/bin/reveille" replay "$source/traces/qwen2.5-32b-tp2-h200.rvt" | grep -qx 'fits, with 7.5 GiB to spare'
    echo "reveille$1: installed by Spack, and the command answers"
}

check "~cuda"
if [ -z "$cuda" ]; then
    echo "SKIP: no CUDA headers in $cuda_home, for reveille+cuda"
    exit 0
fi
check "+cuda"
"$(run location -i reveille+cuda)/bin/reveille" run --device h200 -- python3 "$source/tests/bare/gpu_program.py" >"$work/said"
grep -qE '^device 0: h200, 139\.8 GiB; peak ' "$work/said" || {
    cat "$work/said" >&2
    exit 1
}
echo "reveille+cuda: a program runs on its simulated GPU"
