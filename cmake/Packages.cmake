# SPDX-License-Identifier: MIT
# Debian packages, one for each part that Install.cmake names. scripts/deb builds them as they are
# shipped: Release, prefix /usr, RVL_RELOCATABLE=OFF.

set(RVL_MAINTAINER "Reveille contributors <reveille@localhost.localdomain>" CACHE STRING
    "Maintainer of the packages: NAME <ADDRESS>")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT ${RVL_MAINTAINER})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_COMPONENTS_ALL libraries development command)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Each other's libraries, the simulated ones of CUDA among them.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR} ${CMAKE_BINARY_DIR}/simcuda)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(own "(= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")

# A part's package: name, section of the archive, what it is, what it has.
function(rvl_package part name section summary description)
  string(TOUPPER ${part} PART)
  foreach(pair NAME=${name} SECTION=${section})
    string(REGEX MATCH "^([A-Z]+)=(.+)$" pair ${pair})
    set(CPACK_DEBIAN_${PART}_PACKAGE_${CMAKE_MATCH_1} ${CMAKE_MATCH_2} PARENT_SCOPE)
  endforeach()
  set(CPACK_DEBIAN_${PART}_DESCRIPTION "${summary}\n${description}" PARENT_SCOPE)
endfunction()

rvl_package(libraries libreveille0 libs "GPU memory in stages, simulated GPUs: libraries"
"libreveille gives GPU memory up and takes it back under the same addresses.
libreveille-replay replays memory traces on simulated GPUs.")

rvl_package(development libreveille-dev libdevel "GPU memory in stages, simulated GPUs: development files"
"Headers, pkg-config and CMake files for programs that use libreveille or
libreveille-replay.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libreveille0 ${own}")

rvl_package(command reveille utils "GPU memory predicted and recorded: the command"
"reveille replays memory traces on simulated GPUs and says whether they fit,
plans sizes, draws reports, and records what programs do with GPU memory.")
set(CPACK_DEBIAN_COMMAND_PACKAGE_DEPENDS "libreveille0 ${own}")
# Python compiles what `reveille run` gives it, beside it, if root runs a program.
set(leaves ${CMAKE_BINARY_DIR}/debian/prerm)
file(CONFIGURE OUTPUT ${leaves} CONTENT
  "#!/bin/sh\nset -e\nrm -rf ${CMAKE_INSTALL_FULL_LIBDIR}/reveille-cuda/python/__pycache__\n")
file(CHMOD ${leaves} PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_COMMAND_PACKAGE_CONTROL_EXTRA ${leaves})

set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_SOURCE_DIR}/cmake/DebianFiles.cmake)
set(CPACK_RVL_VERSION ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})
set(CPACK_RVL_SOURCE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
include(CPack)
