#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs into an empty folder, then builds and runs a user's program against it both ways, compiles
# every public header alone, and looks at what the libraries need and export.
# usage: check.sh BUILD_DIR SOURCE_DIR C_COMPILER
set -euo pipefail
build=$1 source=$2 cc=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
trace=$source/traces/qwen2.5-32b-tp2-h200.rvt
expected="5 stages, fits: 1"

cmake --install "$build" --prefix "$prefix" >"$work/log"
libdir=$(dirname "$(find "$prefix" -name libreveille.so)")
export LD_LIBRARY_PATH=$libdir

# The installed .pc files name the configured prefix; a user installs to where they were built for.
export PKG_CONFIG_PATH=$libdir/pkgconfig
flags=$(pkg-config --define-variable=prefix="$prefix" --define-variable=libdir="$libdir" \
    --define-variable=includedir="$prefix/include" --cflags --libs reveille-replay reveille)
# shellcheck disable=SC2086
"$cc" -std=c11 "$source/tests/install/consumer.c" $flags -o "$work/by-pkg-config"
[ "$("$work/by-pkg-config" "$trace")" = "$expected" ]

cmake -S "$source/tests/install" -B "$work/cmake" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_C_COMPILER="$cc" >"$work/log"
cmake --build "$work/cmake" >"$work/log"
[ "$("$work/cmake/consumer" "$trace")" = "$expected" ]

# A function has a page, which may do no more than include another one.
manual=$(dirname "$(find "$prefix" -name rvl_alloc.3)")
[ "$(cat "$manual/rvl_free.3")" = ".so man3/rvl_alloc.3" ]
[ -s "$manual/rvl_alloc.3" ] && [ -s "$manual/../man7/reveille.7" ]

[ "$("$prefix/bin/reveille" --version | cut -d' ' -f1)" = reveille ]

# The command runs without MPI; where there is one, it finds its module as it is installed.
if readelf -d "$prefix/bin/reveille" | grep -q 'NEEDED.*libmpi'; then
    echo "the command needs MPI" >&2
    exit 1
fi
if [ -e "$libdir/reveille/reveille-mpi.so" ] && command -v mpirun >/dev/null; then
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 \
        "$prefix/bin/reveille" plan "$trace" --sweep --device h200,b200 >"$work/swept"
    grep -q '^cheapest that fits: --device h200$' "$work/swept"
fi

headers=0
for header in "$prefix"/include/reveille/*.h; do
    "$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror -I"$prefix/include" -fsyntax-only -x c "$header"
    if command -v c++ >/dev/null; then
        c++ -Wall -Wextra -Wpedantic -Werror -I"$prefix/include" -fsyntax-only -x c++ "$header"
    fi
    headers=$((headers + 1))
done
[ "$headers" -ge 11 ]

# libreveille needs libc alone.
needed=$(readelf -d "$libdir/libreveille.so" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p')
for library in $needed; do
    case $library in
    libc.so.* | ld-linux*) ;;
    *) echo "libreveille needs $library" >&2; exit 1 ;;
    esac
done
for library in libreveille.so libreveille-replay.so; do
    if nm -D --defined-only "$libdir/$library" | awk '{print $3}' |
        grep -vE '^(rvl_[a-z0-9_]+(@@REVEILLE_0)?|REVEILLE_0)$' >&2; then
        echo "$library exports what does not begin with rvl_" >&2
        exit 1
    fi
done
# The hook libraries, if they were built: as little needed, nothing else exported, and what others
# look for in them.
for library in libreveille-preload.so libreveille-torch.so; do
    [ -e "$libdir/$library" ] || continue
    needed=$(readelf -d "$libdir/$library" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' |
        grep -vE '^(libc\.so|ld-linux)' || true)
    [ -z "$needed" ] || { echo "$library needs $needed" >&2; exit 1; }
    if nm -D --defined-only "$libdir/$library" | awk '{print $3}' |
        grep -vE '^(rvl_|tms_|cuda)[A-Za-z0-9_]+(@@REVEILLE_HOOKS)?$|^REVEILLE_HOOKS$|^(set_memory_margin_bytes|dlsym|dlvsym|_exit|_Exit|InitializeInjectionNvtx2)$' >&2; then
        echo "$library exports what is not its interface" >&2
        exit 1
    fi
    grep -q TMS_INIT_ENABLE_DISK_BACKUP "$libdir/$library"
    mode=${library#libreveille-}
    for major in 12 13; do
        cmp "$libdir/$library" \
            "$libdir/torch_memory_saver/torch_memory_saver_hook_mode_${mode%.so}_cu$major.abi3.so"
    done
done
[ ! -e "$libdir/libreveille-torch.so" ] || ! nm -D --defined-only "$libdir/libreveille-torch.so" |
    grep -qE ' (cudaMalloc|cudaFree|dlsym)$'

# The command finds the library that is installed with it.
if [ -e "$libdir/libreveille-preload.so" ]; then
    "$prefix/bin/reveille" record -o "$work/run.rvt" true 2>"$work/log"
    grep -q "nothing was recorded" "$work/log"
fi

echo "installed tree: consumer built both ways, $headers headers alone, symbols checked"
