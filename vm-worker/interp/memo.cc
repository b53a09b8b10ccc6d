#include "vm-worker/interp/memo.h"

#include <iterator>

namespace kiln {

ProgramMemo::~ProgramMemo() {
  for (auto entry = memo_.order_.begin(); entry != memo_.order_.end();) {
    const auto next = std::next(entry);
    if (entry->program == this) memo_.Drop(entry);
    entry = next;
  }
}

StaticForm* ProgramMemo::Find(uint32_t segment, const Signature& signature) {
  Table& table = tables_[segment];
  Entry* entry = table.last;
  if (!entry || !(entry->signature == signature)) {
    const auto found = table.forms.find(&signature);
    if (found == table.forms.end()) {
      ++memo_.stats_.misses;
      return nullptr;
    }
    memo_.order_.splice(memo_.order_.begin(), memo_.order_, found->second);
    entry = &*found->second;
    table.last = entry;
  }
  ++memo_.stats_.hits;
  return entry->form.get();
}

StaticForm* ProgramMemo::Insert(uint32_t segment, const Signature& signature, std::unique_ptr<StaticForm> form) {
  const size_t bytes = form->bytes() + sizeof(Entry) + signature.words.size() * sizeof(uint64_t);
  memo_.order_.push_front({this, segment, signature, std::move(form), bytes});
  Entry& entry = memo_.order_.front();
  Table& table = tables_[segment];
  table.forms.emplace(&entry.signature, memo_.order_.begin());
  table.last = &entry;
  memo_.stats_.bytes += bytes;
  memo_.Trim();
  return entry.form.get();
}

void Memo::Drop(ProgramMemo::Order::iterator entry) {
  ProgramMemo::Table& table = entry->program->tables_[entry->segment];
  table.forms.erase(&entry->signature);
  if (table.last == &*entry) table.last = nullptr;
  stats_.bytes -= entry->bytes;
  order_.erase(entry);
}

void Memo::Trim() {
  while (order_.size() > 1 && (stats_.bytes > bytes_max_ || order_.size() > entries_max_)) {
    ++stats_.evictions;
    Drop(std::prev(order_.end()));
  }
}

}  // namespace kiln
