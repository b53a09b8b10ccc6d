// Files that commands write.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace kiln::cli {

// InvalidArgument when `output` is one of the files that the command reads, however its name is spelled: device and
// inode are compared. A source that does not exist is none.
Status CheckIsNoSource(const std::filesystem::path& output, const std::vector<std::filesystem::path>& sources);

// Written next to the target and renamed onto it, so that a failure leaves what was there. NotFound when its folder is
// not there.
Status WriteFile(const std::filesystem::path& path, std::string_view bytes);

}  // namespace kiln::cli
