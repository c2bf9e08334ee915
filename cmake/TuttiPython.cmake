# The Python module: bindings/python, and what the build adds to it, tutti_build.py: the public headers as the compiler's
# preprocessor leaves them.  cffi reads these declarations, so a user needs neither a compiler nor the headers.
# Included by CMakeLists.txt; run as a script it writes tutti_build.py.

if(CMAKE_SCRIPT_MODE_FILE)
    file(READ ${DECLARATIONS} tutti_python_declarations)
    set(tutti_python_library ${LIBRARY})
    set(tutti_python_version ${VERSION})
    configure_file(${TEMPLATE} ${OUTPUT} @ONLY NEWLINE_STYLE UNIX)
    return()
endif()

# tutti_python_module(FOLDER LIBRARY): adds FOLDER/tutti_build.py, for a library at the path LIBRARY from there
function(tutti_python_module folder library)
    add_custom_command(OUTPUT ${folder}/tutti_build.py
        COMMAND ${CMAKE_COMMAND} -DDECLARATIONS=${tutti_python_headers}/declarations.h -DLIBRARY=${library}
            -DVERSION=${PROJECT_VERSION} -DTEMPLATE=${CMAKE_CURRENT_SOURCE_DIR}/bindings/python/tutti_build.py.in
            -DOUTPUT=${folder}/tutti_build.py -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/TuttiPython.cmake
        DEPENDS ${tutti_python_headers}/declarations.h bindings/python/tutti_build.py.in cmake/TuttiPython.cmake
        VERBATIM)
endfunction()

# In place of the system's headers, whose types cffi knows, and of CUDA's, which need not be there.
set(tutti_python_headers ${PROJECT_BINARY_DIR}/python_headers)
file(CONFIGURE OUTPUT ${tutti_python_headers}/stddef.h CONTENT "")
file(CONFIGURE OUTPUT ${tutti_python_headers}/stdint.h CONTENT "")
file(CONFIGURE OUTPUT ${tutti_python_headers}/cuda_runtime_api.h CONTENT "typedef struct CUstream_st *cudaStream_t;\n")
file(CONFIGURE OUTPUT ${tutti_python_headers}/all.h CONTENT "#include <tutti/tutti.h>\n#include <tutti/cuda.h>\n")
file(GLOB tutti_public_headers CONFIGURE_DEPENDS include/tutti/*.h)
# TUTTI_STATIC: cffi knows no attributes
add_custom_command(OUTPUT ${tutti_python_headers}/declarations.h
    COMMAND ${CMAKE_C_COMPILER} -E -P -nostdinc -DTUTTI_STATIC -I ${tutti_python_headers}
        -I ${CMAKE_CURRENT_SOURCE_DIR}/include -o ${tutti_python_headers}/declarations.h ${tutti_python_headers}/all.h
    DEPENDS ${tutti_public_headers} ${tutti_python_headers}/all.h
    VERBATIM)

# In the build folder as a user would have it: PYTHONPATH=build/python
set(tutti_python_sources tutti.py tutti_arrays.py tutti_library.py)
set(tutti_python ${PROJECT_BINARY_DIR}/python)
foreach(source IN LISTS tutti_python_sources)
    configure_file(bindings/python/${source} ${tutti_python}/${source} COPYONLY)
endforeach()
set(tutti_so libtutti.so.${tutti_compatible})
tutti_python_module(${tutti_python} ../${tutti_so})
add_custom_target(tutti_python ALL DEPENDS ${tutti_python}/tutti_build.py)
