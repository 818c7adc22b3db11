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
if(RVL_BUILD_TESTS)
  rvl_need(cmocka cmocka libcmocka-dev)
endif()

find_path(RVL_UTHASH_INCLUDE uthash.h)
if(NOT RVL_UTHASH_INCLUDE)
  message(FATAL_ERROR "uthash.h was not found. On Debian: apt-get install uthash-dev "
                      "(scripts/test installs everything that is missing).")
endif()

# Only a benchmark compares with it.
find_path(RVL_LIBBSD_INCLUDE bsd/sys/tree.h)
