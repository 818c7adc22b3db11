#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs into an empty folder, moves it, and uses it at both places as a user would: the command,
# programs built by pkg-config and by CMake, headers alone, what the libraries need and export. Paths
# have spaces, and nothing names the libraries' folder to the loader.
# usage: check.sh BUILD_DIR SOURCE_DIR C_COMPILER
set -Eeuo pipefail
trap 'echo "${0##*/}: line $LINENO: $BASH_COMMAND" >&2' ERR
build=$1 source=$2 cc=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trace=$source/traces/qwen2.5-32b-tp2-h200.rvt
expected="5 stages, fits: 1"
unset LD_LIBRARY_PATH PKG_CONFIG_PATH RVL_PRELOAD RVL_LIBRARY_DIR

fail() { # WHAT...
    echo "$*" >&2
    exit 1
}

needed_by() { # FILE: other libraries than the C library
    readelf -d "$1" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' |
        grep -vE '^(libc\.so|libdl\.so|libpthread\.so|ld-linux)' || true
}

# The command: starts, knows its version, replays, has its page.
check_command() { # PREFIX LIBDIR
    local command=$1/bin/reveille
    [ "$("$command" --version | cut -d' ' -f1)" = reveille ] || fail "$command does not start"
    "$command" replay "$trace" >"$work/replayed"
    grep -q '^fits, with 7.5 GiB to spare$' "$work/replayed" || fail "not the right replay"

    # Where the chart library was not there to be built in, the command says so.
    if "$command" report "$trace" -o "$work/page.html" 2>"$work/log"; then
        grep -q 'uPlot' "$work/page.html" || fail "the page has no charts"
    else
        grep -q 'built without' "$work/log" || fail "$(cat "$work/log")"
    fi
}

# It finds the preload library that is installed with it, also in a path with a space.
check_record() { # PREFIX LIBDIR
    [ -e "$2/libreveille-preload.so" ] || return 0
    "$1/bin/reveille" record -o "$work/run.rvt" true 2>"$work/log"
    grep -q "nothing was recorded" "$work/log" || fail "record does not find its library: $(cat "$work/log")"
}

# A user's program, both ways. pkg-config puts backslashes before spaces, for a shell to read.
check_consumers() { # PREFIX LIBDIR
    local flags
    flags=$(PKG_CONFIG_PATH=$2/pkgconfig pkg-config --cflags --libs reveille-replay reveille)
    eval "\"\$cc\" -std=c11 \"\$source/tests/install/consumer.c\" $flags -o \"\$work/by-pkg-config\""
    [ "$("$work/by-pkg-config" "$trace")" = "$expected" ] || fail "by pkg-config: not as expected"

    rm -rf "$work/cmake"
    cmake -S "$source/tests/install" -B "$work/cmake" -G Ninja -DCMAKE_PREFIX_PATH="$1" \
        -DCMAKE_C_COMPILER="$cc" >"$work/log" || fail "$(cat "$work/log")"
    cmake --build "$work/cmake" >"$work/log" || fail "$(cat "$work/log")"
    [ "$("$work/cmake/consumer" "$trace")" = "$expected" ] || fail "by CMake: not as expected"
}

check_headers() { # PREFIX
    local header
    headers=0
    for header in "$1"/include/reveille/*.h; do
        "$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror -I"$1/include" -fsyntax-only -x c "$header"
        if command -v c++ >/dev/null; then
            c++ -Wall -Wextra -Wpedantic -Werror -I"$1/include" -fsyntax-only -x c++ "$header"
        fi
        headers=$((headers + 1))
    done
    [ "$headers" -ge 11 ] || fail "only $headers headers"
}

# A function has a page, which may do no more than include another one.
check_manual() { # PREFIX
    local pages
    pages=$(dirname "$(find "$1" -name rvl_alloc.3)")
    [ "$(cat "$pages/rvl_free.3")" = ".so man3/rvl_alloc.3" ] || fail "rvl_free.3 is not as expected"
    [ -s "$pages/rvl_alloc.3" ] && [ -s "$pages/../man7/reveille.7" ] || fail "manual pages are missing"
}

# Pages and completions lie where man and the shells look, and are of this command.
check_made() { # PREFIX
    local command=$1/bin/reveille share=$1/share
    [ -s "$share/man/man1/reveille.1" ] || fail "reveille.1 is missing"
    cmp "$share/man/man1/reveille-replay.1" <("$command" manual replay)
    cmp "$share/bash-completion/completions/reveille" <("$command" completion bash)
    cmp "$share/zsh/site-functions/_reveille" <("$command" completion zsh)
    cmp "$share/fish/vendor_completions.d/reveille.fish" <("$command" completion fish)
}

# libreveille needs libc alone. Nothing is exported but what begins with rvl_.
check_libraries() { # LIBDIR
    local library others
    others=$(needed_by "$1/libreveille.so")
    [ -z "$others" ] || fail "libreveille needs $others"
    for library in libreveille.so libreveille-replay.so; do
        if nm -D --defined-only "$1/$library" | awk '{print $3}' |
            grep -vE '^(rvl_[a-z0-9_]+(@@REVEILLE_0)?|REVEILLE_0|rvl_private_[a-z_]+@@REVEILLE_PRIVATE|REVEILLE_PRIVATE)$' >&2; then
            fail "$library exports what does not begin with rvl_"
        fi
    done
}

# The hook libraries, if they were built: as little needed, nothing else exported, and what others
# look for in them.
check_hooks() { # LIBDIR
    local library others mode major
    for library in libreveille-preload.so libreveille-torch.so; do
        [ -e "$1/$library" ] || continue
        others=$(needed_by "$1/$library")
        [ -z "$others" ] || fail "$library needs $others"
        if nm -D --defined-only "$1/$library" | awk '{print $3}' |
            grep -vE '^(tms_|cuda)[A-Za-z0-9_]+$|^(set_memory_margin_bytes|dlsym|dlvsym|_exit|_Exit|InitializeInjectionNvtx2)$' >&2; then
            fail "$library exports what is not its interface"
        fi
        grep -q TMS_INIT_ENABLE_DISK_BACKUP "$1/$library"
        mode=${library#libreveille-}
        for major in 12 13; do
            cmp "$1/$library" \
                "$1/torch_memory_saver/torch_memory_saver_hook_mode_${mode%.so}_cu$major.abi3.so"
        done
    done
    [ ! -e "$1/libreveille-torch.so" ] || ! nm -D --defined-only "$1/libreveille-torch.so" |
        grep -qE ' (cudaMalloc|cudaFree|dlsym)$' || fail "libreveille-torch.so stands in for CUDA"
}

cmake --install "$build" --prefix "$work/first place" >"$work/log"
libdir=$(dirname "$(find "$work/first place" -name 'libreveille.so' -o -name 'libreveille.a')")
libdir=${libdir#"$work/first place/"}
kind=static
for place in "$work/first place" "$work/second"; do
    [ -e "$place" ] || mv "$work/first place" "$place"
    check_command "$place" "$place/$libdir"
    check_record "$place" "$place/$libdir"
    check_consumers "$place" "$place/$libdir"
done
check_headers "$place"
check_manual "$place"
check_made "$place"
if [ -e "$place/$libdir/libreveille.so" ]; then
    kind=shared
    check_libraries "$place/$libdir"
fi
check_hooks "$place/$libdir"

echo "installed tree, $kind: used at two places, $headers headers alone, symbols checked"
