#include "cache-store/records/profiles.h"

#include <algorithm>
#include <map>

namespace kiln::store {
namespace {

uint64_t SaturatingAdd(uint64_t a, uint64_t b) {
  return a + b < a ? UINT64_MAX : a + b;
}

}  // namespace

void MergeProfileEntries(std::vector<cache::ProfileEntry>& merged, const std::vector<cache::ProfileEntry>& added) {
  std::map<Bytes, size_t> places;
  for (size_t i = 0; i < merged.size(); ++i) places.emplace(merged[i].signature, i);
  for (const cache::ProfileEntry& entry : added) {
    const auto [place, inserted] = places.emplace(entry.signature, merged.size());
    if (inserted) {
      merged.push_back(entry);
      continue;
    }
    cache::ProfileEntry& known = merged[place->second];
    known.count = SaturatingAdd(known.count, entry.count);
    known.total_ns = SaturatingAdd(known.total_ns, entry.total_ns);
  }
  std::stable_sort(merged.begin(), merged.end(), [](const auto& a, const auto& b) { return a.count > b.count; });
  if (merged.size() > kProfileSignaturesMax) merged.resize(kProfileSignaturesMax);
}

}  // namespace kiln::store
