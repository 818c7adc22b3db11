# SPDX-License-Identifier: MIT
# A package that a manifest names (name, version, integrity), packed by npm from whatever registry the
# user has configured, and checked against the manifest's hash. It is kept in the build directory.
# Without it the build goes on, and says what is left out.

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

# Sets directory_out to where the package was unpacked. given_variable names the variable with which users
# hand over a package that is there already, for builds without a network; part is what is left out
# without one.
function(rvl_npm_package manifest directory part given_variable directory_out)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${manifest})
  file(READ ${manifest} text)
  foreach(key name version integrity)
    string(JSON ${key} GET "${text}" ${key})
  endforeach()
  rvl_integrity_to_hex("${integrity}" expected)

  set(package ${${given_variable}})
  if(NOT package)
    set(package ${directory}/${name}-${version}.tgz)
    find_program(RVL_NPM npm)
    if(NOT EXISTS ${package} AND NOT RVL_NPM)
      rvl_left_out("${part}" "npm was not found (on Debian: apt-get install npm)")
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
        rvl_left_out("${part}" "npm could not get ${name}@${version} (${why})")
        return()
      endif()
    endif()
  endif()
  if(NOT EXISTS ${package})
    message(FATAL_ERROR "${given_variable}: no file ${package}")
  endif()

  file(SHA512 ${package} found)
  if(NOT found STREQUAL expected)
    if(NOT ${given_variable})
      file(REMOVE ${package})
    endif()
    message(FATAL_ERROR "${package} is not the ${name}@${version} that ${manifest} names: its "
                        "SHA-512 is ${found}, expected ${expected}")
  endif()
  file(ARCHIVE_EXTRACT INPUT ${package} DESTINATION ${directory}/${version})
  set(${directory_out} ${directory}/${version}/package PARENT_SCOPE)
endfunction()
