// Opens plug-ins.
#pragma once

#include <string>

#include "common/base/result.h"

namespace kiln {

// Opens the shared library and adds its operators to this process, for good. The library's code runs in this process
// with all its rights: only files that the process's owner trusts. NotFound when it cannot be opened, InvalidArgument
// when it exports no kiln_plugin or another version of it, and as RegisterPlugin. Before models that need it are
// loaded. Any thread.
Status LoadPlugin(const std::string& path);

}  // namespace kiln
