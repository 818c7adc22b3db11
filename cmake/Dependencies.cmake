# SPDX-License-Identifier: MIT
# Finds the libraries of the package registries, and says what to install where one is missing.

find_package(PkgConfig REQUIRED)

function(rvl_need name module package)
  pkg_check_modules(${name} IMPORTED_TARGET ${module})
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "${module} was not found. On Debian: apt-get install ${package} "
                        "(scripts/test installs everything that is missing).")
  endif()
  add_library(RVL::${name} ALIAS PkgConfig::${name})
endfunction()

rvl_need(jansson jansson libjansson-dev)
rvl_need(zstd libzstd libzstd-dev)
rvl_need(zlib zlib zlib1g-dev)
if(RVL_BUILD_TESTS)
  rvl_need(cmocka cmocka libcmocka-dev)
endif()

find_path(RVL_UTHASH_INCLUDE uthash.h)
if(NOT RVL_UTHASH_INCLUDE)
  message(FATAL_ERROR "uthash.h was not found. On Debian: apt-get install uthash-dev "
                      "(scripts/test installs everything that is missing).")
endif()

# Disk backups use threads alone without it. The archive, where there is one: the library then needs
# nothing more at run time.
if(RVL_URING)
  pkg_check_modules(uring IMPORTED_TARGET liburing>=2.1)
  if(uring_FOUND)
    find_library(RVL_URING_LIBRARY NAMES liburing.a uring HINTS ${uring_LIBRARY_DIRS})
    add_library(rvl_uring INTERFACE)
    target_include_directories(rvl_uring SYSTEM INTERFACE ${uring_INCLUDE_DIRS})
    target_link_libraries(rvl_uring INTERFACE ${RVL_URING_LIBRARY})
    add_library(RVL::uring ALIAS rvl_uring)
  endif()
endif()

# Only a benchmark compares with it.
find_path(RVL_LIBBSD_INCLUDE bsd/sys/tree.h)

# Only a module of `reveille plan` needs it. Its headers are not held to our warnings.
if(RVL_MPI)
  find_package(MPI QUIET COMPONENTS C)
endif()
