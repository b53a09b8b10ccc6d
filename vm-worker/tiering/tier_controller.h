// TierController: the worker's control thread. Watches profiles, asks for plans, has them fetched, shadow-checked and
// published, follows the store's change log. Nothing here is on the request path; with every service gone it only grows
// quiet.
//
// The control thread never waits for the fleet: answers come as events, and what blocks (fetching, linking, packing
// weights) runs on the fetch lane. `state_mutex_` is held for bookkeeping only.
//
//   asking.cc       which plans a segment has and wants: Variants, compile requests, backing off
//   installing.cc   a plan on its way in and out: fetch, link, shadow runs, publish, drop
//   on_device.cc    what becomes of plans for a device that refuses them or is lost, and of wishes for them
//   accusing.cc     plans that were wrong here: remembered, told the store, and the compile service asked to reproduce
//   change_log.cc   what the store announces
//   memory.cc       plans of least worth leave when memory is tight
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "vm-worker/dispatch/epoch.h"
#include "vm-worker/dispatch/perf_map.h"
#include "vm-worker/tiering/job_lane.h"
#include "vm-worker/tiering/plan_group.h"
#include "vm-worker/tiering/plan_services.h"
#include "vm-worker/tiering/tier_options.h"

namespace kiln {

// A plan of a segment as this worker sees it.
struct PlanStatus {
  PlanKey key;
  bool published = false;  // else it is in its shadow runs
  int clean_runs = 0;
  std::shared_ptr<const LinkedPlan> plan;  // as linked to the site that was asked about
};

// How one segment of a model runs now; for stats and explain.
struct SegmentStatus {
  size_t segment = 0;
  SegmentId id;
  SegmentEnd end_reason{};
  MissReason reason{};   // why calls are interpreted when they are
  MissReason trouble{};  // why the last plan did not come or left; kCold: nothing went wrong…
  std::string detail;    // …and in words
  std::vector<PlanKey> published, shadowing;
  Model::Totals totals;
  std::vector<PlanStatus> plans;             // published and shadowing
  MissLedger misses;                         // of all sites with this SegmentId together
  std::optional<SeenCall> last_interpreted;  // the most recent one the control thread has seen
  std::optional<ShapeCount> top_shape;       // the most frequent one…
  ExactForecast top_forecast;                // …and what an exact plan of its own is worth
  std::string tuned_refusal;                 // why there is no tuned plan, when one was asked for
  std::string reproduction;                  // what the compile service found of a plan that was wrong here
  std::string no_pack_room;                  // why weights are read as given, when they are…
  int64_t pack_again_in_ms = 0;              // …and when plans with packed ones are tried again
  bool request_pending = false;
  bool throttled = false;   // a plan is wanted, and has to wait for a token
  int64_t retry_in_ms = 0;  // before the services are asked again
};

// Thread-safe. Start it before models are loaded; destroy it before what it refers to.
class TierController {
 public:
  // `services` may be null (a worker on its own): then nothing is fetched or asked for.
  TierController(EpochDomain& epochs, PlanServices* services, RecipeRunner recipes, TierOptions options);
  ~TierController();

  void AddModel(std::shared_ptr<Model> model);
  void RemoveModel(const std::shared_ptr<Model>& model);
  // Waits until the store has said what it has for every loaded model and that is published or in its shadow runs, at
  // most timeout_ms: what a starting worker may do before it reports itself ready. True: nothing is outstanding. Never
  // called by requests.
  bool WaitWarm(int64_t timeout_ms) const;
  // The observer for one worker thread of a model; owned by the caller, ends before the controller.
  std::unique_ptr<CallObserver> MakeObserver(const std::shared_ptr<Model>& model, ModelThread& thread);
  // A hint that the store's change log moved. Any thread.
  void OnNewHead();
  // The list of signers was read again: plans of those that are not believed any more are withdrawn. Any thread.
  void OnSignersChanged();
  // One round of the control thread, after what waits on the fetch lane and for shadow runs; false: nothing was
  // waiting. Only without own_threads.
  bool Step();

  TierStats Stats() const;
  std::vector<SegmentStatus> Segments(const Model& model) const;
  const TierOptions& options() const { return options_; }
  int64_t packed_bytes() const { return packer_.bytes(); }
  // What becomes of the device: "cuda:0, …", "lost: …", why the compile service makes nothing for it. Empty: there is
  // none.
  std::string DeviceText() const;

