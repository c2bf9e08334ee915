# What is installed and packaged: library, headers, programs, CMake package, tutti.pc, documents.  Nothing of it holds
# a path of the source tree, and the CMake package, tutti.pc and the programs find the library from where they lie, so
# an installed tree can be moved.

include(CMakePackageConfigHelpers)

# What a static library must be linked to, for tutti.pc.
set(tutti_links ${TUTTI_OPENBLAS_LIBRARY})
if(TUTTI_HAVE_MPI)
    list(APPEND tutti_links ${MPI_C_LIBRARIES})
endif()
if(TUTTI_HAVE_HDF5)
    list(APPEND tutti_links ${HDF5_C_LIBRARIES} ${TUTTI_XXHASH_LIBRARY})
endif()
if(TUTTI_HAVE_CUDA)
    list(APPEND tutti_links ${CUDA_cudart_LIBRARY} ${CUDA_cublasLt_LIBRARY} -lstdc++)
endif()
if(TUTTI_HAVE_NCCL)
    list(APPEND tutti_links ${NCCL_LIBRARY})
endif()

# Libraries outside the loader's own folders (CUDA in /usr/local/cuda, a cluster's MPI) are looked for where they are now.
# Debian links from a folder of each flavour into its own: that link counts as inside.
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

set_target_properties(tutti PROPERTIES INSTALL_RPATH "${tutti_rpath}")
file(RELATIVE_PATH tutti_bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
foreach(program tutti-train tutti-bench tutti-validate)
    if(TARGET ${program})
        set_target_properties(${program} PROPERTIES
            INSTALL_RPATH "$ORIGIN/${tutti_bin_to_lib};${tutti_rpath}")
    endif()
endforeach()

install(TARGETS tutti EXPORT tutti-targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(PROGRAMS launch/tutti-run DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES README.md CONTRIBUTING.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(PROGRAMS launch/slurm.sbatch DESTINATION ${CMAKE_INSTALL_DOCDIR}/launch)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright) # Debian's name for it
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR}
    PATTERN Doxyfile EXCLUDE PATTERN "*.awk" EXCLUDE)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN CMakeLists.txt EXCLUDE)

# find_package(tutti CONFIG)
set(tutti_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)
configure_package_config_file(cmake/tutti-config.cmake.in
    ${CMAKE_CURRENT_BINARY_DIR}/tutti-config.cmake INSTALL_DESTINATION ${tutti_package_dir}
    NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/tutti-config-version.cmake
    COMPATIBILITY SameMinorVersion)
install(EXPORT tutti-targets NAMESPACE tutti:: DESTINATION ${tutti_package_dir})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tutti-config.cmake
    ${CMAKE_CURRENT_BINARY_DIR}/tutti-config-version.cmake cmake/FindNCCL.cmake
    DESTINATION ${tutti_package_dir})

# pkg-config tutti
set(tutti_pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
string(REGEX REPLACE "[^/]+" ".." tutti_pc_to_prefix ${tutti_pc_dir})
list(JOIN tutti_pc_libraries " " tutti_pc_libraries)
set(tutti_pc_cflags)
if(NOT BUILD_SHARED_LIBS)
    set(tutti_pc_cflags " -DTUTTI_STATIC")
endif()
configure_file(cmake/tutti.pc.in ${CMAKE_CURRENT_BINARY_DIR}/tutti.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tutti.pc DESTINATION ${tutti_pc_dir})

if(PROJECT_IS_TOP_LEVEL)
    include(TuttiPackage)
endif()
