// ChangeLog: the newest changes of the store, numbered without gaps. Not thread-safe; Records guards it.
#pragma once

#include <deque>

#include "cache-store/records/entry.h"

namespace kiln::store {

class ChangeLog {
 public:
  // Starts with nothing known up to and including `epoch`.
  void Reset(uint64_t epoch);
  // An entry from disk, in ascending order; a gap restarts the known part after it.
  void Load(cache::ChangeEntry entry);

  // The entry for the next change, and its writes, into `batch`. Numbers are taken by Commit, so a batch that fails
  // leaves none.
  void Prepare(cache::ChangeKind kind, const Digest& plan_key, const PlanInfo& info, KvBatch& batch);
  void Commit();
  void Abandon();

  uint64_t head() const { return head_; }
  cache::ChangeLogReply Since(uint64_t since, uint32_t limit) const;

 private:
  uint64_t head_ = 0;
  std::deque<cache::ChangeEntry> entries_;
  std::vector<cache::ChangeEntry> prepared_;
};

}  // namespace kiln::store
