#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Lets mandoc look for mistakes in the manual. Exits 77 without mandoc.
# usage: man_lint.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
command -v mandoc >/dev/null || {
    echo "SKIP: mandoc is not installed: apt-get install mandoc"
    exit 77
}
for source in "$1"/man/*.[37]; do # pages that include another have nothing of their own
    made=$2/man/man3/${source##*/}
    if [ "${source##*.}" = 7 ]; then
        made=$source
    fi
    mandoc -Tlint -W warning "$made"
done
