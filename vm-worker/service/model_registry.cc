#include "vm-worker/service/model_registry.h"

#include <spdlog/spdlog.h>

#include <filesystem>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "vm-worker/onnx/model_source.h"

namespace kiln {
ValueInfo InfoOfValue(const std::string& name, const TensorDesc& desc, const SymbolTable& symbols) {
  ValueInfo info;
  info.name = name;
  info.dtype = desc.dtype;
  info.has_rank = desc.has_rank();
  if (desc.has_rank())
    for (Dim dim : *desc.dims) info.dims.push_back(dim.is_const() ? dim.value() : -1);
  info.text = ToString(desc, symbols);
  return info;
}

ModelRegistry::~ModelRegistry() {
  for (auto& [name, entry] : entries_) {
    tiers_.RemoveModel(entry.served->model);
    for (auto& [overrides, variant] : entry.variants) tiers_.RemoveModel(variant->model);
  }
}

Result<std::shared_ptr<ServedModel>> ModelRegistry::Read(const std::string& name, const std::string& path,
                                                         std::vector<std::string> overrides, LoadReply& reply) {
  const int64_t start = SystemClock().NowNs();
  ASSIGN_OR_RETURN(ImportedModel imported, ReadModel(path, ImportOptions{.overrides = std::move(overrides)}));
  auto served = std::make_shared<ServedModel>();
  for (const ImportedValue& input : imported.inputs)
    reply.inputs.push_back(InfoOfValue(input.name, input.desc, imported.program.symbols));
  for (const ImportedValue& output : imported.outputs)
    reply.outputs.push_back(InfoOfValue(output.name, output.desc, imported.program.symbols));
  for (const OverridableInput& input : imported.overridable)
    reply.optional_inputs.push_back(
        {input.name, input.dtype, input.dims.has_value(), input.dims.value_or(std::vector<int64_t>{}), input.text});
  for (const Function& function : imported.program.functions)
    for (const Region& region : function.regions) reply.nodes += static_cast<uint32_t>(region.nodes.size());
  ASSIGN_OR_RETURN(std::shared_ptr<const LoadedProgram> program, LoadedProgram::Load(std::move(imported.program)));
  ASSIGN_OR_RETURN(served->charge, MemoryCharge::Take(tiers_.options().budget, MemoryUse::kModels,
                                                      static_cast<int64_t>(program->overhead_bytes())));
  reply.segments = static_cast<uint32_t>(program->segments().size());
  served->inputs = reply.inputs;
  served->outputs = reply.outputs;
  served->optional_inputs = reply.optional_inputs;
  served->model = std::make_shared<Model>(name, std::move(program), epochs_);
  reply.load_us = static_cast<uint64_t>((SystemClock().NowNs() - start) / 1000);
  return served;
}

namespace {

// By name, whatever the folder each was spelled from, or by what the names lead to.
bool IsSameFile(const std::string& path, const std::string& other) {
  std::error_code error;
  return path == other || (std::filesystem::equivalent(path, other, error) && !error);
}

}  // namespace

Result<LoadReply> ModelRegistry::Load(const LoadRequest& asked) {
  LoadRequest request = asked;
  std::error_code no_folder;  // then the path is read as it is
  if (auto path = std::filesystem::absolute(asked.path, no_folder); !no_folder && !asked.path.empty())
    request.path = path.string();
  if (request.name.empty() || request.name.size() > limits::kNameBytesMax)
    return Fail(ErrorCode::kInvalidArgument,
                "a model needs a name of 1 to " + std::to_string(limits::kNameBytesMax) + " bytes");
  {
    std::lock_guard lock(mutex_);
    if (auto it = entries_.find(request.name); it != entries_.end()) {
      if (IsSameFile(it->second.path, request.path)) return it->second.reply;
      return Fail(ErrorCode::kAlreadyExists,
                  "model \"" + request.name + "\" is loaded from " + it->second.path + "; unload it first");
    }
  }
  LoadReply reply;
  ASSIGN_OR_RETURN(const std::shared_ptr<ServedModel> served, Read(request.name, request.path, {}, reply));
  {
    std::lock_guard lock(mutex_);
    const auto [it, added] = entries_.try_emplace(request.name, Entry{request.path, served, reply, {}});
    if (!added) return it->second.reply;  // loaded by another request meanwhile
  }
  tiers_.AddModel(served->model);
  spdlog::info("model {} loaded from {}: {} nodes, {} segments, {} us", request.name, request.path, reply.nodes,
               reply.segments, reply.load_us);
  return reply;
}

Result<std::shared_ptr<const ServedModel>> ModelRegistry::FindVariant(const std::string& name,
                                                                      const std::vector<std::string>& overrides) const {
  std::lock_guard lock(mutex_);
  const auto entry = entries_.find(name);
  if (entry == entries_.end()) return Fail(ErrorCode::kNotFound, "no model \"" + name + "\" is loaded");
  const auto& variants = entry->second.variants;
  if (const auto it = variants.find(overrides); it != variants.end()) return it->second;
  if (variants.size() < limits::kModelVariantsMax) return nullptr;
  return Fail(ErrorCode::kLimitExceeded,
              "model \"" + name + "\" answers runs that override " + std::to_string(limits::kModelVariantsMax) +
                  " different sets of initialisers already; load it under another name for more");
}

Status ModelRegistry::LoadVariant(const std::string& name, const std::vector<std::string>& overrides) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const ServedModel> known, FindVariant(name, overrides));
  if (known != nullptr) return {};
  std::string path;
  {
    std::lock_guard lock(mutex_);
    path = entries_.at(name).path;
  }
  LoadReply reply;
  ASSIGN_OR_RETURN(const std::shared_ptr<ServedModel> served, Read(name, path, overrides, reply));
  tiers_.AddModel(served->model);  // waits for the control thread: not while requests wait for mutex_
  {
    std::lock_guard lock(mutex_);
    entries_.at(name).variants.emplace(overrides, served);
  }
  spdlog::info("model {} loaded with {} of its initialisers as inputs: {} us", name, overrides.size(), reply.load_us);
  return {};
}

Status ModelRegistry::Unload(const std::string& name) {
  Entry entry;
  {
    std::lock_guard lock(mutex_);
    const auto it = entries_.find(name);
    if (it == entries_.end()) return Fail(ErrorCode::kNotFound, "no model \"" + name + "\" is loaded");
    entry = std::move(it->second);
    entries_.erase(it);
  }
  tiers_.RemoveModel(entry.served->model);
  for (const auto& [overrides, variant] : entry.variants) tiers_.RemoveModel(variant->model);
  return {};
}

std::vector<std::string> ModelRegistry::Names() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

Result<std::shared_ptr<const ServedModel>> ModelRegistry::Find(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto it = entries_.find(name);
  if (it != entries_.end()) return it->second.served;
  std::string loaded;
  for (const auto& [other, entry] : entries_) loaded += (loaded.empty() ? "" : ", ") + other;
  return Fail(ErrorCode::kNotFound,
              "no model \"" + name + "\" is loaded; loaded: " + (loaded.empty() ? "none" : loaded));
}

}  // namespace kiln
