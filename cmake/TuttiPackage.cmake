# The Debian packages, made by `cpack` in the build folder: the library, the development files, the programs and the Python module.  Each is a
# component of its own, with the library in Debian's folder wherever `cmake --install` would put it.

set(tutti_deb_libdir lib/${CMAKE_LIBRARY_ARCHITECTURE})
tutti_install(deb_ ${tutti_deb_libdir} EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tutti)
set(CPACK_PACKAGE_VENDOR "The Tutti authors")
# Debian's archive requires an address here, dpkg does not: -DCPACK_PACKAGE_CONTACT=… sets one.
set(CPACK_PACKAGE_CONTACT "The Tutti authors" CACHE STRING "Maintainer of the packages: NAME <ADDRESS>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # each package has its own, the first line of its description
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL deb_runtime deb_dev deb_tools)
if(TUTTI_HAVE_PYTHON)
    list(APPEND CPACK_COMPONENTS_ALL deb_python)
endif()
set(CPACK_DEBIAN_DEB_RUNTIME_PACKAGE_NAME libtutti${tutti_compatible})
set(CPACK_DEBIAN_DEB_DEV_PACKAGE_NAME libtutti-dev)
set(CPACK_DEBIAN_DEB_TOOLS_PACKAGE_NAME tutti)
set(CPACK_DEBIAN_DEB_PYTHON_PACKAGE_NAME python3-tutti)
set(CPACK_DEBIAN_DEB_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_DEB_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEB_TOOLS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_DEB_PYTHON_PACKAGE_SECTION python)
set(CPACK_DEBIAN_PACKAGE_SOURCE tutti)

# dpkg-shlibdeps, which reads what the programs and the library are linked to
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR} ${tutti_rpath})
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_COMPONENT_DEB_DEV_DEPENDS deb_runtime)
set(CPACK_COMPONENT_DEB_PYTHON_DEPENDS deb_runtime)
set(CPACK_DEBIAN_DEB_PYTHON_PACKAGE_DEPENDS "python3, python3-cffi")
set(CPACK_DEBIAN_DEB_PYTHON_PACKAGE_RECOMMENDS python3-numpy)
set(CPACK_COMPONENT_DEB_TOOLS_DEPENDS deb_runtime)
set(CPACK_DEBIAN_DEB_DEV_PACKAGE_SUGGESTS tutti)
set(CPACK_DEBIAN_DEB_TOOLS_PACKAGE_RECOMMENDS dataset-fashion-mnist)
set(CPACK_DEBIAN_DEB_TOOLS_PACKAGE_SUGGESTS "gnuplot-nox, hdf5-tools")
if(TUTTI_HAVE_MPI)
    set(CPACK_DEBIAN_DEB_TOOLS_PACKAGE_DEPENDS openmpi-bin)
    string(APPEND CPACK_DEBIAN_DEB_DEV_PACKAGE_SUGGESTS ", libopenmpi-dev")
endif()

set(tutti_layers "Layers (norms, softmax, linear, matmul, embedding, rotary positions, losses), AdamW, checkpoints,
and the exchange of gradients by MPI or NCCL.
")
set(CPACK_DEBIAN_DEB_RUNTIME_DESCRIPTION "${PROJECT_DESCRIPTION}
${tutti_layers}
This package holds the shared library.")
set(CPACK_DEBIAN_DEB_DEV_DESCRIPTION "Data-parallel training layers in C (development files)
${tutti_layers}
This package holds the headers and the files for CMake and pkg-config.")
set(CPACK_DEBIAN_DEB_TOOLS_DESCRIPTION "Data-parallel training layers in C (programs and documents)
${tutti_layers}
This package holds the programs tutti-run, tutti-train, tutti-validate and
tutti-bench, the documents and the examples.")
set(CPACK_DEBIAN_DEB_PYTHON_DESCRIPTION "Data-parallel training layers in C (Python module)
${tutti_layers}
This package holds the module tutti: the layers by name, on arrays.")

set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/install/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_DEB_RUNTIME_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_BINARY_DIR}/install/triggers)

set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_SOURCE_DIR}/cmake/TuttiPackageFinish.cmake)
set(CPACK_TUTTI_SOURCE ${CMAKE_CURRENT_SOURCE_DIR})
set(CPACK_TUTTI_BIN_DIR ${PROJECT_BINARY_DIR}/bin)
set(CPACK_TUTTI_LIB_DIR ${tutti_deb_libdir})
include(CPack)
