#include "cache-store/records/catalog.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace kiln::store {

CatalogPlan* Catalog::FindPlan(const Digest& key) {
  const auto plan = plans_.find(key);
  return plan == plans_.end() ? nullptr : &plan->second;
}

const CatalogKernel* Catalog::FindKernel(const Digest& id) const {
  const auto kernel = kernels_.find(id);
  return kernel == kernels_.end() ? nullptr : &kernel->second;
}

KernelBinding Catalog::FindBinding(const Digest& key) const {
  const auto entry = index_.find(key);
  return entry == index_.end() ? KernelBinding{.key = key, .id = {}} : entry->second;
}

std::vector<Digest> Catalog::PlansOf(const Digest& segment) const {
  const auto keys = segments_.find(segment);
  if (keys == segments_.end()) return {};
  return {keys->second.begin(), keys->second.end()};
}

void Catalog::PutPlan(const Digest& key, PlanInfo info, PlanState state, int64_t now_ns) {
  // The new references first, so that a kernel named by both never looks unreferenced.
  for (const KernelRef& kernel : info.kernels) {
    const auto entry = kernels_.find(kernel.id);
    KILN_CHECK(entry != kernels_.end());
    ++entry->second.references;
  }
  RemovePlan(key, now_ns);
  bytes_ += info.record_bytes;
  segments_[info.segment].insert(key);
  plans_.emplace(key, CatalogPlan{.info = std::move(info), .state = state, .witnesses = {}, .contents = {}});
}

void Catalog::RemovePlan(const Digest& key, int64_t now_ns) {
  const auto plan = plans_.find(key);
  if (plan == plans_.end()) return;
  const PlanInfo& info = plan->second.info;
  bytes_ -= info.record_bytes;
  for (const KernelRef& kernel : info.kernels) {
    CatalogKernel& entry = kernels_.at(kernel.id);
    if (--entry.references == 0) entry.unreferenced_since_ns = now_ns;
  }
  const auto segment = segments_.find(info.segment);
  segment->second.erase(key);
  if (segment->second.empty()) segments_.erase(segment);
  plans_.erase(plan);
}

void Catalog::PutKernel(const Digest& id, uint64_t size, int64_t now_ns) {
  const auto [kernel, inserted] =
      kernels_.emplace(id, CatalogKernel{.size = size, .keys = {}, .unreferenced_since_ns = now_ns});
  if (inserted) bytes_ += size;
}

void Catalog::RemoveKernel(const Digest& id) {
  const auto kernel = kernels_.find(id);
  if (kernel == kernels_.end()) return;
  KILN_CHECK(kernel->second.references == 0);
  for (const Digest& key : kernel->second.keys) index_.erase(key);
  bytes_ -= kernel->second.size;
  kernels_.erase(kernel);
}

void Catalog::PutIndex(const KernelBinding& binding) {
  const auto kernel = kernels_.find(binding.id);
  if (kernel == kernels_.end()) return;
  const auto [entry, inserted] = index_.emplace(binding.key, binding);
  if (!inserted) {
    const Digest old_id = std::exchange(entry->second, binding).id;
    if (old_id == binding.id) return;
    if (const auto old = kernels_.find(old_id); old != kernels_.end()) std::erase(old->second.keys, binding.key);
  }
  kernel->second.keys.push_back(binding.key);
}

}  // namespace kiln::store
