# SPDX-License-Identifier: MIT
# The chart library of `reveille report -o`: the package that cli/report/charts.json names, packed
# by npm from whatever registry the user has configured, and checked against the manifest's hash.
# It is kept in the build directory. RVL_CHARTS_PACKAGE names one that is there already, for builds
# without a network. Sets RVL_CHARTS_DIR to where it was unpacked; without it the build goes on.

set(RVL_CHARTS_PACKAGE "" CACHE FILEPATH "The chart library's package, instead of asking npm for it")

# The hash of a manifest ("sha512-" and base64) as CMake writes hashes.
function(rvl_integrity_to_hex integrity hex_out)
  set(alphabet "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  string(REGEX REPLACE "^sha512-" "" text "${integrity}")
  string(REGEX MATCHALL "[A-Za-z0-9+/]" characters "${text}")
  set(bits 0)
  set(count 0)
  set(hex "")
  foreach(character IN LISTS characters)
    string(FIND "${alphabet}" "${character}" value)
    math(EXPR bits "(${bits} << 6) | ${value}")
    math(EXPR count "${count} + 6")
    while(count GREATER_EQUAL 4)
      math(EXPR count "${count} - 4")
      math(EXPR digit "(${bits} >> ${count}) & 15")
      math(EXPR bits "${bits} & ((1 << ${count}) - 1)")
      string(SUBSTRING "0123456789abcdef" ${digit} 1 digit)
      string(APPEND hex "${digit}")
    endwhile()
  endforeach()
  string(SUBSTRING "${hex}" 0 128 hex)
  set(${hex_out} ${hex} PARENT_SCOPE)
endfunction()

function(rvl_fetch_charts manifest directory)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${manifest})
  file(READ ${manifest} text)
  foreach(key name version integrity)
    string(JSON ${key} GET "${text}" ${key})
  endforeach()
  rvl_integrity_to_hex("${integrity}" expected)

  set(package ${RVL_CHARTS_PACKAGE})
  if(NOT package)
    set(package ${directory}/${name}-${version}.tgz)
    find_program(RVL_NPM npm)
    if(NOT EXISTS ${package} AND NOT RVL_NPM)
      rvl_left_out("pages of reveille report" "npm was not found (on Debian: apt-get install npm)")
      return()
    endif()
    if(NOT EXISTS ${package})
      file(MAKE_DIRECTORY ${directory})
      execute_process(
        COMMAND ${RVL_NPM} pack ${name}@${version} --loglevel=error --fetch-retries=1
                --fetch-timeout=20000
        WORKING_DIRECTORY ${directory} TIMEOUT 60
        RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE answer)
      if(failed)
        # Of npm's many lines that with its code; what stopped it, where it had no time for one.
        string(REGEX MATCH "code E?[A-Z0-9_]+" why "${answer}")
        if(NOT why)
          set(why ${failed})
        endif()
        rvl_left_out("pages of reveille report" "npm could not get ${name}@${version} (${why})")
        return()
      endif()
    endif()
  endif()
  if(NOT EXISTS ${package})
    message(FATAL_ERROR "RVL_CHARTS_PACKAGE: no file ${package}")
  endif()

  file(SHA512 ${package} found)
  if(NOT found STREQUAL expected)
    if(NOT RVL_CHARTS_PACKAGE)
      file(REMOVE ${package})
    endif()
    message(FATAL_ERROR "${package} is not the ${name}@${version} that ${manifest} names: its "
                        "SHA-512 is ${found}, expected ${expected}")
  endif()
  file(ARCHIVE_EXTRACT INPUT ${package} DESTINATION ${directory}/${version})
  set(RVL_CHARTS_DIR ${directory}/${version}/package PARENT_SCOPE)
endfunction()
