# SPDX-License-Identifier: BSL-1.0
# Boot images.
#
#   neap_application(NAME SOURCES … LIBRARIES …)   NAME.elf, which a boot loader takes, and NAME.debug.elf, which a debugger reads
#   neap_target_test(NAME SOURCES … LIBRARIES …)   the same for tests/target/, as part of target `target_tests`; its exit status tells
#
# Both files lie in the folder's build directory; the target is NAME.elf. boot/link_image.py says how an image is linked, and why in three
# steps.
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_C_FLAGS_DEBUG "-Og")
set(CMAKE_CXX_FLAGS_DEBUG "-Og")
target_compile_options(neap_common INTERFACE -mno-red-zone -ffunction-sections -fdata-sections)
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_options(neap_common INTERFACE -flto=auto)
endif()

# The compiler makes names up where it needs them to be unique; by default at random. An object's own path in the build tree is unique too.
foreach(language C CXX)
  set(CMAKE_${language}_COMPILE_OBJECT
    "<CMAKE_${language}_COMPILER> <DEFINES> <INCLUDES> <FLAGS> -frandom-seed=<OBJECT> -o <OBJECT> -c <SOURCE>")
endforeach()

find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter)
set(NEAP_LINK_SCRIPT "${PROJECT_SOURCE_DIR}/boot/image.ld")
set(NEAP_LINKER "${PROJECT_SOURCE_DIR}/boot/link_image.py")
# Every executable of an image build is an image.
set(CMAKE_CXX_LINK_EXECUTABLE
  "\"${Python3_EXECUTABLE}\" \"${NEAP_LINKER}\" --compiler <CMAKE_CXX_COMPILER> --script \"${NEAP_LINK_SCRIPT}\" --output <TARGET>")
string(APPEND CMAKE_CXX_LINK_EXECUTABLE " -- <LINK_FLAGS> <OBJECTS> <LINK_LIBRARIES>")

# The commit, looked at by every build; only a change of it makes anything anew.
set(NEAP_COMMIT_SOURCE "${PROJECT_BINARY_DIR}/boot/commit.cpp")
add_custom_target(neap_commit_source
  COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/boot/write_commit.py"
    --source "${PROJECT_SOURCE_DIR}" --output "${NEAP_COMMIT_SOURCE}"
  BYPRODUCTS "${NEAP_COMMIT_SOURCE}"
  COMMENT ""
  VERBATIM)
add_library(neap_commit OBJECT "${NEAP_COMMIT_SOURCE}")
target_link_libraries(neap_commit PRIVATE neap_options)
add_dependencies(neap_commit neap_commit_source)

function(neap_application name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
  set(NEAP_APPLICATION_NAME "${name}")
  string(TOLOWER "${CMAKE_BUILD_TYPE}" NEAP_BUILD_TYPE)
  set(name_source "${CMAKE_CURRENT_BINARY_DIR}/${name}_application_name.cpp")
  configure_file("${PROJECT_SOURCE_DIR}/boot/application_name.cpp.in" "${name_source}" @ONLY)
  add_executable(${name}.elf ${arg_SOURCES} "${name_source}")
  target_link_libraries(${name}.elf PRIVATE neap_options neap_commit neap_kernel neap_x86 neap_boot ${arg_LIBRARIES})
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    # In one piece: GCC 14.2 fails on partitions of an image with this many coroutines (add_symbol_to_partition_1).
    target_link_options(${name}.elf PRIVATE -O2 -flto=auto -flto-partition=none -flinker-output=nolto-rel -frandom-seed=${name})
  endif()
  set_target_properties(${name}.elf PROPERTIES LINKER_LANGUAGE CXX LINK_DEPENDS "${NEAP_LINK_SCRIPT};${NEAP_LINKER}")
endfunction()

function(neap_target_test name)
  neap_application(${name} ${ARGN})
  add_dependencies(target_tests ${name}.elf)
endfunction()

add_custom_target(target_tests COMMENT "Images of tests/target")
