# SPDX-License-Identifier: MIT
# Run by CPack over what it is about to pack: adds what each Debian package must have, and packs the
# manual pages, as Debian wants them.

set(packages libraries=libreveille0 development=libreveille-dev command=reveille)
foreach(pair IN LISTS packages)
  string(REGEX MATCH "^(.+)=(.+)$" pair ${pair})
  set(tree ${CPACK_TEMPORARY_DIRECTORY}/${CMAKE_MATCH_1})
  if(NOT IS_DIRECTORY ${tree})
    continue()
  endif()
  set(docs ${tree}${CPACK_PACKAGING_INSTALL_PREFIX}/share/doc/${CMAKE_MATCH_2})
  file(MAKE_DIRECTORY ${docs})
  file(READ ${CPACK_RVL_SOURCE_DIR}/LICENSE licence)
  file(WRITE ${docs}/copyright "${licence}")
  file(COPY_FILE ${CPACK_RVL_SOURCE_DIR}/CHANGELOG.md ${docs}/changelog)
  file(GLOB_RECURSE pages ${tree}${CPACK_PACKAGING_INSTALL_PREFIX}/share/man/*.[1-8])
  string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
  file(WRITE ${docs}/changelog.Debian "reveille (${CPACK_RVL_VERSION}) unstable; urgency=medium

  * What has changed is in changelog.gz.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
  execute_process(COMMAND gzip -9n ${docs}/changelog ${docs}/changelog.Debian ${pages} COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND chmod -R u=rwX,go=rX ${tree} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
