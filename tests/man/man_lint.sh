#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Lets mandoc look for mistakes in the manual. Exits 77 without mandoc.
# usage: man_lint.sh SOURCE_DIR
set -euo pipefail
command -v mandoc >/dev/null || {
    echo "SKIP: mandoc is not installed: apt-get install mandoc"
    exit 77
}
mandoc -Tlint -W warning "$1"/man/*.[37]
