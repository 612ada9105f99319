# SPDX-License-Identifier: BSL-1.0
# Compiler options: our own C and C++ uses target `neap_options`. Third-party code (lwIP) uses only `neap_common`.
# Images carry full debug information, because a debugger on a bare machine has no other source. On the host, backtraces need only lines;
# full information would make the sanitizers' code compile up to four times as long (-DNEAP_DEBUG_INFO=-g enables it).
set(NEAP_DEBUG_INFO "-g1" CACHE STRING "Debug information on the host, as a compiler option")
if(NEAP_IMAGE)
  set(NEAP_DEBUG_INFO "-g")
endif()
add_library(neap_common INTERFACE)
# Objects contain no path of this machine, whether the compiler gets absolute paths or, from ccache, relative ones.
cmake_path(RELATIVE_PATH PROJECT_SOURCE_DIR BASE_DIRECTORY "${PROJECT_BINARY_DIR}" OUTPUT_VARIABLE neap_source_from_build)
target_include_directories(neap_common INTERFACE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>" "$<INSTALL_INTERFACE:include/neap>")
target_compile_options(neap_common INTERFACE
  ${NEAP_DEBUG_INFO}
  "$<BUILD_INTERFACE:-ffile-prefix-map=${neap_source_from_build}=.>"
  "$<BUILD_INTERFACE:-ffile-prefix-map=${PROJECT_SOURCE_DIR}=.>"
  "$<BUILD_INTERFACE:-ffile-prefix-map=${PROJECT_BINARY_DIR}/=>"
  "$<INSTALL_INTERFACE:-ffile-prefix-map=$<INSTALL_PREFIX>=neap>")
# A shared object cannot have variables at a fixed offset from the thread pointer, so it finds its per-core variables by a call.
option(NEAP_SHARED "Make libneap_network.so, the network as a shared object of the host" OFF)
if(NEAP_SHARED)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
else()
  target_compile_options(neap_common INTERFACE -ftls-model=local-exec)
endif()

# Boost's headers, for applications: from Debian's package, as the launcher fetched it; or the host's own.
set(NEAP_BOOST_INCLUDE "" CACHE PATH "Folder that holds boost/")
if(NEAP_BOOST_INCLUDE)
  target_include_directories(neap_common SYSTEM INTERFACE "$<BUILD_INTERFACE:${NEAP_BOOST_INCLUDE}>")
  target_compile_options(neap_common INTERFACE "$<BUILD_INTERFACE:-ffile-prefix-map=${NEAP_BOOST_INCLUDE}=boost>")
endif()

add_library(neap_options INTERFACE)
target_link_libraries(neap_options INTERFACE neap_common)
target_compile_features(neap_options INTERFACE cxx_std_23)
target_compile_options(neap_options INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wno-missing-field-initializers)
option(NEAP_WERROR "Treat warnings in our own code as errors" ON)
# For our own targets only, not for applications outside this repository that use neap_options.
set(CMAKE_COMPILE_WARNING_AS_ERROR ${NEAP_WERROR})
