// What holds for every program that VerifyProgram accepts.
#pragma once

#include <memory>
#include <string>

#include "common/bytecode/program.h"

namespace kiln {
class LoadedProgram;
}

namespace kiln::fuzz {

// Ends the process with the program's text and what is wrong, unless `wrong` is empty.
void ExpectOf(const Program& program, const std::string& wrong);
// The text and the binary form give the same program back.
void CheckForms(const Program& program);
// It loads, unless it passes a limit, needs a kernel that is missing or can answer no call (then null): its segments
// have canonical forms that survive being sent, and its compact form passes the second verifier.
std::shared_ptr<const LoadedProgram> CheckLoads(const Program& program);

}  // namespace kiln::fuzz
