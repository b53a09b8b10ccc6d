# Every outside package, under one target name each. All come from Debian; the README says why each is here.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Protobuf REQUIRED)
find_package(GTest REQUIRED)
find_package(RocksDB REQUIRED)
find_package(prometheus-cpp REQUIRED CONFIG)
find_program(FLATC flatc REQUIRED)

pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(ZMQ REQUIRED IMPORTED_TARGET libzmq)
# libzmq's flags name the include directories of what it was built from, which its own header never reads. CMake files them under
# one property in its first run and under another in the next, so keeping them would compile everything twice.
set_target_properties(PkgConfig::ZMQ PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "" INTERFACE_COMPILE_OPTIONS "")

# LLVM only ever reaches compile-service/codegen/llvm and what links it.
find_package(LLVM 19.1 REQUIRED CONFIG HINTS /usr/lib/llvm-19)
add_library(kiln_llvm INTERFACE)
target_include_directories(kiln_llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
separate_arguments(KILN_LLVM_DEFINITIONS NATIVE_COMMAND ${LLVM_DEFINITIONS})
target_compile_definitions(kiln_llvm INTERFACE ${KILN_LLVM_DEFINITIONS})
target_link_libraries(kiln_llvm INTERFACE LLVM)
target_link_directories(kiln_llvm INTERFACE ${LLVM_LIBRARY_DIRS})
