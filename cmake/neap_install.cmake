# SPDX-License-Identifier: BSL-1.0
# The files for applications outside this repository: `cmake --install` copies them below a prefix. The build directory is a prefix, too.
#
#   include/neap/          headers, with the same paths as here
#   lib/neap/              libraries, linker script, linker
#   lib/cmake/Neap/        find_package(Neap), and toolchain.cmake for CMAKE_TOOLCHAIN_FILE
#
# `neap_libraries` builds all of it.
include(CMakePackageConfigHelpers)
set(libraries neap_kernel neap_x86 neap_boot neap_address neap_net neap_receive_pool neap_ixgbe neap_virtio_bus neap_virtio neap_cards
  neap_observe)
add_custom_target(neap_libraries)
add_dependencies(neap_libraries ${libraries})

set(package_folder "lib/cmake/Neap")
set(NEAP_LAUNCHER "${PROJECT_SOURCE_DIR}/neap")
install(TARGETS neap_common neap_options ${libraries} EXPORT NeapTargets
  OBJECTS DESTINATION lib/neap ARCHIVE DESTINATION lib/neap)
install(EXPORT NeapTargets DESTINATION "${package_folder}")
export(EXPORT NeapTargets FILE "${PROJECT_BINARY_DIR}/${package_folder}/NeapTargets.cmake")

# Headers that applications may include, and the headers that those include. Headers that need lwIP or Boost, and kernel/x86, are left out.
install(DIRECTORY kernel DESTINATION include/neap
  FILES_MATCHING PATTERN "*.hpp" PATTERN x86 EXCLUDE PATTERN libc EXCLUDE PATTERN testdata EXCLUDE PATTERN "crc32c.hpp" EXCLUDE
  PATTERN "*_testing.hpp" EXCLUDE PATTERN "*_fixture.hpp" EXCLUDE)
install(FILES net/address.hpp net/buffer.hpp net/network.hpp net/object_pool.hpp net/payload_reference.hpp DESTINATION include/neap/net)
install(FILES observe/allow_list.hpp observe/control.hpp observe/ebbrt_lines.hpp observe/options.hpp
  DESTINATION include/neap/observe)
install(DIRECTORY drivers DESTINATION include/neap FILES_MATCHING PATTERN "*.hpp" PATTERN "test_*.hpp" EXCLUDE)
install(FILES "${PROJECT_BINARY_DIR}/drivers/ixgbe/generated/ixgbe/registers.hpp" DESTINATION include/neap/ixgbe)
install(FILES boot/image.ld boot/application_name.cpp.in DESTINATION lib/neap)
install(PROGRAMS boot/link_image.py boot/write_commit.py DESTINATION lib/neap)
install(FILES cmake/neap_image.cmake DESTINATION "${package_folder}")
install(FILES LICENSE DESTINATION share/doc/neap)

# The package's configuration is written twice: for the build directory, and for the installed files.
set(NEAP_BOOT_FOLDER_OF_PACKAGE "${NEAP_BOOT_FOLDER}")
set(NEAP_IMAGE_MODULE "${PROJECT_SOURCE_DIR}/cmake/neap_image.cmake")
configure_file(cmake/NeapConfig.cmake.in "${PROJECT_BINARY_DIR}/${package_folder}/NeapConfig.cmake" @ONLY)
set(NEAP_BOOT_FOLDER_OF_PACKAGE "\${CMAKE_CURRENT_LIST_DIR}/../../neap")
set(NEAP_IMAGE_MODULE "\${CMAKE_CURRENT_LIST_DIR}/neap_image.cmake")
configure_file(cmake/NeapConfig.cmake.in "${PROJECT_BINARY_DIR}/install/NeapConfig.cmake" @ONLY)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/${package_folder}/NeapConfigVersion.cmake" COMPATIBILITY SameMinorVersion)

configure_file(cmake/toolchain.cmake "${PROJECT_BINARY_DIR}/${package_folder}/toolchain.cmake" COPYONLY)
file(WRITE "${PROJECT_BINARY_DIR}/${package_folder}/toolchain-prefix.txt" "${NEAP_TOOLCHAIN}\n")
install(FILES
  "${PROJECT_BINARY_DIR}/install/NeapConfig.cmake"
  "${PROJECT_BINARY_DIR}/${package_folder}/NeapConfigVersion.cmake"
  "${PROJECT_BINARY_DIR}/${package_folder}/toolchain.cmake"
  "${PROJECT_BINARY_DIR}/${package_folder}/toolchain-prefix.txt"
  DESTINATION "${package_folder}")