 private:
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
  // A plan that the fetch lane is asked for.
  struct FetchJob {
    std::weak_ptr<Model> model;
    SegmentId segment;
    PlanKey key;
    Evidence evidence;
    std::vector<size_t> sites;
    Digest rejected;  // contents that were rejected under the key
    bool exact_has_room = false;
    WeightForm weights{};  // that is wanted
    bool for_device = false;
    WithoutRoom without_room{};
  };
  // What came of it. `contents` and `signer` are known from where the record could be read on.
  struct Fetched {
    PlanKey key;
    Evidence evidence;
    Digest contents;
    SignPublicKey signer;
    bool from_disk = false;
    bool no_pack_room = false;  // the status is that its packed weights have none
    bool on_device = false;     // it is a plan for the device
    Status status;
    std::vector<std::shared_ptr<const LinkedPlan>> linked;
  };

  void Run();
  bool Round(std::deque<Mailbox::Event> events);
  void Tick();
  // A callback for services: `handle` runs as an event of the control thread with the group, if model and group still
  // are.
  template <class Reply>
  PlanServices::Done<Reply> ToGroup(const ModelState& state, const Group& group,
                                    void (TierController::*handle)(ModelState&, Group&, const Result<Reply>&));
  struct Place {
    ModelState* state;
    Group* group;
  };
  std::optional<Place> Find(const std::weak_ptr<Model>& model, const SegmentId& segment);
  int64_t Now() const { return options_.clock->NowNs(); }

  bool IsAwaited(const Digest& request) const;
  void AskVariants(ModelState& state, Group& group);
  void OnVariants(ModelState& state, Group& group, const Result<cache::VariantsReply>& reply);
  void Consider(ModelState& state, Group& group);
  // A token of the segment, the model and the worker each. False: at least one has none; nothing is taken then.
  bool TakeTokens(ModelState& state, Group& group);
  void ReturnTokens(ModelState& state, Group& group);  // of a request that came to nothing
  void SendRequest(ModelState& state, Group& group, const PlanWish& wish);
  void OnCompiled(ModelState& state, Group& group, const Result<CompileReply>& reply);
  void SendRangeRequest(ModelState& state, Group& group, CompileRequest request);
  void OnRange(ModelState& state, Group& group, const Result<CompileReply>& reply);
  void SendTunedRequest(ModelState& state, Group& group, const PlanWish& wish, CompileRequest request);
  void OnTuned(ModelState& state, Group& group, const Result<CompileReply>& reply);
  void BackOff(const ModelState& state, Group& group, MissReason reason, const Error& error);

  enum class Wanted : uint8_t { kFetching, kThere, kPaused };
  Wanted Want(ModelState& state, Group& group, const PlanKey& key, const Evidence& evidence,
              const std::vector<int64_t>& exact_wish = {}, bool for_device = false);
  Fetched FetchAndLink(const FetchJob& job);
  Status FetchAndLink(const FetchJob& job, const std::shared_ptr<Model>& model, Fetched& fetched);
  Result<std::shared_ptr<const LinkedPlan>> LinkAt(size_t site, const FetchJob& job,
                                                   const std::shared_ptr<Model>& model, const FetchedPlan& plan,
                                                   const std::shared_ptr<const DeviceKernels>& kernels);
  void OnFetched(ModelState& state, Group& group, Fetched& fetched);
  void OnNotFetched(ModelState& state, Group& group, const Fetched& fetched, const std::vector<int64_t>& exact_wish);
  void OnNoPackRoom(Group& group, const std::string& detail);
  void OnNoDevicePlan(ModelState& state, Group& group, const Fetched& fetched, const std::vector<int64_t>& exact_wish);
  bool HasRoom(const Group& group, bool exact) const;
  void TurnShadow(ModelState& state, Group& group);
  void BeginShadow(ModelState& state, Group& group, PlanEntry& entry);
  void EndShadow(ModelState& state, Group& group, PlanEntry& entry);
  void Publish(ModelState& state, Group& group, const PlanKey& key, PlanEntry& entry);
  void PublishGroup(ModelState& state, Group& group);
  void Reject(const ModelState& state, Group& group, const PlanKey& key, const Digest& contents, MissReason reason,
              const std::string& detail, const std::vector<int64_t>& exact_wish, bool generic);
  // Whether the same contents may come back.
  enum class Blame : uint8_t { kContents, kNone };
  void Drop(ModelState& state, Group& group, const PlanKey& key, MissReason reason, const std::string& detail,
            Blame blame);
  void DropEverywhere(const PlanKey& key, MissReason reason, const std::string& detail, Blame blame);
  void OnVerdict(const ShadowVerdict& verdict);
  void OnClean(ModelState& state, Group& group, const PlanKey& key, PlanEntry& entry, bool answered_by_plan);
  void OnUndecided(ModelState& state, Group& group, const PlanKey& key, PlanEntry& entry, const ShadowVerdict& verdict);
  // A plan gave a wrong result or faulted: remembered over restarts, and told the store, again until it has heard; and
  // the compile service is asked to run the case, so that the fleet need not wait for a second worker to meet it.
  void Accuse(const ModelState& state, const ShadowVerdict& verdict, const Digest& contents, cache::ReportKind kind);
  void TellAccusations();
  void AskToReproduce();
  void OnReproduced(const PlanKey& key, const Result<ReproduceReply>& reply);

