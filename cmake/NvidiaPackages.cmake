# SPDX-License-Identifier: MIT
# Where pip's nvidia packages have their headers: nvidia/cu13/include, nvidia/cuda_runtime/include
# and others beside the packages of Python.

function(rvl_nvidia_package_includes includes_out)
  set(${includes_out} "" PARENT_SCOPE)
  find_package(Python3 QUIET COMPONENTS Interpreter)
  if(NOT Python3_FOUND)
    return()
  endif()
  # pip builds with a path of its own, which lacks the packages of the environment.
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -c "import sys, sysconfig
print(*[p for p in [*sys.path, *sysconfig.get_paths().values()] if p], sep=';')"
    OUTPUT_VARIABLE folders OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(found "")
  foreach(folder IN LISTS folders)
    file(GLOB includes LIST_DIRECTORIES true "${folder}/nvidia/*/include")
    list(APPEND found ${includes})
  endforeach()
  list(REMOVE_DUPLICATES found)
  set(${includes_out} "${found}" PARENT_SCOPE)
endfunction()
