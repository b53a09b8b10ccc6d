// Where symbols get their values while a program runs.
//
// A symbol is defined by the first dim that is exactly that symbol, in execution order: of an input of the function, of
// a region's input, or of a node's output. What a nested region defines is not visible outside it. Every other dim is a
// check.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/bytecode/program.h"

namespace kiln {

struct SymbolDefinitions {
  // [function][value][dim]; empty for values that define nothing.
  std::vector<std::vector<std::vector<bool>>> defines;
  // [function][value][dim]: whether the dim mentions a symbol that has no value yet once the value exists, or is past
  // the limits of expressions; empty where none is. Nothing can be said of such a dim when the program runs.
  std::vector<std::vector<std::vector<bool>>> unbound;
  // [function][value]: constraints of the program of which every symbol has its value once this one's have.
  std::vector<std::vector<std::vector<uint32_t>>> constraints;

  bool Defines(int function, ValueId value) const {
    return !defines[static_cast<size_t>(function)][static_cast<size_t>(value)].empty();
  }
  bool HasUnbound(int function, ValueId value) const {
    return !unbound[static_cast<size_t>(function)][static_cast<size_t>(value)].empty();
  }
};

// `given`: symbols that the caller of the program gives values to (a segment's parameters); nothing defines them.
SymbolDefinitions FindSymbolDefinitions(const Program& program, std::span<const SymbolId> given = {});

}  // namespace kiln
