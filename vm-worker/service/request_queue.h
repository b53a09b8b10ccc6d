// A bounded queue of work for a fixed number of threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace kiln {

// Thread-safe.
template <class Item>
class RequestQueue {
 public:
  explicit RequestQueue(size_t max) : max_(max) {}

  // False when it is full or closed; the item is untouched then.
  bool Push(Item& item) {
    std::lock_guard lock(mutex_);
    if (closed_ || items_.size() >= max_) return false;
    items_.push_back(std::move(item));
    wake_.notify_one();
    return true;
  }
  // Waits for an item; nothing once the queue is closed and empty.
  std::optional<Item> Pop() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return closed_ || !items_.empty(); });
    if (items_.empty()) return std::nullopt;
    Item item = std::move(items_.front());
    items_.pop_front();
    return item;
  }
  void Close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    wake_.notify_all();
  }
  size_t size() const {
    std::lock_guard lock(mutex_);
    return items_.size();
  }

 private:
  const size_t max_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Item> items_;
  bool closed_ = false;
};

}  // namespace kiln
