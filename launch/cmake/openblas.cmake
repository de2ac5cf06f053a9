# Target draftsmith_openblas: current OpenBLAS out of the PyPI wheel scipy-openblas32. Its symbols carry the prefix scipy_, so they do not
# clash with the MKL inside libtorch.
include(python)
ask_python(_found "import scipy_openblas32 as o\nprint(o.get_include_dir())\nprint(o.get_lib_dir())"
           "has no scipy-openblas32. Run launch/setup, or: pip install scipy-openblas32==0.3.34")
list(GET _found 0 _include)
list(GET _found 1 _lib)
add_library(draftsmith_openblas INTERFACE)
target_include_directories(draftsmith_openblas SYSTEM INTERFACE ${_include})
target_link_libraries(draftsmith_openblas INTERFACE ${_lib}/libscipy_openblas.so)
target_link_options(draftsmith_openblas INTERFACE -Wl,-rpath,${_lib})
