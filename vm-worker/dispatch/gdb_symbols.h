// Names of generated kernels for gdb, through its JIT interface: a list of ELF files in memory that gdb reads when it
// attaches, and whenever a function that it has a breakpoint in is called.
#pragma once

#include <memory>
#include <string>

#include "common/artifact/plan.h"
#include "common/native/code_mapping.h"

namespace kiln {

// `code` again, entered into the list for as long as a copy of the returned pointer lives: an ELF file without code of
// its own, with one function per kernel, "kiln.MODEL.LABEL.KERNEL" with '_' for what C identifiers and '.' do not
// allow. The same as given where no kernel is in it. Any thread.
std::shared_ptr<const CodeMapping> NameForGdb(const std::string& model, const Plan& plan,
                                              std::shared_ptr<const CodeMapping> code);

}  // namespace kiln
