# SPDX-License-Identifier: MIT
# What is not built, and why: one line a part, said at once, and kept in left-out.txt in the build
# folder for the summary of scripts/test.

function(rvl_left_out part reason)
  message(STATUS "Left out: ${part}: ${reason}")
  file(APPEND ${reveille_BINARY_DIR}/left-out.txt "${part}: ${reason}\n")
endfunction()

# Of an earlier configuration.
file(REMOVE ${reveille_BINARY_DIR}/left-out.txt)
