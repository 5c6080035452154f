# Tests of the kernels: their text, and what they compute.

# The text of all kernels, compiled for three architectures.
dtrc_test(test_kernel_text FILES test_kernel_text.c DEPS base ${CMAKE_DL_LIBS})
target_include_directories(test_kernel_text SYSTEM PRIVATE ${DTRC_CUDA_INCLUDE})
set_tests_properties(test_kernel_text PROPERTIES TIMEOUT 600)

# The host side of the kernels under other names, so that both targets are in one process; the kernels
# run on the simulator.
set(host gather group_norm index loss movement norm optim pad pool random reduce resize softmax)
list(TRANSFORM host PREPEND ${CMAKE_SOURCE_DIR}/runtime/cuda/)
list(TRANSFORM host APPEND .c)
add_library(kernels_on_simt STATIC ${host} kernels.c)
file(READ ${CMAKE_CURRENT_SOURCE_DIR}/kernels.h calls)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS kernels.h)
string(REGEX MATCHALL " F\\([a-z_0-9]+\\)" calls "${calls}")
foreach(call ${calls})
  string(REGEX REPLACE " F\\((.*)\\)" "\\1" name ${call})
  set_property(SOURCE ${host} APPEND PROPERTY COMPILE_DEFINITIONS "dtrt_${name}=cuda_${name}")
endforeach()
set_target_properties(kernels_on_simt PROPERTIES ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_include_directories(kernels_on_simt PUBLIC ${CMAKE_SOURCE_DIR}/tests ${CMAKE_SOURCE_DIR}/runtime/cuda)
target_include_directories(kernels_on_simt SYSTEM PUBLIC ${DTRC_CUDA_INCLUDE})
target_link_libraries(kernels_on_simt PUBLIC dtrt_core dtrt_cpu base cudasim_bench simt cuda_plan ${CMAKE_DL_LIBS})
foreach(test rows movement images)
  dtrc_test(test_kernels_${test} FILES test_kernels_${test}.c DEPS kernels_on_simt)
  set_tests_properties(test_kernels_${test} PROPERTIES ENVIRONMENT "OMP_WAIT_POLICY=passive")
endforeach()
# As tests/gpu runs them on a device; here the stand-in is one, and one that rounds otherwise is found.
foreach(mode gpu gpu-rz)
  add_test(NAME test_kernels_${mode} COMMAND test_kernels_images ${CMAKE_BINARY_DIR} ${mode}
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(test_kernels_${mode} PROPERTIES SKIP_RETURN_CODE 77
    ENVIRONMENT "OMP_WAIT_POLICY=passive;DTRT_CUDA_PATH=${CMAKE_BINARY_DIR}/cudasim/lib")
endforeach()
set_tests_properties(test_kernels_gpu-rz PROPERTIES WILL_FAIL ON)
add_dependencies(kernels_on_simt cudasim_cuda)
