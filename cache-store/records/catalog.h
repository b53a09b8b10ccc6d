// Catalog: the in-memory image of plans, kernels and the kernel index, with reference counts and byte totals. Not
// thread-safe; Records guards it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache-store/records/entry.h"

namespace kiln::store {

struct CatalogPlan {
  PlanInfo info;
  PlanState state;
  bool state_dirty = false;  // not written since it changed
  Witnesses witnesses;
  bool witnesses_dirty = false;
  Digest contents;  // hash of the plan's bytes; zero: not asked for yet
};

struct CatalogKernel {
  uint64_t size = 0;
  uint32_t references = 0;            // plans that name it
  std::vector<Digest> keys;           // kernel keys that lead to it
  int64_t unreferenced_since_ns = 0;  // monotonic; meaningful while references == 0
};

class Catalog {
 public:
  const std::map<Digest, CatalogPlan>& plans() const { return plans_; }
  const std::unordered_map<Digest, CatalogKernel, DigestHash>& kernels() const { return kernels_; }
  uint64_t bytes() const { return bytes_; }
  size_t index_size() const { return index_.size(); }

  CatalogPlan* FindPlan(const Digest& key);
  const CatalogKernel* FindKernel(const Digest& id) const;
  // With a zero id if the key is unknown.
  KernelBinding FindBinding(const Digest& key) const;
  // Plan keys of a segment, in order.
  std::vector<Digest> PlansOf(const Digest& segment) const;

  // Replaces a plan of the same key. All its kernels must be there.
  void PutPlan(const Digest& key, PlanInfo info, PlanState state, int64_t now_ns);
  void RemovePlan(const Digest& key, int64_t now_ns);
  void PutKernel(const Digest& id, uint64_t size, int64_t now_ns);
  // Also its index entries. No plan may name it.
  void RemoveKernel(const Digest& id);
  void PutIndex(const KernelBinding& binding);

 private:
  std::map<Digest, CatalogPlan> plans_;
  std::map<Digest, std::set<Digest>> segments_;
  std::unordered_map<Digest, CatalogKernel, DigestHash> kernels_;
  std::unordered_map<Digest, KernelBinding, DigestHash> index_;
  uint64_t bytes_ = 0;
};

}  // namespace kiln::store
