// The front of the compile service: sockets, queue, single flight. Runs no generated code and no LLVM.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common/base/token_bucket.h"
#include "common/messaging/rpc_server.h"
#include "compile-service/jobs/compile_job.h"
#include "compile-service/jobs/reproduce_plan.h"

namespace kiln {

struct CompileServiceOptions {
  size_t queue_max = limits::kCompileQueueDefault;
  size_t bytes_max = limits::kCompileBytesMax;  // of requests that wait or are in work
  int job_threads = 2;
  // A request that failed is not tried again for so long; each time that it fails again, for twice as long, up to the
  // most.
  uint32_t failure_backoff_ms = 30'000, failure_backoff_max_ms = 3'600'000;
  BucketSize client_rate{16'384, 256};     // requests of one machine that are no others' in work
  BucketSize reproduce_rate{4, 1.0 / 15};  // accusations of one machine
};

// Requests wait in one bounded queue, clients take turns, within a client the higher priority goes first. Equal
// requests join the one in flight. A request whose plan or kernels others compile goes back to the queue and is looked
// at again a little later. What nobody waits for any more, by deadline or Cancel, ends. Thread-safe.
class CompileService {
 public:
  CompileService(CompileWorkshop workshop, CompileServiceOptions options);
  ~CompileService();  // Stop without a grace

  // Answers what waits with Unavailable, and so what comes from now on; lets running requests finish for `grace_ms`,
  // then answers them so too, and ends their jobs. Returns when no job runs. The server must live until then, or nobody
  // hears.
  void Stop(int64_t grace_ms);

  // Registers the methods; call before server.Serve().
  void RegisterOn(RpcServer& server);
  CompileStats Stats() const;

 private:
  struct Waiter {
    Replier reply;
    std::string peer;
  };
  struct Work {
    CompileRequest request;  // until it is begun, then the job has it
    // At most one of the two; neither: `request` is to be compiled.
    std::vector<uint8_t> code;                // a kernel to disassemble
    std::optional<ReproduceRequest> accused;  // a plan to run
    Digest key = {};
    size_t bytes = 0;
    std::string peer = {};  // who asked first: in whose turn it is done
    std::shared_ptr<JobControl> control = {};
    std::vector<Waiter> waiting = {};
    std::unique_ptr<CompileJob> job = {};   // once it was begun
    int64_t hold_ns = 0;                    // how long it was held the last time
    Digest held_for = {};                   // a key of this process; zero: another replica's
    std::optional<StandingMark> mark = {};  // what it failed for, if for that
    bool compiles() const { return code.empty() && !accused; }
  };
  struct Failure {
    Error error;
    int64_t until_ns;
    uint32_t pause_ms;
    std::optional<StandingMark> mark;  // what it failed for: then it is answered while that stands
  };

  struct Refusal {
    Error error;
    uint32_t retry_ms;
  };

  void Enqueue(const RequestContext& context, Work work, const Replier& reply);
  std::optional<Refusal> Refused(const RequestContext& context, const Work& asked, int64_t now);  // mutex_ held
  const Failure* Remembered(const Digest& key, int64_t now) const;  // that need not be tried yet; mutex_ held
  void NoteFailure(const Work& work, const Error& error);           // mutex_ held
  void Cancel(const RequestContext& context, const Digest& key);
  void RunJobs();
  std::shared_ptr<Work> WaitForWork();            // null: stopping
  void Queue(const std::shared_ptr<Work>& work);  // mutex_ held, like the next two
  std::shared_ptr<Work> NextWork();
  std::vector<Waiter> Leave(const std::shared_ptr<Work>& work);  // who waited for it
  void Compile(const std::shared_ptr<Work>& work);
  Status CheckMark(const Work& work);
  void Disassemble(const std::shared_ptr<Work>& work);
  void Reproduce(const std::shared_ptr<Work>& work);
  void Hold(const std::shared_ptr<Work>& work);
  void LookAgain(const Digest& key);  // at what waits for it
  bool Renew(const std::shared_ptr<Work>& work);
  void Finish(const std::shared_ptr<Work>& work, const Result<CompileOutcome>& outcome);

  CompileWorkshop workshop_;
  const CompileServiceOptions options_;
  mutable std::mutex mutex_;             // guards what follows
  std::condition_variable wake_, idle_;  // of job threads; of Stop
  // Per client (connection), its waiting work by priority; `turns_` holds the clients that have work, next first.
  std::unordered_map<std::string, std::multimap<uint32_t, std::shared_ptr<Work>, std::greater<>>> queues_;
  std::deque<std::string> turns_;
  std::multimap<int64_t, std::shared_ptr<Work>> held_;  // by when to look again, ns
  std::unordered_map<Digest, std::shared_ptr<Work>, DigestHash> in_flight_;
  std::unordered_map<Digest, Failure, DigestHash> failures_;
  std::unordered_set<std::shared_ptr<Work>> running_;
  TokenBuckets client_buckets_, reproduce_buckets_;  // per machine
  size_t queued_ = 0;                                // in queues_ and held_
  size_t bytes_ = 0;                                 // of those and the running ones
  bool stopping_ = false;
  CompileStats stats_;
  std::vector<std::thread> threads_;
};

}  // namespace kiln
