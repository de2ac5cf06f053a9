# ask_python(ANSWER CODE REMEDY): the lines that CODE prints, as a list; fails with REMEDY where the build's Python cannot run it.
function(ask_python answer code remedy)
  execute_process(COMMAND ${DRAFTSMITH_PYTHON} -c "${code}" OUTPUT_VARIABLE lines OUTPUT_STRIP_TRAILING_WHITESPACE
                  RESULT_VARIABLE status ERROR_VARIABLE error)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${DRAFTSMITH_PYTHON} ${remedy}\n${error}")
  endif()
  string(REPLACE "\n" ";" lines "${lines}")
  set(${answer} "${lines}" PARENT_SCOPE)
endfunction()
