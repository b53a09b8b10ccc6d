#include "vm-worker/plugin/load_plugin.h"

#include <dlfcn.h>

#include <filesystem>

#include "common/ops/user_ops.h"

namespace kiln {

Status LoadPlugin(const std::string& path) {
  // A path, never a name that the loader would look for in its own places.
  std::error_code failed;
  const std::string file = std::filesystem::absolute(path, failed).string();
  if (failed || !std::filesystem::exists(file, failed))
    return Fail(ErrorCode::kNotFound, "plug-in " + path + " does not exist");
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Fail(ErrorCode::kNotFound, "plug-in " + path + " cannot be opened: " + dlerror());
  auto* entry = reinterpret_cast<decltype(&kiln_plugin)>(dlsym(library, "kiln_plugin"));
  if (entry == nullptr)
    return Fail(ErrorCode::kInvalidArgument,
                "library " + path + " exports no function kiln_plugin; it is no plug-in (see kiln_plugin.h)");
  const KilnPlugin* plugin = entry();
  if (plugin == nullptr) return Fail(ErrorCode::kInvalidArgument, "plug-in " + path + " describes nothing");
  return RegisterPlugin(*plugin, path);
}

}  // namespace kiln
