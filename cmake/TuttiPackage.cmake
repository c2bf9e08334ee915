# The Debian package: `cpack -G DEB` in the build folder.  One package holds library, headers and programs.

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tutti)
set(CPACK_PACKAGE_VENDOR "The Tutti authors")
# Debian's archive wants an address here, dpkg does not.  Who hands the package on puts theirs: -DCPACK_PACKAGE_CONTACT=…
set(CPACK_PACKAGE_CONTACT "The Tutti authors" CACHE STRING "Who answers for the package: NAME <ADDRESS>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS dataset-fashion-mnist)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "gnuplot-nox, hdf5-tools")
if(TUTTI_HAVE_MPI)
    set(CPACK_DEBIAN_PACKAGE_DEPENDS openmpi-bin)
    string(APPEND CPACK_DEBIAN_PACKAGE_SUGGESTS ", libopenmpi-dev")
endif()
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"Layers (norms, softmax, linear, embedding, cross entropy), AdamW, checkpoints,
and the exchange of gradients by MPI or NCCL.

The package holds the library, its headers, CMake and pkg-config files, and the
programs tutti-run, tutti-train, tutti-validate and tutti-bench.")

include(CPack)
