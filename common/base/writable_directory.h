// Directories that a flag names, looked at before a service says that it is ready.
#pragma once

#include <string>

#include "common/base/result.h"

namespace kiln {

// Makes the directory where there is none (mode 0700; one that exists is not changed) and tries to make a file in it. A
// full disk is no error: it may have room later. InvalidArgument (IoError where the machine fails) names the directory
// and the reason. Any thread.
Status MakeWritable(const std::string& directory);

}  // namespace kiln
