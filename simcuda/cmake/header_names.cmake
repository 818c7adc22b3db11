# SPDX-License-Identifier: MIT
# Writes the names in a public header as a list for the preprocessor, with one line RVLI_ENTRY(name) for each, so that no part of the
# header is copied here.
#   cmake -D HEADER=cuda.h -D PATTERN='cu[A-Z][A-Za-z0-9_]*' -D MACRO=RVLI_ENTRY -D OUTPUT=... -P header_names.cmake
# KIND functions: declared functions, and the names to which the header renames them. KIND values: NAME = number. KIND versions: types
# PFN_NAME_vVERSION, as MACRO(NAME, VERSION).
file(READ ${HEADER} text)
string(REGEX REPLACE "[][;\\]" " " text "${text}") # these characters have a meaning in lists of CMake
set(names "")
# names_of(REGEX): adds each PATTERN in the matches.
macro(names_of regex)
  string(REGEX MATCHALL "${regex}" found "${text}")
  foreach(each IN LISTS found)
    string(REGEX MATCHALL "${PATTERN}" each "${each}")
    list(APPEND names ${each})
  endforeach()
endmacro()
if(KIND STREQUAL "versions")
  string(REGEX MATCHALL "PFN_${PATTERN}_v[0-9]+(_pt[dsz]+)?" names "${text}")
  list(FILTER names EXCLUDE REGEX "_pt[dsz]+$") # variants for the thread's own stream, which are not separate forms
elseif(KIND STREQUAL "values")
  names_of("${PATTERN}[ \t]*=[ \t]*[0-9]+")
else()
  names_of("(CUDAAPI|CUDARTAPI|CUDARTAPI_CDECL)[ \t\r\n]+${PATTERN}[ \t]*[(]")
  names_of("#define[ \t]+${PATTERN}[ \t]+${PATTERN}[ \t]*[\r\n]")
endif()
list(REMOVE_DUPLICATES names)
list(SORT names)
list(LENGTH names count)
if(count LESS 5)
  message(FATAL_ERROR "${HEADER} has ${count} names like ${PATTERN}: it is not the header that was expected")
endif()
if(KIND STREQUAL "versions")
  list(TRANSFORM names REPLACE "PFN_(.+)_v([0-9]+)" "${MACRO}(\\1, \\2)\n")
else()
  list(TRANSFORM names REPLACE "(.+)" "${MACRO}(\\1)\n")
endif()
list(JOIN names "" text)
file(WRITE ${OUTPUT} "${text}")
