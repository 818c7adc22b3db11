# SPDX-License-Identifier: MIT
# What is installed, in which part, and how the parts find each other.
#
# A part is an install component, and a Debian package (Packages.cmake):
#
#   libraries    libreveille0     libreveille, libreveille-replay
#   development  libreveille-dev  headers, pkg-config, the CMake package, pages of section 3
#   command      reveille         the command, the hook libraries, pages of section 1, completion
#
# What names no component belongs to the command. `python` is what a wheel carries, laid out in its own
# way (python).
#
# The tree works wherever it is installed, copied or moved to: our binaries find each other relative to
# themselves, and what pkg-config answers has the tree's own path. A distribution allows no such paths,
# and the loader searches its folders anyway: it sets RVL_RELOCATABLE=OFF.

option(RVL_RELOCATABLE "The installed tree may be moved, and needs no LD_LIBRARY_PATH" ON)

set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME command)

if(RVL_RELOCATABLE)
  # Libraries of others that lie outside the system's folders are found where they were when building.
  set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
else()
  set(CMAKE_SKIP_INSTALL_RPATH ON)
endif()

# A folder from another one, both below the prefix or absolute: ../lib
function(rvl_path_between from to path_out)
  foreach(folder from to)
    cmake_path(ABSOLUTE_PATH ${folder} BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} NORMALIZE)
  endforeach()
  file(RELATIVE_PATH path "${from}" "${to}")
  string(REGEX REPLACE "/$" "" path "${path}")
  if(path STREQUAL "")
    set(path .)
  endif()
  set(${path_out} ${path} PARENT_SCOPE)
endfunction()

# Lets a target that is installed in a folder find our libraries.
function(rvl_find_own_libraries target folder)
  rvl_path_between(${folder} ${CMAKE_INSTALL_LIBDIR} path)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/${path}")
endfunction()
