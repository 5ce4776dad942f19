# SPDX-License-Identifier: Apache-2.0
# The CUDA backend, or its stub. Sets weir_has_cuda.
set(weir_has_cuda OFF)
if(NOT WEIR_CUDA MATCHES "^(ON|OFF|AUTO)$")
  message(FATAL_ERROR "WEIR_CUDA is '${WEIR_CUDA}'; it is ON, OFF or AUTO")
endif()
if(NOT WEIR_CUDA STREQUAL "OFF")
  # nvcc may not be on the PATH.
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(weir_nvcc nvcc PATHS /usr/local/cuda/bin)
    if(weir_nvcc)
      set(CMAKE_CUDA_COMPILER ${weir_nvcc})
    endif()
  endif()
  # One program for all: A100, RTX 30, Orin, RTX 40, H100 and H200. Set before enabling the language, which has a default.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES "80;86;87;89;90" CACHE STRING "Compute capabilities that kernels are compiled for")
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit)
    set(weir_has_cuda ${CUDAToolkit_FOUND})
  endif()
  if(NOT weir_has_cuda AND WEIR_CUDA STREQUAL "ON")
    message(FATAL_ERROR "WEIR_CUDA=ON and no working nvcc with cuBLAS was found: put nvcc on the PATH, name it with "
                        "-DCMAKE_CUDA_COMPILER=..., or configure with -DWEIR_CUDA=OFF")
  endif()
endif()

if(weir_has_cuda)
  message(STATUS "CUDA backend: ${CMAKE_CUDA_COMPILER}, compute capabilities ${CMAKE_CUDA_ARCHITECTURES}")
  # CMake before 3.26 does not know that nvcc 12 supports it.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  endif()
  # nvcc does not take fmt's check of formats at compile time; the same sources have it as the twin.
  target_compile_definitions(weir_backend PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:FMT_CONSTEVAL=>
                             $<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)
  set_target_properties(weir_backend PROPERTIES CUDA_STANDARD 20 CUDA_EXTENSIONS OFF
                        CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
  file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cuda/*.cu)
  list(APPEND kernels ${cuda_weights})
  target_sources(weir_backend PRIVATE ${kernels})
  # As for C++, no contraction of a product and a sum (FMA) unless the source asks for it.
  set_source_files_properties(${kernels} PROPERTIES COMPILE_OPTIONS "-fmad=false")
  target_link_libraries(weir_backend PRIVATE CUDA::cudart_static CUDA::cublasLt)
else()
  target_sources(weir_backend PRIVATE ${CMAKE_SOURCE_DIR}/src/backend/no_cuda/no_cuda.cc)
endif()
