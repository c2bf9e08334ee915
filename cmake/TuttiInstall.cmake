# Installs library, headers, programs, Python module, CMake package, tutti.pc and documents.  None of them contains a path of the source
# tree, and the CMake package, tutti.pc, the module and the programs find the library relative to themselves, so an installed tree can
# be moved.

include(CMakePackageConfigHelpers)

# The dependencies of a static library, for tutti.pc.
set(tutti_links ${TUTTI_OPENBLAS_LIBRARY})
if(TUTTI_HAVE_MPI)
    list(APPEND tutti_links ${MPI_C_LIBRARIES})
endif()
if(TUTTI_HAVE_HDF5)
    list(APPEND tutti_links ${HDF5_C_LIBRARIES} ${TUTTI_XXHASH_LIBRARY})
endif()
if(TUTTI_HAVE_CUDA)
    list(APPEND tutti_links ${CUDA_cudart_LIBRARY} -ldl -lstdc++)
endif()
if(TUTTI_HAVE_NCCL)
    list(APPEND tutti_links ${NCCL_LIBRARY})
endif()

# Libraries outside the loader's own folders (CUDA in /usr/local/cuda, a cluster's MPI) get an rpath.  Debian's folders of
# library flavours link into the loader's folder and count as inside.
set(tutti_pc_libraries)
set(tutti_rpath)
foreach(link IN LISTS tutti_links)
    if(link MATCHES "^(/.*)/lib([^/]+)\\.(so|a)$")
        set(folder ${CMAKE_MATCH_1})
        if(NOT folder IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
            list(APPEND tutti_pc_libraries -L${folder})
            file(REAL_PATH ${link} real)
            get_filename_component(real ${real} DIRECTORY)
            if(NOT real IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
                list(APPEND tutti_rpath ${folder})
            endif()
        endif()
        set(link -l${CMAKE_MATCH_2})
    endif()
    list(APPEND tutti_pc_libraries ${link})
endforeach()
list(REMOVE_DUPLICATES tutti_rpath)
list(APPEND tutti_pc_libraries ${OpenMP_C_FLAGS} -lm)
list(REMOVE_DUPLICATES tutti_pc_libraries)
list(JOIN tutti_pc_libraries " " tutti_pc_libraries)
set(tutti_pc_cflags " -DTUTTI_STATIC")
if(BUILD_SHARED_LIBS) # a shared library knows its own dependencies
    set(tutti_pc_libraries)
    set(tutti_pc_cflags)
endif()

set_target_properties(tutti PROPERTIES INSTALL_RPATH "${tutti_rpath}")
file(RELATIVE_PATH tutti_bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set(tutti_programs)
foreach(program tutti-train tutti-bench tutti-validate)
    if(TARGET ${program})
        list(APPEND tutti_programs ${program})
        set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/${tutti_bin_to_lib};${tutti_rpath}")
    endif()
endforeach()

# tutti_install(PREFIX LIBDIR [EXCLUDE_FROM_ALL]): the components PREFIXruntime, PREFIXdev, PREFIXtools and PREFIXpython, with
# the library in LIBDIR.
function(tutti_install prefix libdir)
    set(made ${CMAKE_CURRENT_BINARY_DIR}/install/${prefix}files)
    set(runtime COMPONENT ${prefix}runtime ${ARGN})
    set(dev COMPONENT ${prefix}dev ${ARGN})
    set(tools COMPONENT ${prefix}tools ${ARGN})

    install(TARGETS tutti EXPORT ${prefix}targets
        LIBRARY DESTINATION ${libdir} ${runtime} NAMELINK_COMPONENT ${prefix}dev
        ARCHIVE DESTINATION ${libdir} ${dev})
    install(DIRECTORY include/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} ${dev})

    # find_package(tutti CONFIG)
    set(package ${libdir}/cmake/tutti)
    configure_package_config_file(cmake/tutti-config.cmake.in ${made}/tutti-config.cmake INSTALL_DESTINATION ${package}
        NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
    # before 1.0 another minor version is another interface
    write_basic_package_version_file(${made}/tutti-config-version.cmake COMPATIBILITY SameMinorVersion)
    install(EXPORT ${prefix}targets NAMESPACE tutti:: FILE tutti-targets.cmake DESTINATION ${package} ${dev})
    install(FILES ${made}/tutti-config.cmake ${made}/tutti-config-version.cmake cmake/FindNCCL.cmake
        DESTINATION ${package} ${dev})

    # pkg-config tutti
    set(tutti_pc_libdir ${libdir})
    string(REGEX REPLACE "[^/]+" ".." tutti_pc_to_prefix ${libdir}/pkgconfig)
    configure_file(cmake/tutti.pc.in ${made}/tutti.pc @ONLY)
    install(FILES ${made}/tutti.pc DESTINATION ${libdir}/pkgconfig ${dev})

    if(TUTTI_HAVE_PYTHON)
        # Debian's folder for modules of any Python 3
        set(modules lib/python3/dist-packages)
        cmake_path(ABSOLUTE_PATH libdir BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE library)
        file(RELATIVE_PATH library ${CMAKE_INSTALL_PREFIX}/${modules} ${library}/${tutti_so})
        tutti_python_module(${made} ${library})
        add_custom_target(${prefix}tutti_python_installed ALL DEPENDS ${made}/tutti_build.py)
        list(TRANSFORM tutti_python_sources PREPEND bindings/python/ OUTPUT_VARIABLE sources)
        install(FILES ${sources} ${made}/tutti_build.py DESTINATION ${modules} COMPONENT ${prefix}python ${ARGN})
    endif()

    if(tutti_programs)
        install(TARGETS ${tutti_programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} ${tools})
    endif()
    install(PROGRAMS launch/tutti-run DESTINATION ${CMAKE_INSTALL_BINDIR} ${tools})
    install(FILES README.md CONTRIBUTING.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} ${tools})
    install(PROGRAMS launch/slurm.sbatch DESTINATION ${CMAKE_INSTALL_DOCDIR}/launch ${tools})
    install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} ${tools}
        PATTERN Doxyfile EXCLUDE PATTERN "*.awk" EXCLUDE)
    install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} ${tools} PATTERN CMakeLists.txt EXCLUDE)
endfunction()

tutti_install("" ${CMAKE_INSTALL_LIBDIR})
if(PROJECT_IS_TOP_LEVEL AND BUILD_SHARED_LIBS)
    include(TuttiPackage)
endif()
