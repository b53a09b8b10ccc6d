// TierController: the worker's control thread. Watches profiles, asks for plans, has them fetched, shadow-checks and
// publishes them, follows the store's change log. Nothing here is on the request path, and it waits for no service:
// answers come as events; with every service gone it only grows quiet.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "common/cache_api/client.h"
#include "common/compile_api/compile_api.h"
#include "common/signature/signature.h"
#include "vm-worker/cache_client/plan_source.h"
#include "vm-worker/dispatch/epoch.h"
#include "vm-worker/dispatch/perf_map.h"
#include "vm-worker/tiering/model.h"
#include "vm-worker/tiering/policy.h"
#include "vm-worker/tiering/shadow.h"

namespace kiln {

enum class MissReason : uint8_t {
#define KILN_MISS(value, name, text, doc) k##name = value,
#include "vm-worker/tiering/miss_reasons.def"
#undef KILN_MISS
};
inline constexpr size_t kMissReasons = 1  // index 0 unused
#define KILN_MISS(value, name, text, doc) +1
#include "vm-worker/tiering/miss_reasons.def"
#undef KILN_MISS
    ;
std::string_view MissReasonText(MissReason reason);

struct TierOptions {
  TierPolicy policy;
  NumericMode numeric_mode = NumericMode::kDefault;
  std::vector<Target> targets;  // acceptable, best first; the first is asked for
  int shadow_runs = 3;
  ShadowRunner::Options shadow;
  int64_t tick_ms = 50;
  int64_t change_log_ms = limits::kChangeLogPollMs;
  int64_t store_deadline_ms = limits::kLookupTimeoutMs;
  int64_t compile_deadline_ms = 120'000;
  std::string reporter;         // unique per worker process
  bool gdb_symbols = false;     // NameForGdb for every plan's code
  PerfMap* perf_map = nullptr;  // told of every plan's code; outlives the controller
};

// Interpreted calls by MissReason, and the interpreter's time in them.
struct MissLedger {
  std::array<uint64_t, kMissReasons> calls{}, ns{};
  void Add(MissReason reason, uint64_t more_calls, uint64_t more_ns);
};

// Whether an error says nothing about the thing asked for, only that a service cannot answer now.
bool IsUnreachable(ErrorCode code);

// Counters since the start; a snapshot.
struct TierStats {
#define KILN_TIER_COUNT(name) uint64_t name = 0;
#include "vm-worker/tiering/tier_counts.def"
#undef KILN_TIER_COUNT
  MissLedger misses;
};

// A plan of a segment as this worker sees it.
struct PlanStatus {
  PlanKey key;
  bool published = false;  // else it is in its shadow runs
  int clean_runs = 0;
  std::shared_ptr<const LinkedPlan> plan;  // as linked to the site that was asked about
};

// The shape of an interpreted call.
struct SeenCall {
  std::vector<int64_t> symbol_values;  // per symbol of the segment, -1 inside
  std::vector<SignatureInput> inputs;
};

// How one segment of a model runs now; for stats and explain.
struct SegmentStatus {
  size_t segment = 0;
  SegmentId id;
  SegmentEnd end_reason{};
  MissReason reason{};  // why calls are interpreted when they are
  std::string detail;   // the last failure, if any
  std::vector<PlanKey> published, shadowing;
  Model::Totals totals;
  std::vector<PlanStatus> plans;             // published and shadowing
  MissLedger misses;                         // of all sites with this SegmentId together
  std::optional<SeenCall> last_interpreted;  // the most recent one the control thread has seen
  std::optional<ShapeCount> top_shape;       // the most frequent interpreted one
  bool request_pending = false;
  int64_t retry_in_ms = 0;  // before the services are asked again
};

// Thread-safe. Start it before models are loaded; destroy it before what it refers to.
class TierController {
 public:
  // `store`, `source` and `compile` may be null (a worker on its own): then nothing is fetched or asked for.
  TierController(EpochDomain& epochs, cache::CacheClient* store, PlanSource* source, RpcClient* compile,
                 RecipeRunner recipes, TierOptions options);
  ~TierController();

