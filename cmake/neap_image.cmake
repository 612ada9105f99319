# SPDX-License-Identifier: BSL-1.0
# Boot images.
#
#   neap_application(NAME SOURCES … LIBRARIES …)   NAME.elf for boot loaders, and NAME.debug.elf for debuggers
#   neap_target_test(NAME SOURCES … LIBRARIES …)   the same for tests/target/, in target `target_tests`; the exit status is the result
#   PORTS …                                        TCP ports of the image that `./neap run PATH` forwards
#
# Both files are in the folder's build directory; the target is NAME.elf. boot/link_image.py explains the three steps of linking an image.
# An application outside this repository gets this by find_package(Neap) (cmake/NeapConfig.cmake.in), which sets the path of boot/'s files.
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_C_FLAGS_DEBUG "-Og")
set(CMAKE_CXX_FLAGS_DEBUG "-Og")
if(NOT NEAP_OUTSIDE)
  set(NEAP_BOOT_FOLDER "${PROJECT_SOURCE_DIR}/boot")
  set(NEAP_VERSION "${PROJECT_VERSION}")
  target_compile_options(neap_common INTERFACE -mno-red-zone -ffunction-sections -fdata-sections)
  # Neap's heap has aligned_alloc (kernel/memory/malloc.cpp). The C++ library was built without it.
  target_compile_definitions(neap_common INTERFACE _GLIBCXX_HAVE_ALIGNED_ALLOC=1)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(neap_common INTERFACE -flto=auto)
  endif()
endif()

# The compiler generates unique names, by default from random numbers. The object's path in the build tree is unique, too, and reproducible.
foreach(language C CXX)
  set(CMAKE_${language}_COMPILE_OBJECT
    "<CMAKE_${language}_COMPILER> <DEFINES> <INCLUDES> <FLAGS> -frandom-seed=<OBJECT> -o <OBJECT> -c <SOURCE>")
endforeach()

find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter)
set(NEAP_LINK_SCRIPT "${NEAP_BOOT_FOLDER}/image.ld")
set(NEAP_LINKER "${NEAP_BOOT_FOLDER}/link_image.py")
# Every executable of an image build is an image.
set(CMAKE_CXX_LINK_EXECUTABLE
  "\"${Python3_EXECUTABLE}\" \"${NEAP_LINKER}\" --compiler <CMAKE_CXX_COMPILER> --script \"${NEAP_LINK_SCRIPT}\" --output <TARGET>")
string(APPEND CMAKE_CXX_LINK_EXECUTABLE " -- <LINK_FLAGS> <OBJECTS> <LINK_LIBRARIES>")

# Every build reads the commit, and only a changed commit rebuilds anything. An outside application uses its own folder's commit.
if(NOT TARGET neap_commit)
  set(NEAP_COMMIT_SOURCE "${PROJECT_BINARY_DIR}/boot/commit.cpp")
  add_custom_target(neap_commit_source
    COMMAND "${Python3_EXECUTABLE}" "${NEAP_BOOT_FOLDER}/write_commit.py" --source "${PROJECT_SOURCE_DIR}" --output "${NEAP_COMMIT_SOURCE}"
    BYPRODUCTS "${NEAP_COMMIT_SOURCE}"
    COMMENT ""
    VERBATIM)
  add_library(neap_commit OBJECT "${NEAP_COMMIT_SOURCE}")
  target_link_libraries(neap_commit PRIVATE neap_options)
  add_dependencies(neap_commit neap_commit_source)
endif()

function(neap_application name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES;PORTS")
  set(PROJECT_VERSION "${NEAP_VERSION}")  # Neap's version, not that of the application's project
  set(NEAP_APPLICATION_NAME "${name}")
  string(TOLOWER "${CMAKE_BUILD_TYPE}" NEAP_BUILD_TYPE)
  set(name_source "${CMAKE_CURRENT_BINARY_DIR}/${name}_application_name.cpp")
  configure_file("${NEAP_BOOT_FOLDER}/application_name.cpp.in" "${name_source}" @ONLY)
  add_executable(${name}.elf ${arg_SOURCES} "${name_source}")
  target_link_libraries(${name}.elf PRIVATE neap_options neap_commit neap_kernel neap_x86 neap_boot ${arg_LIBRARIES})
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    # In one partition: GCC 14.2 fails on partitions of an image with this many coroutines (add_symbol_to_partition_1).
    target_link_options(${name}.elf PRIVATE -O2 -flto=auto -flto-partition=none -flinker-output=nolto-rel -frandom-seed=${name})
  endif()
  set_target_properties(${name}.elf PROPERTIES LINKER_LANGUAGE CXX LINK_DEPENDS "${NEAP_LINK_SCRIPT};${NEAP_LINKER}")

  # The launcher reads the images of an application's folder from this file: tools/outside.py.
  string(JOIN "," ports ${arg_PORTS})
  set_property(GLOBAL APPEND PROPERTY NEAP_APPLICATIONS "${name}\t${CMAKE_CURRENT_BINARY_DIR}/${name}.elf\t${ports}\n")
  get_property(all GLOBAL PROPERTY NEAP_APPLICATIONS)
  string(CONCAT all ${all})
  file(WRITE "${CMAKE_BINARY_DIR}/neap-applications.txt" "${all}")
endfunction()

function(neap_target_test name)
  neap_application(${name} ${ARGN})
  add_dependencies(target_tests ${name}.elf)
endfunction()

if(NOT NEAP_OUTSIDE)
  add_custom_target(target_tests COMMENT "Images of tests/target")
endif()
