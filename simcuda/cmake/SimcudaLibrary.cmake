# SPDX-License-Identifier: MIT
# rvl_simcuda_library(TARGET FILE EXPORTS SOURCE...): a library under the file name that programs look for.
# EXPORTS: patterns of the functions that it exports, such as "cuda* __cuda*". VERSION NODE: their version node.
# It is never unloaded, since a process reports its end from it (driver/client.c).
function(rvl_simcuda_library target file exports)
  cmake_parse_arguments(library "" VERSION "" ${ARGN})
  string(REPLACE " " "; " exports "${exports};")
  set(map ${CMAKE_CURRENT_BINARY_DIR}/${target}.map)
  file(CONFIGURE OUTPUT ${map} CONTENT "${library_VERSION} { global: ${exports} local: *; };\n")
  add_library(${target} SHARED ${library_UNPARSED_ARGUMENTS})
  set_target_properties(${target} PROPERTIES
    PREFIX "" SUFFIX "" OUTPUT_NAME ${file} LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
    NO_SONAME TRUE C_VISIBILITY_PRESET default INTERPROCEDURAL_OPTIMIZATION OFF
    BUILD_RPATH "\$ORIGIN" INSTALL_RPATH "\$ORIGIN" LINK_DEPENDS ${map})
  target_link_options(${target} PRIVATE LINKER:-soname,${file} LINKER:-Bsymbolic
    LINKER:-z,nodelete LINKER:-z,defs LINKER:--version-script=${map})
  target_link_libraries(${target} PRIVATE reveille_settings Threads::Threads ${CMAKE_DL_LIBS})
  target_include_directories(${target} PRIVATE ${RVL_SIMCUDA_NAMES})
  target_include_directories(${target} SYSTEM PRIVATE ${RVL_CUDA_INCLUDE})
  install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/reveille-cuda COMPONENT command)
  set_property(GLOBAL APPEND PROPERTY RVL_SIMCUDA_LIBRARIES ${target}) # for the Python package
endfunction()
