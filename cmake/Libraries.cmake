# SPDX-License-Identifier: MIT
# The two shared libraries and what is installed with them.

function(rvl_library target objects map)
  add_library(${target} SHARED $<TARGET_OBJECTS:reveille_base> $<TARGET_OBJECTS:${objects}>)
  set_target_properties(${target} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0
                        LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cmake/${map})
  target_link_options(${target} PRIVATE
    LINKER:--version-script=${CMAKE_CURRENT_SOURCE_DIR}/cmake/${map}
    LINKER:--as-needed,-Bsymbolic-functions)
  if(NOT RVL_SANITIZE) # sanitizers resolve their symbols at run time
    target_link_options(${target} PRIVATE LINKER:-z,defs)
  endif()
  target_link_libraries(${target} PRIVATE reveille_settings Threads::Threads)
  target_include_directories(${target} INTERFACE
    $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
    $<BUILD_INTERFACE:${CMAKE_CURRENT_BINARY_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endfunction()

rvl_library(reveille reveille_objects reveille.map)
rvl_library(reveille-replay reveille_replay_objects reveille-replay.map)
if(TARGET RVL::uring)
  target_link_libraries(reveille PRIVATE $<BUILD_INTERFACE:RVL::uring>)
endif()
target_link_libraries(reveille-replay PUBLIC reveille PRIVATE RVL::jansson RVL::zstd
  $<BUILD_INTERFACE:RVL::deflate>)
set_target_properties(reveille-replay PROPERTIES EXPORT_NAME replay)

install(TARGETS reveille reveille-replay EXPORT ReveilleTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/reveille DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/include/reveille/version.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/reveille)

foreach(module reveille reveille-replay)
  configure_file(cmake/${module}.pc.in ${module}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${module}.pc
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Reveille)
install(EXPORT ReveilleTargets NAMESPACE Reveille:: DESTINATION ${package_dir})
configure_package_config_file(cmake/ReveilleConfig.cmake.in ReveilleConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(ReveilleConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ReveilleConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/ReveilleConfigVersion.cmake
        DESTINATION ${package_dir})
