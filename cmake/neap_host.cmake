# SPDX-License-Identifier: BSL-1.0
# Unit tests on the host. `neap_host_test(NAME SOURCES … LIBRARIES …)` makes a GoogleTest program that ctest runs.
set(NEAP_SANITIZE "" CACHE STRING "Sanitizers for everything built on the host, in the format of -fsanitize=")
# -Og: the undefined-behaviour sanitizer's checks take half as long to compile as with -O1.
set(optimisation "-O1")
if(NEAP_SANITIZE MATCHES "undefined")
  set(optimisation "-Og")
endif()
set(CMAKE_CXX_FLAGS_DEBUG "${optimisation}")
set(CMAKE_C_FLAGS_DEBUG "${optimisation}")
if(NEAP_SANITIZE)
  target_compile_options(neap_common INTERFACE "-fsanitize=${NEAP_SANITIZE}" -fno-omit-frame-pointer)
  target_link_options(neap_common INTERFACE "-fsanitize=${NEAP_SANITIZE}")
endif()
find_package(GTest REQUIRED)
find_package(Threads REQUIRED)
include(GoogleTest)
enable_testing()

# ONE_THREAD: the test has only one thread, so the thread sanitizer's build leaves it out.
function(neap_host_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "ONE_THREAD" "TIMEOUT_S" "SOURCES;LIBRARIES")
  if(arg_ONE_THREAD AND NEAP_SANITIZE STREQUAL "thread")
    return()
  endif()
  if(NOT arg_TIMEOUT_S)
    set(arg_TIMEOUT_S 60)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE neap_options ${arg_LIBRARIES} GTest::gtest_main Threads::Threads)
  # GoogleTest's ASSERT macros are if-else chains: the warning would forbid `if (x) ASSERT_EQ(…);`.
  target_compile_options(${name} PRIVATE -Wno-dangling-else)
  # A test's own code runs once. Without optimisation it compiles in half the time with the undefined-behaviour sanitizer's checks. The
  # thread sanitizer's checks compile fast and run slowly, so its tests are optimised.
  if(NOT NEAP_SANITIZE STREQUAL "thread")
    target_compile_options(${name} PRIVATE -O0)
  endif()
  # ctest starts the costliest tests first. It knows durations only from earlier runs in the same build directory, so the limits stand for
  # them in the first run.
  set(properties TIMEOUT ${arg_TIMEOUT_S} COST ${arg_TIMEOUT_S})
  # At a process's end the thread sanitizer waits a second for races of threads that still run. The threads of all cores have ended then.
  # Only the watchdog's thread (tests/host/progress_watchdog.cpp) is left. It sleeps, and its data are never destroyed.
  if(NEAP_SANITIZE STREQUAL "thread")
    list(APPEND properties ENVIRONMENT_MODIFICATION "TSAN_OPTIONS=path_list_append:atexit_sleep_ms=0")
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES ${properties})
endfunction()
