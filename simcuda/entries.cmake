# SPDX-License-Identifier: MIT
# Names of a public header as a list for the preprocessor, one RVLI_ENTRY(name) a line, so that no part
# of the header is copied here.
#   cmake -D HEADER=cuda.h -D PATTERN='cu[A-Z][A-Za-z0-9_]*' -D MACRO=RVLI_ENTRY -D OUTPUT=... -P entries.cmake
# KIND functions: what is declared, and what the header renames it to. KIND values: NAME = number.
file(STRINGS ${HEADER} lines REGEX "${PATTERN}")
set(names "")
foreach(line IN LISTS lines)
  if(KIND STREQUAL "values")
    if(line MATCHES "^[ \t]*(${PATTERN})[ \t]*=[ \t]*[0-9]+")
      list(APPEND names ${CMAKE_MATCH_1})
    endif()
  elseif(line MATCHES "^#define[ \t]+(${PATTERN})[ \t]+(${PATTERN})[ \t]*$")
    list(APPEND names ${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
  elseif(line MATCHES "^[^*/]*(CUDAAPI|CUDARTAPI|CUDARTAPI_CDECL)[ \t]+(${PATTERN})[ \t]*\\(")
    list(APPEND names ${CMAKE_MATCH_2})
  endif()
endforeach()
list(REMOVE_DUPLICATES names)
list(SORT names)
list(LENGTH names count)
if(count LESS 5)
  message(FATAL_ERROR "${HEADER} has ${count} names like ${PATTERN}: it is not the header that was expected")
endif()
list(TRANSFORM names REPLACE "(.+)" "${MACRO}(\\1)\n")
list(JOIN names "" text)
file(WRITE ${OUTPUT} "${text}")
