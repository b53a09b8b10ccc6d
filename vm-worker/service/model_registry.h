// The models of a worker by name.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/worker_api/worker_api.h"
#include "vm-worker/tiering/tier_controller.h"

namespace kiln {

// How a declared value is described to callers.
ValueInfo InfoOfValue(const std::string& name, const TensorDesc& desc, const SymbolTable& symbols);

// A loaded model with its interface. Immutable but for what Model counts.
struct ServedModel {
  std::shared_ptr<Model> model;
  std::vector<ValueInfo> inputs, outputs;
  std::vector<ValueInfo> optional_inputs;  // initialisers that runs may override: inputs of a variant
  MemoryCharge charge;                     // of the program's tables
};

// Thread-safe, but for Load, LoadVariant and Unload: one thread calls them.
class ModelRegistry {
 public:
  ModelRegistry(EpochDomain& epochs, TierController& tiers) : epochs_(epochs), tiers_(tiers) {}
  ~ModelRegistry();

  // Imports (ONNX, binary or text program), prepares and verifies; blocks for as long as that takes. AlreadyExists when
  // another file is loaded under the name; loading the same file again answers the same.
  Result<LoadReply> Load(const LoadRequest& request);
  Status Unload(const std::string& name);
  std::vector<std::string> Names() const;
  // NotFound names what is loaded.
  Result<std::shared_ptr<const ServedModel>> Find(const std::string& name) const;
  // The model with those optional inputs as inputs, a program of its own that is kept with the model; null: it is not
  // loaded. LimitExceeded beyond kVariantsMax sets of names.
  static constexpr size_t kVariantsMax = 4;
  Result<std::shared_ptr<const ServedModel>> FindVariant(const std::string& name,
                                                         const std::vector<std::string>& overrides) const;
  // Loads it, where it is not loaded; blocks as Load does.
  Status LoadVariant(const std::string& name, const std::vector<std::string>& overrides);

 private:
  struct Entry {
    std::string path;
    std::shared_ptr<const ServedModel> served;
    LoadReply reply;
    std::map<std::vector<std::string>, std::shared_ptr<const ServedModel>> variants;
  };
  // Imports and prepares; fills the reply.
  Result<std::shared_ptr<ServedModel>> Read(const std::string& name, const std::string& path,
                                            std::vector<std::string> overrides, LoadReply& reply);
  EpochDomain& epochs_;
  TierController& tiers_;
  mutable std::mutex mutex_;  // guards entries_
  std::map<std::string, Entry> entries_;
};

}  // namespace kiln
