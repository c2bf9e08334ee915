# Run by CPack on the packages' folders before packing: adds what Debian requires beyond `cmake --install`: changelog,
# copyright and compressed manual pages, and no rpath of the build machine.

# finish_with(COMMAND…): runs it, which must succeed
function(finish_with)
    execute_process(COMMAND ${ARGN} RESULT_VARIABLE code ERROR_VARIABLE said)
    if(NOT code EQUAL 0)
        list(JOIN ARGN " " command)
        message(FATAL_ERROR "${command}: ${code} ${said}")
    endif()
endfunction()

foreach(component IN LISTS CPACK_COMPONENTS_ALL)
    string(TOUPPER ${component} upper)
    set(doc ${CPACK_TEMPORARY_DIRECTORY}/${component}/usr/share/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
    configure_file(${CPACK_TUTTI_SOURCE}/LICENSE ${doc}/copyright COPYONLY)
    configure_file(${CPACK_TUTTI_SOURCE}/cmake/changelog.in ${doc}/changelog @ONLY)
    finish_with(gzip -9nf ${doc}/changelog)
endforeach()
file(REMOVE ${CPACK_TEMPORARY_DIRECTORY}/deb_tools/usr/share/doc/tutti/LICENSE) # copyright says it

# In a package, the library and its dependencies are in the loader's path; $ORIGIN is for packages that are unpacked without
# being installed.
file(GLOB libraries ${CPACK_TEMPORARY_DIRECTORY}/deb_runtime/usr/${CPACK_TUTTI_LIB_DIR}/libtutti.so.*.*.*)
file(RPATH_REMOVE FILE ${libraries})
set(tools ${CPACK_TEMPORARY_DIRECTORY}/deb_tools/usr)
file(GLOB programs RELATIVE ${tools}/bin ${tools}/bin/*)
foreach(program IN LISTS programs)
    if(EXISTS ${CPACK_TUTTI_BIN_DIR}/${program}) # tutti-run is a script
        file(RPATH_SET FILE ${tools}/bin/${program} NEW_RPATH "$ORIGIN/../${CPACK_TUTTI_LIB_DIR}")
    endif()
endforeach()

# Manual pages, from the programs' --help.
set(what_tutti-run "run a program of Tutti's on several ranks")
set(what_tutti-train "train a model on one process or on several")
set(what_tutti-validate "check the layers against reference cases")
set(what_tutti-bench "time the layers and check what they computed")
find_program(help2man help2man)
if(NOT help2man)
    message(WARNING "help2man was not found: package tutti has no manual pages")
    return()
endif()
file(MAKE_DIRECTORY ${tools}/share/man/man1)
foreach(program IN LISTS programs)
    set(asked ${tools}/bin/${program})
    if(EXISTS ${CPACK_TUTTI_BIN_DIR}/${program}) # the build's program finds the build's library
        set(asked ${CPACK_TUTTI_BIN_DIR}/${program})
    endif()
    set(page ${tools}/share/man/man1/${program}.1)
    finish_with(env LC_ALL=C.UTF-8 ${help2man} --no-info --section=1 --name=${what_${program}}
        --version-string=${CPACK_PACKAGE_VERSION} --output=${page} ${asked})
    finish_with(gzip -9nf ${page})
endforeach()
