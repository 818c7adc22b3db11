#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# No public struct has bytes without a name: what a program leaves in them by chance would become an option
# when a field comes to lie there. The compiler says where there are some. Shown to fail on a hole, and on
# an end that is not whole.
# usage: padding.sh SOURCE BUILD COMPILER
set -euo pipefail
source=$1 build=$2 compiler=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Other people's headers are read as the system's, which are not looked at.
# A struct that nothing uses may have no layout yet.
use_structs() { sed -nE 's/^.*\} (rvl_\w+);$/_Static_assert(sizeof(\1) > 0, "");/p' "$@"; }

compiles() { "$compiler" -std=c11 -Wpadded -Werror -fsyntax-only -I "$source/include" -I "$build/include" "$1"; }

for header in "$source"/include/reveille/*.h "$build/include/reveille/version.h"; do
    { printf '#include "%s"\n' "$header"; use_structs "$header"; } >"$work/one.c"
    compiles "$work/one.c"
done

for fields in 'size_t struct_size; bool on; uint64_t bytes;' 'size_t struct_size; bool on;'; do
    printf '#include <stdbool.h>\n#include <stdint.h>\n#include <stddef.h>\n' >"$work/bad.c"
    printf 'typedef struct rvl_bad { %s } rvl_bad;\n' "$fields" >>"$work/bad.c"
    use_structs "$work/bad.c" >"$work/uses"
    cat "$work/uses" >>"$work/bad.c"
    if compiles "$work/bad.c" 2>"$work/said"; then
        echo "padding goes unseen: $fields" >&2
        exit 1
    fi
    grep -q padded "$work/said" || { cat "$work/said" >&2; exit 1; }
done
