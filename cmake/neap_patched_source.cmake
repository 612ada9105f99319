# SPDX-License-Identifier: BSL-1.0
# Copies a pristine third-party source into the build directory and applies a folder of patches in order. This is repeated when a patch, the
# list of patches or the path of the source changes. The marker file is written last, so that an interrupted copy is repeated.
#
#   neap_patched_source(OUT_VARIABLE NAME lwIP VERSION 2.2.1 VARIABLE NEAP_LWIP_SOURCE FOLDER src CHECK core/tcp.c [PATCHES lwip-patches])
#
# VARIABLE is the cache variable with the path of the unpatched tree; the environment's variable of that name is its default. Only FOLDER
# of the tree is copied; CHECK is a file in it. OUT_VARIABLE is set to the copy of FOLDER. Without PATCHES nothing is copied, and
# OUT_VARIABLE is set to the tree's own FOLDER.
function(neap_patched_source out)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "NAME;VERSION;VARIABLE;FOLDER;CHECK;PATCHES" "")
  set(${arg_VARIABLE} "$ENV{${arg_VARIABLE}}" CACHE PATH "The unpatched source of ${arg_NAME} ${arg_VERSION}")
  set(source "${${arg_VARIABLE}}")
  if(NOT EXISTS "${source}/${arg_FOLDER}/${arg_CHECK}")
    message(FATAL_ERROR "No ${arg_NAME} source at ${arg_VARIABLE}='${source}'. './neap build' fetches it and sets the path.")
  endif()
  if(NOT arg_PATCHES)
    set(${out} "${source}/${arg_FOLDER}" PARENT_SCOPE)
    return()
  endif()
  find_program(NEAP_PATCH_PROGRAM patch REQUIRED)
  file(GLOB patches CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${arg_PATCHES}/*.patch")
  list(SORT patches)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${patches})
  file(READ "${source}/${arg_FOLDER}/${arg_CHECK}" contents)
  string(SHA256 hash "${source}${contents}")
  foreach(patch IN LISTS patches)
    file(SHA256 "${patch}" one)
    string(SHA256 hash "${hash}${one}")
  endforeach()

  string(TOLOWER "${arg_NAME}" directory)
  set(tree "${CMAKE_CURRENT_BINARY_DIR}/${directory}")
  set(marker "${tree}/.prepared")
  set(present "")
  if(EXISTS "${marker}")
    file(READ "${marker}" present)
  endif()
  if(NOT present STREQUAL hash)
    file(REMOVE_RECURSE "${tree}")
    file(COPY "${source}/${arg_FOLDER}" DESTINATION "${tree}")
    foreach(patch IN LISTS patches)
      execute_process(COMMAND "${NEAP_PATCH_PROGRAM}" --batch --forward --strip=1 --fuzz=0 "--input=${patch}"
                      WORKING_DIRECTORY "${tree}" RESULT_VARIABLE result OUTPUT_VARIABLE text ERROR_VARIABLE text)
      if(NOT result EQUAL 0)
        message(FATAL_ERROR "${arg_NAME} patch ${patch} does not apply to ${source} (it is made for ${arg_VERSION}):\n${text}")
      endif()
    endforeach()
    file(WRITE "${marker}" "${hash}")
  endif()
  set(${out} "${tree}/${arg_FOLDER}" PARENT_SCOPE)
endfunction()
