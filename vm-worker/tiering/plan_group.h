// What the control thread knows of the segments of its models. Not thread-safe; TierController's state.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/security/signing.h"
#include "common/signature/signature.h"
#include "vm-worker/tiering/miss_reasons.h"
#include "vm-worker/tiering/model.h"
#include "vm-worker/tiering/policy.h"
#include "vm-worker/tiering/rejected_plans.h"
#include "vm-worker/tiering/tier_options.h"

namespace kiln {

// The shape of a call.
struct SeenCall {
  std::vector<int64_t> symbol_values;  // per symbol of the segment, -1 inside
  std::vector<SignatureInput> inputs;
};

// A plan that is linked: in its shadow runs, or published.
struct PlanEntry {
  std::vector<std::shared_ptr<const LinkedPlan>> linked;  // per site of the group
  Digest contents;
  SignPublicKey signer;
  bool published = false;
  bool sampled = false;    // published on the word of others; the interpreter is run on some of its answers
  bool in_shadow = false;  // in front of the dispatchers
  int clean = 0, undecided = 0;
  int64_t shadow_since_ns = 0;
  bool tuned() const { return linked.front()->plan().tuned; }
  bool on_device() const { return linked.front()->on_device(); }
};

// What this worker has asked for of the tuned tier.
struct TunedRequests {
  std::optional<Digest> request;  // not answered yet…
  bool request_general = false;   // …and what for
  std::vector<int64_t> request_values;
  bool general = false;  // asked, whatever became of it
  std::set<std::vector<int64_t>> exact;
  int64_t retry_ns = 0;    // after a compile service that was busy or away
  bool elsewhere = false;  // the last answer came from a replica on another target: another one may take it
  std::string refusal;     // the last reason, for explain
};

// What this worker has asked for of the range tier.
struct RangeRequests {
  std::optional<Digest> request;                // not answered yet
  std::vector<std::vector<SymbolGuard>> asked;  // whatever became of them
  int64_t retry_ns = 0;                         // after a compile service that was busy or away
};

// Calls of one shape.
struct SeenShape {
  ShapeTimes times;
  int64_t elements = 0;  // of its largest input
  bool admitted = false;
};

// A plan under way. What was announced of its key, or of its signer, since it was asked for may be missing from what
// comes: that is not used then, and the list is asked again.
struct Fetching {
  std::vector<int64_t> exact_wish;  // what it was asked for, where it is an exact plan beside others
  bool overtaken = false;
};

// All sites of a model with one SegmentId.
struct Group {
  Group(const BucketSize& rate, int64_t now_ns) : requests(rate, now_ns) {}
  SegmentId id;
  const Segment* segment = nullptr;
  std::vector<size_t> sites;
  std::map<PlanKey, PlanEntry> plans;
  std::set<PlanKey> general;  // what the compile service made for all shapes, which an op may hold to fewer
  RejectedPlans rejected;
  std::map<PlanKey, Fetching> fetching;
  SegmentProfile profile;
  std::map<std::vector<int64_t>, SeenShape> shapes;
  int64_t counted_since_ns = 0;  // span of `shapes`: from here, and what halving left of the time before
  int64_t halved_span_ns = 0;
  bool shapes_changed = false;  // since profile.shapes was written
  bool no_room = false;         // for a shape, since counts were halved
  // Why packed weights have no room, while no plan with packed ones stands in for all shapes: plans that read weights
  // as given are asked for, and used, until one does. Empty: packed ones are used.
  std::string no_pack_room;
  MissLedger misses;
  std::optional<SeenCall> last_interpreted;
  // Of `shapes`: those that were given or refused a plan of their own, and until when they are not asked for again.
  std::map<std::vector<int64_t>, int64_t> exact_asked;
  std::optional<Digest> request;    // to the compile service, not answered yet…
  bool request_for_device = false;  // …for the device's target…
  std::vector<int64_t> exact_wish;  // …and whose plan it is for, where that is an exact one beside others
  RangeRequests range;
  TunedRequests tuned;
  bool variants_known = false, variants_pending = false;
  bool variants_overtaken = false;  // the answer under way may be older than what was announced
  // Plans that the store may have withdrawn without this worker's hearing: those that its next list leaves out are
  // asked about.
  std::set<PlanKey> doubted;
  int64_t retry_ns = 0;            // the services are not asked before…
  int64_t device_retry_ns = 0;     // …and not for a plan for the device before
  TokenBucket requests;            // to the compile service
  int64_t throttled_until_ns = 0;  // a plan is wanted, and a bucket was empty; 0: none is held back
  int64_t variants_again_ns = 0;   // when a plan of the list that is paused is worth another look; 0: none is
  int64_t backoff_ms = 0;
  MissReason trouble = MissReason::kCold;  // why no plan came last time; kCold: nothing went wrong
  std::string detail;
  std::string reproduction;  // what the compile service found of the last plan that was wrong here, for explain
  double use = 0;            // calls by plan, the older the less
  uint64_t counted_calls = 0, counted_not_run = 0;

