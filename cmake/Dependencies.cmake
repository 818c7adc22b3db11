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
rvl_need(lz4 liblz4 liblz4-dev)
# The archive, where there is one: the library then needs it no more at run time.
rvl_need(libdeflate libdeflate libdeflate-dev)
find_library(RVL_DEFLATE_LIBRARY NAMES libdeflate.a deflate HINTS ${libdeflate_LIBRARY_DIRS})
add_library(rvl_deflate INTERFACE)
target_include_directories(rvl_deflate SYSTEM INTERFACE ${libdeflate_INCLUDE_DIRS})
target_link_libraries(rvl_deflate INTERFACE ${RVL_DEFLATE_LIBRARY})
add_library(RVL::deflate ALIAS rvl_deflate)
if(RVL_BUILD_TESTS)
  rvl_need(cmocka cmocka libcmocka-dev)
endif()

find_path(RVL_UTHASH_INCLUDE uthash.h)
if(NOT RVL_UTHASH_INCLUDE)
  message(FATAL_ERROR "uthash.h was not found. On Debian: apt-get install uthash-dev "
                      "(scripts/test installs everything that is missing).")
endif()
add_library(rvl_uthash INTERFACE)
target_include_directories(rvl_uthash SYSTEM INTERFACE ${RVL_UTHASH_INCLUDE})
add_library(RVL::uthash ALIAS rvl_uthash)

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
  else()
    rvl_left_out("io_uring for disk backups, which use threads instead"
                 "no liburing (on Debian: apt-get install liburing-dev)")
  endif()
endif()

# `reveille check` reads TOML by it, in one C++ file. The headers alone, and C++'s library from its
# archive where there is one: the command then needs nothing more at run time. Sanitizers bring theirs.
if(RVL_TOML)
  include(CheckLanguage)
  check_language(CXX)
  pkg_check_modules(tomlplusplus tomlplusplus>=3.0)
  if(CMAKE_CXX_COMPILER AND tomlplusplus_FOUND)
    enable_language(CXX)
    add_library(rvl_toml INTERFACE)
    target_include_directories(rvl_toml SYSTEM INTERFACE ${tomlplusplus_INCLUDE_DIRS})
    target_compile_definitions(rvl_toml INTERFACE RVL_HAVE_TOML TOML_HEADER_ONLY=1)
    include(CheckCXXSourceCompiles)
    set(CMAKE_REQUIRED_LINK_OPTIONS -static-libstdc++ -static-libgcc)
    check_cxx_source_compiles("#include <string>\nint main(int n, char **words) {
      return std::string(words[n - 1]).empty(); }" RVL_STATIC_CXX)
    unset(CMAKE_REQUIRED_LINK_OPTIONS)
    if(RVL_STATIC_CXX AND NOT RVL_SANITIZE)
      target_link_options(rvl_toml INTERFACE -static-libstdc++ -static-libgcc)
    endif()
    add_library(RVL::toml ALIAS rvl_toml)
  else()
    rvl_left_out("checks of reveille check that are written in TOML"
                 "no C++ compiler or no toml++ (on Debian: apt-get install g++ libtomlplusplus-dev)")
  endif()
endif()

# Only a benchmark compares with it.
find_path(RVL_LIBBSD_INCLUDE bsd/sys/tree.h)
