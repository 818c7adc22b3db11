# SPDX-License-Identifier: MIT
# The two libraries and what is installed with them. Static ones (BUILD_SHARED_LIBS=OFF) leave what they
# need to their users' linkers: pkg-config and the CMake package then name it.

# Objects of `base` belong to each shared library. Of static ones, only to the one below.
function(rvl_library target map)
  add_library(${target} ${ARGN})
  set_target_properties(${target} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0
                        LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cmake/${map})
  rvl_find_own_libraries(${target} ${CMAKE_INSTALL_LIBDIR})
  target_link_options(${target} PRIVATE
    LINKER:--version-script=${CMAKE_CURRENT_SOURCE_DIR}/cmake/${map}
    LINKER:--as-needed,-Bsymbolic)
  if(NOT RVL_SANITIZE) # sanitizers resolve their symbols at run time
    target_link_options(${target} PRIVATE LINKER:-z,defs)
  endif()
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:reveille_settings> Threads::Threads
                        ${CMAKE_DL_LIBS})
  target_include_directories(${target} INTERFACE
    $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
    $<BUILD_INTERFACE:${CMAKE_CURRENT_BINARY_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endfunction()

# A library that ours is made of. The users of a static one find it again, by pkg-config.
function(rvl_made_of target dependency module)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:RVL::${dependency}>)
  if(NOT BUILD_SHARED_LIBS)
    target_link_libraries(${target}
                          INTERFACE $<INSTALL_INTERFACE:PkgConfig::reveille_${dependency}>)
    list(APPEND requires_of_${target} ${module})
    set(requires_of_${target} ${requires_of_${target}} PARENT_SCOPE)
    set(static_dependencies ${static_dependencies} ${dependency}=${module} PARENT_SCOPE)
  endif()
endfunction()

set(base_of_replay $<TARGET_OBJECTS:reveille_base>)
if(NOT BUILD_SHARED_LIBS)
  set(base_of_replay "")
endif()
rvl_library(reveille reveille.map $<TARGET_OBJECTS:reveille_base> $<TARGET_OBJECTS:reveille_objects>)
rvl_library(reveille-replay reveille-replay.map
            ${base_of_replay} $<TARGET_OBJECTS:reveille_replay_objects>)
if(TARGET RVL::uring)
  rvl_made_of(reveille uring liburing)
endif()
target_link_libraries(reveille-replay PUBLIC reveille)
rvl_made_of(reveille-replay jansson jansson)
rvl_made_of(reveille-replay zstd libzstd)
rvl_made_of(reveille-replay deflate libdeflate)
set_target_properties(reveille-replay PROPERTIES EXPORT_NAME replay)

install(TARGETS reveille reveille-replay EXPORT ReveilleTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libraries
                NAMELINK_COMPONENT development
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(DIRECTORY include/reveille DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
        FILES_MATCHING PATTERN "*.h")
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/include/reveille/version.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/reveille COMPONENT development)

# Users of a tree that may be anywhere get its path from its place, and have it in their programs.
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
set(pkgconfig_prefix ${CMAKE_INSTALL_PREFIX})
set(pkgconfig_rpath "")
if(RVL_RELOCATABLE)
  rvl_path_between(${pkgconfig_dir} . path)
  set(pkgconfig_prefix "\${pcfiledir}/${path}")
  if(BUILD_SHARED_LIBS)
    set(pkgconfig_rpath " -Wl,-rpath,\${libdir}")
  endif()
endif()
foreach(folder LIBDIR INCLUDEDIR)
  set(pkgconfig_${folder} ${CMAKE_INSTALL_${folder}})
  if(NOT IS_ABSOLUTE ${pkgconfig_${folder}})
    string(PREPEND pkgconfig_${folder} "\${prefix}/")
  endif()
endforeach()
set(static_libs "")
if(NOT BUILD_SHARED_LIBS)
  set(static_libs " -pthread")
  foreach(library IN LISTS CMAKE_DL_LIBS)
    string(APPEND static_libs " -l${library}")
  endforeach()
endif()
list(PREPEND requires_of_reveille-replay "reveille = ${PROJECT_VERSION}")
foreach(module reveille reveille-replay)
  list(JOIN requires_of_${module} ", " requires)
  configure_file(cmake/${module}.pc.in ${module}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${module}.pc
          DESTINATION ${pkgconfig_dir} COMPONENT development)
endforeach()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Reveille)
install(EXPORT ReveilleTargets NAMESPACE Reveille:: DESTINATION ${package_dir}
        COMPONENT development)
configure_package_config_file(cmake/ReveilleConfig.cmake.in ReveilleConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(ReveilleConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ReveilleConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/ReveilleConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT development)
