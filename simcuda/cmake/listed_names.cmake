# SPDX-License-Identifier: MIT
# Expands a file of patterns to a library's function names, as a list for the preprocessor with one line RVLI_ENTRY(name) for each. Each
# line is a pattern, with alternatives for a part of the name in braces. Comments begin with #.
#   cmake -D NAMES=names.txt -D OUTPUT=... -P names.cmake
cmake_minimum_required(VERSION 3.22) # lists keep empty elements
file(STRINGS ${NAMES} patterns REGEX "^[a-z]")
set(names "")
while(patterns)
  list(POP_FRONT patterns pattern)
  if(pattern MATCHES "^([^{]*){([^{}]*)}(.*)$")
    set(before "${CMAKE_MATCH_1}")
    set(after "${CMAKE_MATCH_3}")
    string(REPLACE "," ";" choices "${CMAKE_MATCH_2}")
    foreach(choice IN LISTS choices)
      list(APPEND patterns "${before}${choice}${after}")
    endforeach()
  else()
    list(APPEND names "RVLI_ENTRY(${pattern})\n")
  endif()
endwhile()
list(SORT names)
list(LENGTH names count)
list(REMOVE_DUPLICATES names)
list(LENGTH names different)
if(NOT count EQUAL different)
  message(FATAL_ERROR "${NAMES} has a name twice")
endif()
list(JOIN names "" text)
file(WRITE ${OUTPUT} "${text}")
