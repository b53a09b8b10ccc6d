// Operators of plug-ins (common/plugin/kiln_plugin.h): what CallFunc nodes run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/plugin/kiln_plugin.h"

namespace kiln {

// Checked copy of a declaration. The functions and texts live as long as the process: plug-ins are never unloaded.
struct UserOp {
  std::string domain, type, plugin;
  int inputs_min, inputs_max, outputs_min;
  std::vector<KilnPluginOutput> outputs;
  KilnPluginFunction shape, compute;
};

// Adds a plug-in's operators to this process. InvalidArgument for another ABI or a declaration that cannot be,
// AlreadyExists for an operator that another plug-in declares; then none of them is added. Any thread.
Status RegisterPlugin(const KilnPlugin& plugin, std::string_view path);
// nullptr when no plug-in declares it. Any thread; the pointer lives as long as the process.
const UserOp* FindUserOp(std::string_view domain, std::string_view type);

// How a node's attributes are written into the attribute `arguments` of CallFunc, one text each, and back:
// "axis i 3", "alpha f 0x1p-1", "mode s any text", "perm I 0 2 1", "scales F 0x1p+0".
std::string EncodeIntArgument(std::string_view name, int64_t value);
std::string EncodeFloatArgument(std::string_view name, double value);
std::string EncodeTextArgument(std::string_view name, std::string_view value);
std::string EncodeIntsArgument(std::string_view name, const std::vector<int64_t>& values);
std::string EncodeFloatsArgument(std::string_view name, const std::vector<double>& values);

}  // namespace kiln
