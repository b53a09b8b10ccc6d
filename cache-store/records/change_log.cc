#include "cache-store/records/change_log.h"

#include <algorithm>

#include "common/base/limits.h"

namespace kiln::store {

void ChangeLog::Reset(uint64_t epoch) {
  head_ = epoch;
  entries_.clear();
  prepared_.clear();
}

void ChangeLog::Load(cache::ChangeEntry entry) {
  if (entry.sequence != head_ + 1) entries_.clear();
  head_ = entry.sequence;
  entries_.push_back(std::move(entry));
}

void ChangeLog::Prepare(cache::ChangeKind kind, const Digest& plan_key, const PlanInfo& info, KvBatch& batch) {
  const uint64_t sequence = head_ + 1 + prepared_.size();
  prepared_.push_back({sequence, kind, plan_key, info.segment, info.target});
  const std::string key = SequenceKey(sequence);
  batch.Put(Space::kChangeLog, key, Seal(Space::kChangeLog, key, EncodeChange(prepared_.back())));
  if (sequence > limits::kChangeLogEntriesMax)
    batch.Delete(Space::kChangeLog, SequenceKey(sequence - limits::kChangeLogEntriesMax));
}

void ChangeLog::Commit() {
  for (cache::ChangeEntry& entry : prepared_) {
    head_ = entry.sequence;
    entries_.push_back(std::move(entry));
    if (entries_.size() > limits::kChangeLogEntriesMax) entries_.pop_front();
  }
  prepared_.clear();
}

void ChangeLog::Abandon() {
  prepared_.clear();
}

cache::ChangeLogReply ChangeLog::Since(uint64_t since, uint32_t limit) const {
  cache::ChangeLogReply reply{.entries = {}, .head = head_};
  const uint64_t known_after = head_ - entries_.size();
  reply.gap = since < known_after || since > head_;
  if (since >= head_) return reply;
  const size_t first = static_cast<size_t>(std::max(since, known_after) - known_after);
  const size_t count =
      std::min<size_t>(limit == 0 ? limits::kChangeReplyEntriesMax : std::min(limit, limits::kChangeReplyEntriesMax),
                       entries_.size() - first);
  reply.entries.assign(entries_.begin() + static_cast<std::ptrdiff_t>(first),
                       entries_.begin() + static_cast<std::ptrdiff_t>(first + count));
  return reply;
}

}  // namespace kiln::store