  // Whether a plan is the one for all shapes: it holds for all that the segment declares, or for as many as an op in it
  // admits.
  bool IsGeneral(const PlanKey& key, const Guard& guard) const;
  WeightForm WeightsWanted() const { return no_pack_room.empty() ? WeightForm::kPacked : WeightForm::kAsGiven; }
  // Whether a plan stands in for all shapes, which is the only kind that a segment without symbols has. `target` empty:
  // of any rung of the ladder.
  bool HasGeneric(std::string_view target = {}) const;
  // The same of those that a device runs.
  bool HasGenericOnDevice() const;
  // The same with packed weights.
  bool HasPackedGeneric() const;
  // Why calls are interpreted now, when they are.
  MissReason Reason() const;
  // A plan for the same calls that is tuned where this one is not or reads weights in another form, or the other way
  // round; null when there is none.
  const PlanEntry* FindTwin(const Plan& plan) const;
  // Whether a published plan of the same kind of target answers the same calls better: a tuned one, one with packed
  // weights. The plan stays at
  // hand, should the other one leave. What reads weights as given gives way to a packed one for all shapes as well.
  bool IsReplaced(const PlanEntry& entry) const;
  size_t CountPlans() const;  // twins are one
  // What the services could not do is over: what is left is why plans that came are not used.
  void ServicesAnswer();
  // Takes the pauses away: something in the store changed.
  void AskAgain();
  // Packed weights have no room, or (empty) have it again. What is wanted of the other form is open.
  void SetNoPackRoom(std::string why);
  // Interpreted calls, of which plans admitted `not_run`, under the reason that holds now.
  void BookMisses(uint64_t calls, uint64_t ns, uint64_t not_run, MissLedger& all);
  // Other plans are published from here on: which shapes they admit is found out, and what was interpreted before says
  // nothing about them.
  void OnPublished();
  // Books calls of one shape; which may have no room.
  void AddShape(const ShapeHistogram::Entry& entry);
  // Halves the counts, and drops shapes of which nothing is left. A general plan's measurement stays while the exact
  // plan that replaced it answers.
  void HalveShapes(int64_t now_ns);
  // Writes profile.shapes and profile.span_ns.
  void UpdateShapes(int64_t now_ns);
  // Whether a published plan for more than this shape holds for it, its inputs' places in memory apart.
  bool Admits(const std::vector<int64_t>& symbol_values, int64_t elements) const;
  // The list of the store's plans is asked for (again); one that is under way does not count.
  void ListAgain();
  // What is under way of the key is older than what was announced of it.
  void Overtake(const PlanKey& key);
  // Changes were missed.
  void DoubtAll();
};

struct ModelState {
  std::shared_ptr<Model> model;
  MemoryCharge profile_charge;  // of what follows, roughly
  std::map<SegmentId, Group> groups;

  MemoryBudget* budget;  // may be null
  TokenBucket requests;  // to the compile service

  ModelState(std::shared_ptr<Model> of, const TierOptions& options, int64_t now_ns);
  // Sums the threads' counters and shapes into the groups, and books interpreted calls under the reason that holds now,
  // in the groups' ledgers and in `all`.
  void CollectProfile(const TierPolicy& policy, int64_t now_ns, MissLedger& all);
};

}  // namespace kiln
