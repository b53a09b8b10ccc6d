// One function of the text form. Private to common/bytecode.
#pragma once

#include <string>
#include <unordered_map>

#include "common/base/text_reader.h"
#include "common/bytecode/program.h"

namespace kiln {

// Reads what follows "func". Dims go into the program's symbol table, constants are found by the names they were given.
// The error names line and column.
Result<Function> ParseFunction(TextReader& reader, Program& program,
                               const std::unordered_map<std::string, ConstantId>& constants);

}  // namespace kiln
