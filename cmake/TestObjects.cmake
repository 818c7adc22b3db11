# SPDX-License-Identifier: MIT
# Objects that tests link. Tests replace functions by the linker's --wrap, which reaches calls between
# objects alone. In what is shipped all files of a library are optimized as one, and no such calls are
# left. So tests have the same files compiled one by one; what they load and start is what is shipped.

# rvl_test_objects(NAME): NAME_for_tests, from the files of the object library NAME. To be called in the
# folder of NAME, once it has all its files: properties of files belong to a folder.
function(rvl_test_objects name)
  if(NOT RVL_BUILD_TESTS)
    return()
  endif()
  if(NOT CMAKE_INTERPROCEDURAL_OPTIMIZATION)
    add_library(${name}_for_tests ALIAS ${name})
    return()
  endif()
  get_target_property(sources ${name} SOURCES)
  add_library(${name}_for_tests OBJECT ${sources})
  set_target_properties(${name}_for_tests PROPERTIES INTERPROCEDURAL_OPTIMIZATION OFF)
  foreach(property LINK_LIBRARIES INTERFACE_LINK_LIBRARIES COMPILE_DEFINITIONS
          INTERFACE_COMPILE_DEFINITIONS MANUALLY_ADDED_DEPENDENCIES)
    get_target_property(value ${name} ${property})
    if(value AND property STREQUAL MANUALLY_ADDED_DEPENDENCIES)
      add_dependencies(${name}_for_tests ${value})
    elseif(value)
      set_target_properties(${name}_for_tests PROPERTIES ${property} "${value}")
    endif()
  endforeach()
endfunction()
