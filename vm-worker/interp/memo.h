// Memoised static forms of one context: found by segment and signature, bounded by count and bytes, least recently used
// first out.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "common/signature/signature.h"
#include "vm-worker/interp/static_form.h"

namespace kiln {

class Memo;

// The forms of one program. Not thread-safe.
class ProgramMemo {
 public:
  ProgramMemo(Memo* memo, size_t segments) : memo_(*memo), tables_(segments) {}
  ~ProgramMemo();
  ProgramMemo(const ProgramMemo&) = delete;
  ProgramMemo& operator=(const ProgramMemo&) = delete;

  // The form for a signature, or nullptr. Marks it as used; no heap allocation.
  StaticForm* Find(uint32_t segment, const Signature& signature);
  // Keeps a form that Find did not have; may drop others, never this one.
  StaticForm* Insert(uint32_t segment, const Signature& signature, std::unique_ptr<StaticForm> form);

 private:
  friend class Memo;
  struct ByValue {
    size_t operator()(const Signature* signature) const { return signature->hash; }
    bool operator()(const Signature* a, const Signature* b) const { return *a == *b; }
  };
  struct Entry {
    ProgramMemo* program;
    uint32_t segment;
    Signature signature;
    std::unique_ptr<StaticForm> form;
    size_t bytes;
  };
  using Order = std::list<Entry>;
  struct Table {
    std::unordered_map<const Signature*, Order::iterator, ByValue, ByValue> forms;
    Entry* last = nullptr;
  };
  Memo& memo_;
  std::vector<Table> tables_;
};

struct MemoStats {
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t evictions = 0;
  size_t bytes = 0;
};

// Not thread-safe. Outlives its ProgramMemos.
class Memo {
 public:
  Memo(size_t bytes_max, size_t entries_max) : bytes_max_(bytes_max), entries_max_(entries_max) {}
  const MemoStats& stats() const { return stats_; }
  size_t entries() const { return order_.size(); }

 private:
  friend class ProgramMemo;
  void Drop(ProgramMemo::Order::iterator entry);
  void Trim();

  const size_t bytes_max_;
  const size_t entries_max_;
  ProgramMemo::Order order_;  // most recently used first
  MemoStats stats_;
};

}  // namespace kiln
