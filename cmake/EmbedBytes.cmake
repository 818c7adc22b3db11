# SPDX-License-Identifier: MIT
# cmake -D INPUT=FILE -D OUTPUT=FILE -P EmbedBytes.cmake: a file's bytes as a list that C includes.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "${bytes}\n")
