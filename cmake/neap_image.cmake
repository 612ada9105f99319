# SPDX-License-Identifier: BSL-1.0
# Boot images. `neap_application(NAME SOURCES …)` makes NAME.elf, which a boot loader takes, and NAME.debug.elf, which a debugger reads.
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_C_FLAGS_DEBUG "-Og")
set(CMAKE_CXX_FLAGS_DEBUG "-Og")
target_compile_options(neap_common INTERFACE -mno-red-zone -ffunction-sections -fdata-sections)
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_options(neap_common INTERFACE -flto=auto)
endif()