  // Whether the device takes plans, as far as is known.
  bool HasDevice() const { return options_.device != nullptr && !device_lost_; }
  // The target that the group's next plan is asked for.
  Target WantedTarget(const Group& group) const;
  // The compile service makes no plan for the device: one for the processor is asked for meanwhile.
  void OnDeviceRefused(const ModelState& state, Group& group, const Error& error);
  // A plan for the device is not used: the same.
  void HoldDevice(Group& group, int64_t pause_ms);
  void WatchDevice();
  void OnDeviceLost();

  void MakeRoom();

  void ReadChangeLog();
  void OnChangeLog(const Result<cache::ChangeLogReply>& reply);
  void OnChange(const cache::ChangeEntry& change);
  void Withdraw(const PlanKey& key);
  void AskAboutDoubted(ModelState& state, Group& group);
  void OnStanding(ModelState& state, Group& group, const PlanKey& key, const Status& standing);
  void RecheckSigners();

  EpochDomain& epochs_;
  PlanServices* services_;
  PackedWeights packer_;
  const TierOptions options_;
  // Null without a device.
  std::unique_ptr<DeviceModules> device_modules_;
  std::unique_ptr<DeviceWeights> device_weights_;

  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  mutable std::mutex state_mutex_;  // held by the control thread while it works; readers take snapshots
  std::vector<ModelState> models_;
  TierStats stats_;
  struct Accusation {
    cache::ReportKind kind;
    std::string detail;
    Digest contents = {};  // of the plan that ran
    bool under_way = false;
  };
  std::map<PlanKey, Accusation> accusations_;  // that the store has not heard
  struct Reproduction {
    ReproduceRequest request;
    std::string model;
    SegmentId segment;
    int tries = 0;
    bool under_way = false;
    int64_t retry_ns = 0;
  };
  TokenBucket requests_;                           // to the compile service
  std::map<PlanKey, Reproduction> reproductions_;  // that the compile service has not answered
  bool device_lost_ = false;                       // and what ran there has been dropped
  // Why the compile service makes nothing for the device, and until when it is not asked; empty: it does, as far as is
  // known. One request finds out whether it still holds.
  std::string device_refusal_;
  int64_t device_refused_until_ns_ = 0, device_refusal_ms_ = 0;
  bool device_probed_ = false;
  uint64_t log_position_ = 0;
  bool log_position_known_ = false;
  bool log_pending_ = false;
  int64_t next_log_read_ns_ = 0;

  std::unique_ptr<JobLane> fetch_lane_;
  std::unique_ptr<ShadowRunner> shadow_;
  std::thread thread_;
};

template <class Reply>
PlanServices::Done<Reply> TierController::ToGroup(const ModelState& state, const Group& group,
                                                  void (TierController::*handle)(ModelState&, Group&,
                                                                                 const Result<Reply>&)) {
  return [this, mailbox = mailbox_, model = std::weak_ptr<Model>(state.model), id = group.id,
          handle](Result<Reply> reply) {
    mailbox->Post([this, model, id, handle, reply = std::move(reply)] {
      if (const auto place = Find(model, id)) (this->*handle)(*place->state, *place->group, reply);
    });
  };
}

}  // namespace kiln
