# Target draftsmith_torch: LibTorch out of the PyPI wheel.
#
# The wheel's own CMake package demands a CUDA compiler for every user of its headers. The libraries are few and named, so they are
# named here, and a build without nvcc is the same build. libtorch_cuda is not linked: models/parts/device.cpp loads it where a GPU is asked
# for, so that a machine without one does not pay for loading it.
include(python)
ask_python(_found "import importlib.util, importlib.metadata as m\nprint(importlib.util.find_spec('torch').submodule_search_locations[0])\nprint(m.version('torch'))"
           "has no torch. Run launch/setup, or give -DDRAFTSMITH_PYTHON=<python with torch 2.11>.")
list(GET _found 0 DRAFTSMITH_TORCH)
list(GET _found 1 _version)
if(NOT _version MATCHES "^2\\.11\\.")
  message(FATAL_ERROR "torch ${_version} found at ${DRAFTSMITH_TORCH}: 2.11 is needed (minor versions of LibTorch are not binary compatible). Run launch/setup.")
endif()
message(STATUS "torch ${_version}")

get_filename_component(DRAFTSMITH_SITE_PACKAGES ${DRAFTSMITH_TORCH} DIRECTORY)
add_library(draftsmith_torch INTERFACE)
target_include_directories(draftsmith_torch SYSTEM INTERFACE ${DRAFTSMITH_TORCH}/include ${DRAFTSMITH_TORCH}/include/torch/csrc/api/include)
target_compile_options(draftsmith_torch INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
# The wheel's libgomp stands before the system's: one process, one OpenMP pool.
target_link_libraries(draftsmith_torch INTERFACE ${DRAFTSMITH_TORCH}/lib/libtorch_cpu.so ${DRAFTSMITH_TORCH}/lib/libc10.so
                      ${DRAFTSMITH_TORCH}/lib/libgomp.so.1 Threads::Threads ${CMAKE_DL_LIBS})
target_link_options(draftsmith_torch INTERFACE -Wl,--disable-new-dtags -Wl,-rpath,${DRAFTSMITH_TORCH}/lib
                    -Wl,-rpath-link,${DRAFTSMITH_SITE_PACKAGES}/nvidia/cu13/lib)
