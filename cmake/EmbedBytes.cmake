# SPDX-License-Identifier: MIT
# cmake -D "INPUT=FILE;..." -D OUTPUT=FILE -P EmbedBytes.cmake: the bytes of files, one behind the other, as a
# list that C includes.
file(WRITE ${OUTPUT} "")
foreach(file IN LISTS INPUT)
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  file(APPEND ${OUTPUT} "${bytes}\n")
endforeach()
