# SPDX-License-Identifier: BSL-1.0
# The cross compiler. The launcher passes its path: -DNEAP_TOOLCHAIN=PREFIX or the environment's NEAP_TOOLCHAIN.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
if(NOT NEAP_TOOLCHAIN)
  set(NEAP_TOOLCHAIN "$ENV{NEAP_TOOLCHAIN}")
endif()
# Beside an installed Neap: the path of the compiler that built it.
if(NOT NEAP_TOOLCHAIN AND EXISTS "${CMAKE_CURRENT_LIST_DIR}/toolchain-prefix.txt")
  file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/toolchain-prefix.txt" NEAP_TOOLCHAIN LIMIT_COUNT 1)
endif()
if(NOT EXISTS "${NEAP_TOOLCHAIN}/bin/x86_64-neap-elf-g++")
  message(FATAL_ERROR "No cross compiler at NEAP_TOOLCHAIN='${NEAP_TOOLCHAIN}'. "
    "'./neap build' finds or builds it; './neap toolchain build' does only that.")
endif()
set(NEAP_TOOLCHAIN "${NEAP_TOOLCHAIN}" CACHE PATH "Prefix of the cross toolchain")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES NEAP_TOOLCHAIN)
set(CMAKE_C_COMPILER "${NEAP_TOOLCHAIN}/bin/x86_64-neap-elf-gcc")
set(CMAKE_CXX_COMPILER "${NEAP_TOOLCHAIN}/bin/x86_64-neap-elf-g++")
set(CMAKE_ASM_COMPILER "${NEAP_TOOLCHAIN}/bin/x86_64-neap-elf-gcc")
set(CMAKE_AR "${NEAP_TOOLCHAIN}/bin/x86_64-neap-elf-gcc-ar")
set(CMAKE_RANLIB "${NEAP_TOOLCHAIN}/bin/x86_64-neap-elf-gcc-ranlib")
set(CMAKE_OBJCOPY "${NEAP_TOOLCHAIN}/bin/x86_64-neap-elf-objcopy")
set(CMAKE_STRIP "${NEAP_TOOLCHAIN}/bin/x86_64-neap-elf-strip")
set(CMAKE_NM "${NEAP_TOOLCHAIN}/bin/x86_64-neap-elf-nm")
# CMake's test programs are not linked, because a program links only with the kernel and its linker script.
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_EXE_LINKER_FLAGS_INIT "")
