#include "vm-worker/service/model_registry.h"

#include <spdlog/spdlog.h>

#include "common/base/clock.h"
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
  for (auto& [name, entry] : entries_) tiers_.RemoveModel(entry.served->model);
}

Result<LoadReply> ModelRegistry::Load(const LoadRequest& request) {
  if (request.name.empty() || request.name.size() > limits::kNameBytesMax)
    return Fail(ErrorCode::kInvalidArgument,
                "a model needs a name of 1 to " + std::to_string(limits::kNameBytesMax) + " bytes");
  {
    std::lock_guard lock(mutex_);
    if (auto it = entries_.find(request.name); it != entries_.end()) {
      if (it->second.path == request.path) return it->second.reply;
      return Fail(ErrorCode::kAlreadyExists,
                  "model \"" + request.name + "\" is loaded from " + it->second.path + "; unload it first");
    }
  }
  const int64_t start = SystemClock().NowNs();
  ASSIGN_OR_RETURN(ImportedModel imported, ReadModel(request.path));
  auto served = std::make_shared<ServedModel>();
  LoadReply reply;
  for (const ImportedValue& input : imported.inputs)
    reply.inputs.push_back(InfoOfValue(input.name, input.desc, imported.program.symbols));
  for (const ImportedValue& output : imported.outputs)
    reply.outputs.push_back(InfoOfValue(output.name, output.desc, imported.program.symbols));
  for (const Function& function : imported.program.functions)
    for (const Region& region : function.regions) reply.nodes += static_cast<uint32_t>(region.nodes.size());
  ASSIGN_OR_RETURN(std::shared_ptr<const LoadedProgram> program, LoadedProgram::Load(std::move(imported.program)));
  ASSIGN_OR_RETURN(served->charge, MemoryCharge::Take(tiers_.options().budget, MemoryUse::kModels,
                                                      static_cast<int64_t>(program->overhead_bytes())));
  reply.segments = static_cast<uint32_t>(program->segments().size());
  served->inputs = reply.inputs;
  served->outputs = reply.outputs;
  served->model = std::make_shared<Model>(request.name, std::move(program), epochs_);
  reply.load_us = static_cast<uint64_t>((SystemClock().NowNs() - start) / 1000);
  {
    std::lock_guard lock(mutex_);
    const auto [it, added] = entries_.try_emplace(request.name, Entry{request.path, served, reply});
    if (!added) return it->second.reply;  // loaded by another request meanwhile
  }
  tiers_.AddModel(served->model);
  spdlog::info("model {} loaded from {}: {} nodes, {} segments, {} us", request.name, request.path, reply.nodes,
               reply.segments, reply.load_us);
  return reply;
}

Status ModelRegistry::Unload(const std::string& name) {
  std::shared_ptr<const ServedModel> served;
  {
    std::lock_guard lock(mutex_);
    const auto it = entries_.find(name);
    if (it == entries_.end()) return Fail(ErrorCode::kNotFound, "no model \"" + name + "\" is loaded");
    served = it->second.served;
    entries_.erase(it);
  }
  tiers_.RemoveModel(served->model);
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
