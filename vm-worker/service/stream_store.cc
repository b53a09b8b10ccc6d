#include "vm-worker/service/stream_store.h"

#include <utility>

namespace kiln {
namespace {

constexpr int64_t kSweepEveryNs = 1'000'000'000;

int64_t BytesOf(const std::vector<Tensor>& state) {
  int64_t bytes = 0;
  for (const Tensor& tensor : state) bytes += tensor.ref.bytes();
  return bytes;
}

}  // namespace

struct StreamStore::Lease::Stream {
  std::weak_ptr<const void> model;
  std::vector<StreamLink> links;
  std::vector<Tensor> state;
  int64_t bytes = 0;
  uint64_t runs = 0;
  int64_t used_ns = 0;
  bool taken = false;
};

const std::vector<StreamLink>& StreamStore::Lease::links() const {
  return stream_->links;
}
const std::vector<Tensor>& StreamStore::Lease::state() const {
  return stream_->state;
}

StreamStore::Lease::~Lease() {
  if (stream_ == nullptr) return;
  std::lock_guard lock(store_->mutex_);
  stream_->taken = false;
}

void StreamStore::Remove(Streams::iterator at) {
  stats_.bytes -= at->second->bytes;
  streams_.erase(at);
}

void StreamStore::Sweep(int64_t now, bool at_once) {
  if (!at_once && now < next_sweep_ns_) return;
  next_sweep_ns_ = now + kSweepEveryNs;
  for (auto it = streams_.begin(); it != streams_.end();) {
    const auto here = it++;
    const Lease::Stream& stream = *here->second;
    if (stream.taken) continue;
    const bool idle = now - stream.used_ns > options_.idle_ns;
    if (!idle && !stream.model.expired()) continue;
    stats_.expired += idle ? 1 : 0;
    Remove(here);
  }
}

Result<uint64_t> StreamStore::Open(const std::shared_ptr<const void>& model, std::vector<StreamLink> links,
                                   std::vector<Tensor> state) {
  const int64_t bytes = BytesOf(state);
  std::lock_guard lock(mutex_);
  const int64_t now = options_.clock->NowNs();
  Sweep(now, streams_.size() >= options_.streams_max || stats_.bytes + bytes > options_.bytes_max);
  if (streams_.size() >= options_.streams_max) {
    ++stats_.refused;
    return Fail(ErrorCode::kResourceExhausted, "the worker keeps " + std::to_string(streams_.size()) +
                                                   " streams, as many as it may (--streams); close one or retry later");
  }
  if (stats_.bytes + bytes > options_.bytes_max) {
    ++stats_.refused;
    return Fail(ErrorCode::kResourceExhausted, "the stream's state needs " + std::to_string(bytes) + " bytes; " +
                                                   std::to_string(options_.bytes_max - stats_.bytes) + " of " +
                                                   std::to_string(options_.bytes_max) +
                                                   " are free (--stream-bytes); close a stream or retry later");
  }
  uint64_t id = options_.random();
  while (id == 0 || streams_.contains(id)) id = options_.random();
  auto stream = std::make_shared<Lease::Stream>();
  *stream = {model, std::move(links), std::move(state), bytes, 0, now, false};
  streams_.emplace(id, std::move(stream));
  stats_.bytes += bytes;
  ++stats_.opened;
  return id;
}

Result<StreamStore::Lease> StreamStore::Take(uint64_t id, const std::shared_ptr<const void>& model) {
  std::lock_guard lock(mutex_);
  const int64_t now = options_.clock->NowNs();
  Sweep(now, false);
  auto it = streams_.find(id);
  if (it != streams_.end() && !it->second->taken && now - it->second->used_ns > options_.idle_ns) {
    ++stats_.expired;
    Remove(it);
    it = streams_.end();
  }
  if (it == streams_.end() || it->second->model.lock() != model) {
    ++stats_.lost;
    return Fail(ErrorCode::kStateLost,
                "stream " + std::to_string(id) +
                    " is not kept here: it ended, expired, or the worker restarted; open it again");
  }
  if (it->second->taken)
    return Fail(ErrorCode::kBusy, "stream " + std::to_string(id) + " is in another run; send its runs one by one");
  it->second->taken = true;
  it->second->used_ns = now;
  return Lease(*this, id, it->second);
}

Result<uint64_t> StreamStore::Commit(Lease lease, std::vector<Tensor> state) {
  const int64_t bytes = BytesOf(state);
  std::vector<Tensor> previous;  // let go of outside the lock
  std::lock_guard lock(mutex_);
  const std::shared_ptr<Lease::Stream> stream = std::move(lease.stream_);
  stream->taken = false;
  if (!streams_.contains(lease.id())) return stream->runs + 1;  // closed meanwhile
  if (stats_.bytes - stream->bytes + bytes > options_.bytes_max) {
    ++stats_.refused;
    return Fail(ErrorCode::kResourceExhausted,
                "the stream's state would have " + std::to_string(bytes) + " bytes, all streams together more than " +
                    std::to_string(options_.bytes_max) + " (--stream-bytes); it stays as it was before this run");
  }
  stats_.bytes += bytes - stream->bytes;
  stream->bytes = bytes;
  previous = std::exchange(stream->state, std::move(state));
  stream->used_ns = options_.clock->NowNs();
  return ++stream->runs;
}

bool StreamStore::Close(uint64_t id) {
  std::lock_guard lock(mutex_);
  const auto it = streams_.find(id);
  if (it == streams_.end()) return false;
  Remove(it);
  return true;
}

StreamStats StreamStore::stats() {
  std::lock_guard lock(mutex_);
  Sweep(options_.clock->NowNs(), true);
  StreamStats stats = stats_;
  stats.open = streams_.size();
  return stats;
}

}  // namespace kiln
