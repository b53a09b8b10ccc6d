#include "common/ops/user_ops.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>

#include "common/base/limits.h"
#include "common/tensor/dtype.h"

namespace kiln {
namespace {

std::mutex& OpsMutex() {
  static std::mutex mutex;
  return mutex;
}
using OpKey = std::pair<std::string, std::string>;  // domain, type
std::map<OpKey, std::unique_ptr<const UserOp>, std::less<>>& Ops() {
  static std::map<OpKey, std::unique_ptr<const UserOp>, std::less<>> ops;
  return ops;
}

bool IsName(const char* text) {
  return text != nullptr && *text != 0 && std::string_view(text).size() <= limits::kNameBytesMax;
}

Status CheckOutput(const KilnPluginOutput& output, const KilnPluginOp& op) {
  const auto of_input = [&op](int32_t value) { return value <= -1 && -1 - value < op.inputs_min; };
  if (!of_input(output.dtype) && (output.dtype < 0 || !DTypeFromNumber(output.dtype)))
    return Fail(ErrorCode::kInvalidArgument, fmt::format("dtype {} of an output is none", output.dtype));
  if (!of_input(output.rank) && output.rank != KILN_RANK_FROM_SHAPE &&
      (output.rank < 0 || output.rank > limits::kRankMax))
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("rank {} of an output; 0 to {} are possible", output.rank, limits::kRankMax));
  return {};
}

Result<std::unique_ptr<const UserOp>> CheckedOp(const KilnPluginOp& op, const std::string& plugin) {
  if (!IsName(op.domain) || !IsName(op.type))
    return Fail(ErrorCode::kInvalidArgument, "an operator without a domain or a type");
  const std::string what = std::string(op.domain) + "." + op.type;
  if (std::string_view(op.domain) == "ai.onnx")
    return Fail(ErrorCode::kInvalidArgument, what + ": the domain is ONNX's own; take another");
  if (op.inputs_min < 1 || op.inputs_max < op.inputs_min || op.inputs_max > limits::kUserOpOperandsMax ||
      op.outputs_min < 1 || op.output_count < static_cast<size_t>(op.outputs_min) ||
      op.output_count > limits::kUserOpOperandsMax || op.outputs == nullptr)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: {} to {} inputs and {} to {} outputs; 1 to {} are possible", what, op.inputs_min,
                            op.inputs_max, op.outputs_min, op.output_count, limits::kUserOpOperandsMax));
  if (op.shape == nullptr || op.compute == nullptr)
    return Fail(ErrorCode::kInvalidArgument, what + " has no shape function or no compute function");
  for (size_t i = 0; i < op.output_count; ++i)
    if (Status status = CheckOutput(op.outputs[i], op); !status.has_value()) return FailIn(what, status.error());
  return std::unique_ptr<const UserOp>(new UserOp{op.domain,
                                                  op.type,
                                                  plugin,
                                                  op.inputs_min,
                                                  op.inputs_max,
                                                  op.outputs_min,
                                                  {op.outputs, op.outputs + op.output_count},
                                                  op.shape,
                                                  op.compute});
}

}  // namespace

Status RegisterPlugin(const KilnPlugin& plugin, std::string_view path) {
  if (plugin.abi != KILN_PLUGIN_ABI)
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("plug-in {} is built for version {} of the plug-in interface, this worker has {}; build it again "
                    "with this version's kiln_plugin.h",
                    path, plugin.abi, KILN_PLUGIN_ABI));
  if (!IsName(plugin.name) || plugin.op_count == 0 || plugin.ops == nullptr || plugin.op_count > 4096)
    return Fail(ErrorCode::kInvalidArgument, fmt::format("plug-in {} has no name or declares no operators", path));
  std::vector<std::unique_ptr<const UserOp>> checked;
  for (size_t i = 0; i < plugin.op_count; ++i) {
    auto op = CheckedOp(plugin.ops[i], plugin.name);
    if (!op.has_value()) return FailIn("plug-in " + std::string(path), op.error());
    checked.push_back(std::move(*op));
  }
  std::lock_guard lock(OpsMutex());
  for (const auto& op : checked)
    if (const auto found = Ops().find(OpKey(op->domain, op->type)); found != Ops().end())
      return Fail(ErrorCode::kAlreadyExists, fmt::format("plug-in {} declares {}.{}, which plug-in {} has declared",
                                                         path, op->domain, op->type, found->second->plugin));
  for (auto& op : checked) {
    OpKey key(op->domain, op->type);
    Ops().emplace(std::move(key), std::move(op));
  }
  return {};
}

const UserOp* FindUserOp(std::string_view domain, std::string_view type) {
  std::lock_guard lock(OpsMutex());
  const auto found = Ops().find(OpKey(domain, type));
  return found == Ops().end() ? nullptr : found->second.get();
}

std::string EncodeIntArgument(std::string_view name, int64_t value) {
  return fmt::format("{} i {}", name, value);
}
std::string EncodeFloatArgument(std::string_view name, double value) {
  return fmt::format("{} f {:a}", name, value);
}
std::string EncodeTextArgument(std::string_view name, std::string_view value) {
  return fmt::format("{} s {}", name, value);
}
std::string EncodeIntsArgument(std::string_view name, const std::vector<int64_t>& values) {
  std::string text = fmt::format("{} I", name);
  for (int64_t value : values) text += fmt::format(" {}", value);
  return text;
}
std::string EncodeFloatsArgument(std::string_view name, const std::vector<double>& values) {
  std::string text = fmt::format("{} F", name);
  for (double value : values) text += fmt::format(" {:a}", value);
  return text;
}

}  // namespace kiln
