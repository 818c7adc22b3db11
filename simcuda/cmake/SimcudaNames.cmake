# SPDX-License-Identifier: MIT
# Lists of a library's functions for the preprocessor, so that each function exists or is a stub (wire/stub.h).
# They are made in ${RVL_SIMCUDA_NAMES}. A library that includes one depends on it.
set(RVL_SIMCUDA_NAMES ${PROJECT_BINARY_DIR}/names)

# rvl_simcuda_header(FILE HEADER KIND PATTERN MACRO): writes the names in a header of CUDA.
function(rvl_simcuda_header file header kind pattern macro)
  set(path ${RVL_SIMCUDA_NAMES}/${file})
  set(script ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/header_names.cmake)
  add_custom_command(OUTPUT ${path}
    COMMAND ${CMAKE_COMMAND} -D HEADER=${RVL_CUDA_INCLUDE}/${header} -D KIND=${kind}
            -D "PATTERN=${pattern}" -D MACRO=${macro} -D OUTPUT=${path} -P ${script}
    DEPENDS ${RVL_CUDA_INCLUDE}/${header} ${script} VERBATIM)
endfunction()

# rvl_simcuda_list(FILE NAMES): expands a file of patterns of this folder.
function(rvl_simcuda_list file names)
  set(path ${RVL_SIMCUDA_NAMES}/${file})
  set(names ${CMAKE_CURRENT_SOURCE_DIR}/${names})
  set(script ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/listed_names.cmake)
  add_custom_command(OUTPUT ${path}
    COMMAND ${CMAKE_COMMAND} -D NAMES=${names} -D OUTPUT=${path} -P ${script}
    DEPENDS ${names} ${script} VERBATIM)
endfunction()
