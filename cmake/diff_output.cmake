# SPDX-License-Identifier: Apache-2.0
# Runs PROGRAM with ARGUMENTS (a|b|c) and fails if it fails or its output differs from the file WANT.
string(REPLACE "|" ";" ARGUMENTS "${ARGUMENTS}")
execute_process(COMMAND ${PROGRAM} ${ARGUMENTS} OUTPUT_VARIABLE said ERROR_VARIABLE errors RESULT_VARIABLE code)
file(READ ${WANT} want)
if(NOT code EQUAL 0 OR NOT said STREQUAL want)
  message(FATAL_ERROR "exit code ${code}\n${errors}\nit said:\n${said}\nand should have said:\n${want}")
endif()