  void AddModel(std::shared_ptr<Model> model);
  void RemoveModel(const std::shared_ptr<Model>& model);
  // Waits until the store has said what it has for every loaded model and that is published or in its shadow runs, at
  // most timeout_ms: what a starting worker may do before it reports itself ready. True: nothing is outstanding. Never
  // called by requests.
  bool WaitWarm(int64_t timeout_ms) const;
  // The observer for one worker thread of a model; owned by the caller, ends before the controller.
  std::unique_ptr<CallObserver> MakeObserver(std::shared_ptr<Model> model, ModelThread& thread);
  // A hint that the store's change log moved. Any thread.
  void OnNewHead(uint64_t head);
  // The list of trusted signers was replaced: plans of those that are gone are withdrawn. Any thread.
  void OnSignersReplaced();

  TierStats Stats() const;
  std::vector<SegmentStatus> Segments(const Model& model) const;
  const TierOptions& options() const { return options_; }
  int64_t packed_bytes() const { return packer_.bytes(); }

 private:
  enum class PlanState : uint8_t { kShadowing, kPublished, kRejected };
  struct PlanEntry {
    PlanState state = PlanState::kRejected;
    std::vector<std::shared_ptr<const LinkedPlan>> linked;  // per site of the group
    int clean = 0;
    bool exact = false;
    SignPublicKey signer{};
  };
  // All sites of a model with one SegmentId.
  struct Group {
    SegmentId id;
    const Segment* segment = nullptr;
    std::vector<size_t> sites;
    std::map<PlanKey, PlanEntry> plans;
    std::set<PlanKey> fetching;  // on their way from disk or store
    SegmentProfile profile;
    std::map<std::vector<int64_t>, uint64_t> shapes;
    MissLedger misses;
    std::optional<SeenCall> last_interpreted;
    std::vector<std::vector<int64_t>> exact_asked;
    bool request_pending = false;
    bool variants_known = false, variants_pending = false;
    bool variants_stale = false;  // the answer on its way may be older than a change that was heard of
    int64_t retry_ns = 0;
    int64_t backoff_ms = 0;
    MissReason reason = MissReason::kCold;
    std::string detail;
  };
  struct ModelState {
    std::shared_ptr<Model> model;
    std::map<SegmentId, Group> groups;
  };
  // What waits for the control thread. Shared with the callbacks of calls under way, which may outlive the controller:
  // once closed, it drops what they bring.
  struct Mailbox {
    using Event = std::function<void()>;
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<Event> events;
    bool closed = false;
    bool head_changed = false;
    void Post(Event event);
  };

  void Run();
  void Tick();
  void CollectProfile(ModelState& state);
  void AskVariants(ModelState& state, Group& group);
  void Consider(ModelState& state, Group& group);
  void SendRequest(ModelState& state, Group& group, const PlanWish& wish);
  void OnCompiled(const std::weak_ptr<Model>& model, const SegmentId& id, const Result<CompileReply>& reply);
  void Fetch(ModelState& state, Group& group, const PlanKey& key, const Evidence& evidence);
  void Install(ModelState& state, Group& group, const PlanKey& key, const Evidence& evidence,
               Result<FetchedPlan> fetched);
  Status Link(ModelState& state, Group& group, const FetchedPlan& fetched, PlanEntry& entry);
  void EndShadow(ModelState& state, Group& group, PlanEntry& entry);
  void RefreshShadow(ModelState& state, Group& group);
  void PublishGroup(ModelState& state, Group& group);
  void Drop(const PlanKey& key, MissReason reason, const std::string& detail);
  void Withdraw(ModelState& state, Group& group, PlanEntry& entry, MissReason reason, const std::string& detail);
  void DropRevoked();
  void OnVerdict(const ShadowVerdict& verdict);
  void ReadChangeLog();
  void OnChangeLog(const Result<cache::ChangeLogReply>& reply);
  void AskVariantsAgain(Group& group);
  void BackOff(Group& group, MissReason reason, const Error& error);
  ModelState* Find(const std::weak_ptr<Model>& model);

  EpochDomain& epochs_;
  cache::CacheClient* store_;
  PlanSource* source_;
  RpcClient* compile_;
  PackedWeights packer_;
  const TierOptions options_;

  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  mutable std::mutex state_mutex_;  // held by the control thread while it works; readers take snapshots
  std::vector<ModelState> models_;
  TierStats stats_;
  uint64_t log_position_ = 0;
  bool log_position_known_ = false, log_pending_ = false;
  int64_t next_log_read_ns_ = 0;

  std::unique_ptr<ShadowRunner> shadow_;
  std::thread thread_;
};

}  // namespace kiln
