# SPDX-License-Identifier: BSL-1.0
# What every piece of C and C++ of ours is compiled with: target `neap_options`. Third-party code (lwIP) takes `neap_common` alone.
# Images carry all debug information: a debugger on a bare machine has nothing else. On the host, backtraces need lines alone, and anything
# more makes the sanitizers' code take up to four times as long to compile (-DNEAP_DEBUG_INFO=-g brings it back).
set(NEAP_DEBUG_INFO "-g1" CACHE STRING "Debug information on the host, as the compiler takes it")
if(NEAP_IMAGE)
  set(NEAP_DEBUG_INFO "-g")
endif()
add_library(neap_common INTERFACE)
target_include_directories(neap_common INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_options(neap_common INTERFACE
  ${NEAP_DEBUG_INFO}
  "-ffile-prefix-map=${PROJECT_SOURCE_DIR}=."
  "-ffile-prefix-map=${PROJECT_BINARY_DIR}=build"
  -ftls-model=local-exec)

# Boost's headers, for applications: from Debian's package, as the launcher fetched it; or the host's own.
set(NEAP_BOOST_INCLUDE "" CACHE PATH "Folder that holds boost/")
if(NEAP_BOOST_INCLUDE)
  target_include_directories(neap_common SYSTEM INTERFACE "${NEAP_BOOST_INCLUDE}")
  target_compile_options(neap_common INTERFACE "-ffile-prefix-map=${NEAP_BOOST_INCLUDE}=boost")
endif()

add_library(neap_options INTERFACE)
target_link_libraries(neap_options INTERFACE neap_common)
target_compile_options(neap_options INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wno-missing-field-initializers)
option(NEAP_WERROR "Treat warnings in our own code as errors" ON)
if(NEAP_WERROR)
  target_compile_options(neap_options INTERFACE -Werror)
endif()
