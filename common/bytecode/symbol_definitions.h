// Where symbols get their values while a program runs.
//
// A symbol is defined by the first dim that is exactly that symbol, in execution order: of an input of the function, of
// a region's input, or of a node's output. What a nested region defines is not visible outside it. Every other dim is a
// check.
#pragma once

#include <cstdint>
#include <vector>

#include "common/bytecode/program.h"

namespace kiln {

struct SymbolDefinitions {
  // [function][value][dim]; empty for values that define nothing.
  std::vector<std::vector<std::vector<bool>>> defines;
  // [function][value]: constraints of the program of which every symbol has its value once this one's have.
  std::vector<std::vector<std::vector<uint32_t>>> constraints;

  bool Defines(int function, ValueId value) const {
    return !defines[static_cast<size_t>(function)][static_cast<size_t>(value)].empty();
  }
};

SymbolDefinitions FindSymbolDefinitions(const Program& program);

}  // namespace kiln
