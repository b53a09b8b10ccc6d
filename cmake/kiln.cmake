# Targets of this tree are declared through the functions below, so that a folder's CMakeLists.txt says
# only what it holds and what it may use.

set(KILN_WARNINGS -Wall -Wextra -Werror -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  list(REMOVE_ITEM KILN_WARNINGS -Werror)  # it builds the fuzz targets, and warns of more than this project's compiler
endif()

function(_kiln_compile_options target)
  target_compile_options(${target} PRIVATE ${KILN_WARNINGS})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
endfunction()

# kiln_library(NAME SOURCES a.cc … [DEPS targets…]): a static library of one folder.
function(kiln_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  if(arg_SOURCES)
    add_library(${name} STATIC ${arg_SOURCES})
    _kiln_compile_options(${name})
    target_link_libraries(${name} PUBLIC ${arg_DEPS})
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
    target_link_libraries(${name} INTERFACE ${arg_DEPS})
  endif()
endfunction()

# kiln_sources_id(NAME CONSTANT constant GENERATOR text SOURCES …): a header generated_NAME.h with the hash of a code generator's sources, in
# ${NAME}.
function(kiln_sources_id name)
  cmake_parse_arguments(arg "" "CONSTANT;GENERATOR" "SOURCES" ${ARGN})
  list(SORT arg_SOURCES)
  string(REPLACE ";" "|" joined "${arg_SOURCES}")
  set(header ${CMAKE_CURRENT_BINARY_DIR}/generated_${name}.h)
  set(script ${PROJECT_SOURCE_DIR}/cmake/hash_sources.cmake)
  add_custom_command(OUTPUT ${header}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${header} -DCONSTANT=${arg_CONSTANT} "-DGENERATOR=${arg_GENERATOR}" "-DSOURCES=${joined}" -P ${script}
    DEPENDS ${arg_SOURCES} ${script} VERBATIM)
  set(${name} ${header} PARENT_SCOPE)
endfunction()

# kiln_binary(NAME SOURCES main.cc [DEPS targets…]): an executable under build/<preset>/bin.
function(kiln_binary name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  _kiln_compile_options(${name})
  target_link_libraries(${name} PRIVATE ${arg_DEPS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
endfunction()

# kiln_bench(NAME SOURCES main.cc [DEPS targets…]): a benchmark under build/<preset>/bench-bin.
function(kiln_bench name)
  kiln_binary(${name} ${ARGN})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench-bin)
  target_compile_definitions(${name} PRIVATE KILN_BIN_DIR="${PROJECT_BINARY_DIR}/bin")
endfunction()

# kiln_test(NAME SOURCES a_test.cc … [DEPS targets…] [LABELS labels…] [TIMEOUT seconds] [EXHAUSTIVE]): one GoogleTest program, one ctest
# entry; an exhaustive one is left to `make exhaustive`.
function(kiln_test name)
  cmake_parse_arguments(arg "EXHAUSTIVE" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  _kiln_compile_options(${name})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gmock GTest::gtest GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/test-bin)
  target_compile_definitions(${name} PRIVATE KILN_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                             KILN_BIN_DIR="${PROJECT_BINARY_DIR}/bin")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(KILN_SANITIZE)
    math(EXPR arg_TIMEOUT "3 * ${arg_TIMEOUT}")
  endif()
  set(configuration)
  if(arg_EXHAUSTIVE)
    set(configuration CONFIGURATIONS Exhaustive)
  endif()
  add_test(NAME ${name} COMMAND ${name} ${configuration} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
endfunction()

# kiln_schemas(NAME a.fbs …): generated/<dir>/<name>_generated.h for each FlatBuffers schema of this folder. Vectors are checked by
# VerifyFlatVector instead of the library's own check, which does not look at alignment.
function(kiln_schemas name)
  set(outputs)
  foreach(schema ${ARGN})
    get_filename_component(stem ${schema} NAME_WE)
    set(output ${PROJECT_BINARY_DIR}/generated/schemas/${stem}_generated.h)
    add_custom_command(OUTPUT ${output}
      COMMAND ${FLATC} --cpp --cpp-std c++17 --scoped-enums --cpp-include common/base/flatbuffer_vectors.h
              -I ${CMAKE_CURRENT_SOURCE_DIR} -o ${PROJECT_BINARY_DIR}/generated/schemas ${CMAKE_CURRENT_SOURCE_DIR}/${schema}
      COMMAND sed -i "s/verifier\\.VerifyVector(/kiln::VerifyFlatVector(verifier, /" ${output}
      DEPENDS ${ARGN} VERBATIM)
    list(APPEND outputs ${output})
  endforeach()
  add_custom_target(${name}_headers DEPENDS ${outputs})
  add_library(${name} INTERFACE)
  add_dependencies(${name} ${name}_headers)
  target_include_directories(${name} INTERFACE ${PROJECT_BINARY_DIR}/generated)
endfunction()
