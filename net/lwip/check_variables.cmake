# SPDX-License-Identifier: BSL-1.0
# Fails if an object file of lwIP has a variable that all cores would share (lwip-patches/0001):
#   cmake -DNM=… -DOBJECTS=a;b -P check_variables.cmake
# Relocated constants (.data.rel.ro) and the sanitizers' own variables are allowed.
set(shared "")
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND "${NM}" --format=sysv "${object}" OUTPUT_VARIABLE symbols RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${NM} cannot read ${object}")
  endif()
  string(REGEX MATCHALL "[^\n]+" lines "${symbols}")
  foreach(line IN LISTS lines)
    if(line MATCHES "OBJECT" AND line MATCHES "\\|[.](data|bss)" AND NOT line MATCHES "[.]data[.]rel[.]ro"
       AND NOT line MATCHES "__odr_asan|__asan|_ubsan|[.]L")
      string(APPEND shared "\n${object}: ${line}")
    endif()
  endforeach()
endforeach()
if(shared)
  message(FATAL_ERROR "variables that all cores share:${shared}")
endif()
