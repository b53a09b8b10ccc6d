// State of streams: tensors that one run of a model leaves for the next (a voice detector's cells, a growing key-value
// cache), kept by the worker under an id that it chose. Ids are random, so that another process's ids are never taken
// for its own: a stream that ended, expired, or lived in a worker that restarted is lost, and its next run is told so.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "common/base/clock.h"
#include "common/base/random_bits.h"
#include "common/base/result.h"
#include "common/tensor/tensor.h"

namespace kiln {

struct StreamOptions {
  size_t streams_max = 1024;
  int64_t bytes_max = int64_t{256} << 20;  // of the state of all streams
  int64_t idle_ns = int64_t{300} * 1'000'000'000;
  const Clock* clock = &SystemClock();
  RandomBits random = SystemRandomBits;  // of ids
};

// Which output of one run is which input of the next; indices into the model's lists.
struct StreamLink {
  size_t input = 0, output = 0;
};

struct StreamStats {
  uint64_t open = 0, opened = 0, expired = 0, lost = 0, refused = 0;
  int64_t bytes = 0;
};

// Thread-safe.
class StreamStore {
 public:
  explicit StreamStore(StreamOptions options) : options_(std::move(options)) {}

  // `model`: what the stream belongs to; it ends with it. `state`: per link, for the first run. ResourceExhausted when
  // as many streams or bytes are kept as may be.
  Result<uint64_t> Open(const std::shared_ptr<const void>& model, std::vector<StreamLink> links,
                        std::vector<Tensor> state);

  // A stream while one run has it. Ends by Commit, or unchanged by its destructor.
  class Lease {
   public:
    Lease(Lease&&) = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease();
    uint64_t id() const { return id_; }
    const std::vector<StreamLink>& links() const;
    const std::vector<Tensor>& state() const;

   private:
    friend class StreamStore;
    struct Stream;
    Lease(StreamStore& store, uint64_t id, std::shared_ptr<Stream> stream)
        : store_(&store), id_(id), stream_(std::move(stream)) {}
    StreamStore* store_;
    uint64_t id_;
    std::shared_ptr<Stream> stream_;  // null once moved from or committed
  };
  // StateLost: the stream is not kept. Busy: another run has it.
  Result<Lease> Take(uint64_t id, const std::shared_ptr<const void>& model);
  // The state for the next run, per link; returns how many runs the stream has had. ResourceExhausted when it would
  // pass the limit of bytes; the stream stays as it was then.
  Result<uint64_t> Commit(Lease lease, std::vector<Tensor> state);
  // Whether there was one.
  bool Close(uint64_t id);

  StreamStats stats();

 private:
  using Streams = std::unordered_map<uint64_t, std::shared_ptr<Lease::Stream>>;
  void Remove(Streams::iterator at);
  // Drops streams that were idle too long or whose model is gone; looks at all of them at most once a second.
  void Sweep(int64_t now, bool at_once);

  const StreamOptions options_;
  std::mutex mutex_;  // guards what follows, and the contents of streams that no lease has
  Streams streams_;
  StreamStats stats_;
  int64_t next_sweep_ns_ = 0;
};

}  // namespace kiln
