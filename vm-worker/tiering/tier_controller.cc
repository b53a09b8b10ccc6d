#include "vm-worker/tiering/tier_controller.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "common/base/clock.h"
#include "common/messaging/rpc_client.h"

namespace kiln {
namespace {

constexpr int64_t kBackoffFirstMs = 500;
constexpr int64_t kBackoffMaxMs = 60'000;
constexpr size_t kShapesPerSegmentMax = 1024;

// One worker thread's view of one model.
class ThreadObserver final : public CallObserver {
 public:
  ThreadObserver(std::shared_ptr<Model> model, ModelThread& thread, ShadowRunner& shadow)
      : model_(std::move(model)), thread_(thread), shadow_(shadow) {}

  void Interpreted(int segment, const Signature& signature, int64_t elapsed_ns) override {
    thread_.shapes.Add(segment, signature, 1, elapsed_ns);
  }

  void ShadowCandidate(int segment, const SegmentEntry& entry, const LinkedPlan& plan) override {
    if (!shadow_.HasRoom()) return;
    ShadowSample sample{plan.shared_from_this(), {}, {entry.parameters.begin(), entry.parameters.end()}, {}};
    for (const TensorRef& input : entry.inputs) sample.inputs.push_back(MakeContiguous(input));
    for (const TensorRef& output : entry.outputs) sample.outputs.push_back(MakeContiguous(output));
    if (shadow_.Offer(std::move(sample))) model_->runtime(static_cast<size_t>(segment)).shadow_wanted.fetch_sub(1);
  }

  void Timed(int segment, const SegmentEntry& entry, const PlanInstance& instance, const StepTiming& timing) override {
    PlanTiming own{instance.linked().key(), 1, timing.step_ns, {}, instance.arena_bytes()};
    own.symbol_values.assign(instance.linked().segment().symbols.size(), -1);
    if (BindSymbols(instance.linked().segment(), entry.inputs, entry.parameters, own.symbol_values).has_value())
      model_->AddTiming(static_cast<size_t>(segment), std::move(own));
  }

 private:
  std::shared_ptr<Model> model_;
  ModelThread& thread_;
  ShadowRunner& shadow_;
};

}  // namespace

bool IsUnreachable(ErrorCode code) {
  return code == ErrorCode::kUnavailable || code == ErrorCode::kDeadlineExceeded || code == ErrorCode::kCancelled ||
         code == ErrorCode::kBusy;
}

std::string_view MissReasonText(MissReason reason) {
  switch (reason) {
#define KILN_MISS(value, name, text, doc) \
  case MissReason::k##name:               \
    return text;
#include "vm-worker/tiering/miss_reasons.def"
#undef KILN_MISS
  }
  return "unknown";
}

void MissLedger::Add(MissReason reason, uint64_t more_calls, uint64_t more_ns) {
  calls[static_cast<size_t>(reason)] += more_calls;
  ns[static_cast<size_t>(reason)] += more_ns;
}

TierController::TierController(EpochDomain& epochs, cache::CacheClient* store, PlanSource* source, RpcClient* compile,
                               RecipeRunner recipes, TierOptions options)
    : epochs_(epochs),
      store_(store),
      source_(source),
      compile_(compile),
      packer_(std::move(recipes)),
      options_(std::move(options)) {
  shadow_ = std::make_unique<ShadowRunner>(options_.shadow, [this](ShadowVerdict verdict) {
    mailbox_->Post([this, verdict = std::move(verdict)] { OnVerdict(verdict); });
  });
  thread_ = std::thread([this] { Run(); });
}

TierController::~TierController() {
  {
    std::lock_guard lock(mailbox_->mutex);
    mailbox_->closed = true;
  }
  mailbox_->wake.notify_all();
  thread_.join();
  shadow_.reset();
}

void TierController::Mailbox::Post(Event event) {
  std::lock_guard lock(mutex);
  if (closed) return;
  events.push_back(std::move(event));
  wake.notify_one();
}

void TierController::Run() {
  for (;;) {
    std::deque<Mailbox::Event> events;
    {
      std::unique_lock lock(mailbox_->mutex);
      mailbox_->wake.wait_for(lock, std::chrono::milliseconds(options_.tick_ms),
                              [this] { return mailbox_->closed || !mailbox_->events.empty(); });
      if (mailbox_->closed) return;
      events.swap(mailbox_->events);
    }
    std::lock_guard lock(state_mutex_);
    for (ModelState& state : models_)
      CollectProfile(state);  // before reasons change: calls are booked under the one they met
    for (Mailbox::Event& event : events) event();
    Tick();
  }
}

void TierController::AddModel(std::shared_ptr<Model> model) {
  ModelState state{model, {}};
  for (size_t i = 0; i < model->program().segments().size(); ++i) {
    const Segment& segment = model->program().segments()[i];
    Group& group = state.groups[segment.id];
    group.id = segment.id;
    if (group.segment == nullptr) group.segment = &segment;
    group.sites.push_back(i);
    if (store_ == nullptr) group.reason = MissReason::kDisabled;
  }
  std::lock_guard lock(state_mutex_);
  models_.push_back(std::move(state));
}

void TierController::RemoveModel(const std::shared_ptr<Model>& model) {
  std::lock_guard lock(state_mutex_);
  for (const auto& runtime : model->runtimes()) {
    runtime->shadow_wanted.store(0);
    runtime->shadowed.store(nullptr);
    runtime->slot.Publish({});
  }
  for (ModelState& state : models_)
    if (state.model == model)
      for (auto& [id, group] : state.groups)
        for (auto& [key, entry] : group.plans)
          for (auto& linked : entry.linked) epochs_.Retire(std::move(linked));
  std::erase_if(models_, [&](const ModelState& state) { return state.model == model; });
}

bool TierController::WaitWarm(int64_t timeout_ms) const {
  const int64_t deadline = SystemClock().NowNs() + timeout_ms * 1'000'000;
  for (;;) {
    {
      std::lock_guard lock(state_mutex_);
      bool warm = true;
      for (const ModelState& state : models_)
        for (const auto& [id, group] : state.groups)
          warm &= store_ == nullptr || (group.variants_known && !group.variants_pending && group.fetching.empty());
      if (warm) return true;
    }
    if (SystemClock().NowNs() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

std::unique_ptr<CallObserver> TierController::MakeObserver(std::shared_ptr<Model> model, ModelThread& thread) {
  return std::make_unique<ThreadObserver>(std::move(model), thread, *shadow_);
}

void TierController::OnNewHead(uint64_t) {
  std::lock_guard lock(mailbox_->mutex);
  mailbox_->head_changed = true;
}

TierStats TierController::Stats() const {
  std::lock_guard lock(state_mutex_);
  return stats_;
}

std::vector<SegmentStatus> TierController::Segments(const Model& model) const {
  std::lock_guard lock(state_mutex_);
  std::vector<SegmentStatus> list;
  for (const ModelState& state : models_) {
    if (state.model.get() != &model) continue;
    for (const auto& [id, group] : state.groups)
      for (size_t site : group.sites) {
        SegmentStatus status{site,
                             id,
                             model.program().sites()[site].end_reason,
                             group.reason,
                             group.detail,
                             {},
                             {},
                             model.SumCounters(site)};
        status.misses = group.misses;
        status.last_interpreted = group.last_interpreted;
        if (!group.profile.shapes.empty()) status.top_shape = group.profile.shapes.front();
        status.request_pending = group.request_pending;
        status.retry_in_ms = std::max<int64_t>(0, (group.retry_ns - SystemClock().NowNs()) / 1'000'000);
        const auto place =
            static_cast<size_t>(std::find(group.sites.begin(), group.sites.end(), site) - group.sites.begin());
        for (const auto& [key, entry] : group.plans) {
          if (entry.state != PlanState::kRejected)
            status.plans.push_back({key, entry.state == PlanState::kPublished, entry.clean, entry.linked[place]});
          if (entry.state == PlanState::kPublished) status.published.push_back(key);
          if (entry.state == PlanState::kShadowing) status.shadowing.push_back(key);
        }
        list.push_back(std::move(status));
      }
  }
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.segment < b.segment; });
  return list;
}

void TierController::Tick() {
  const int64_t now = SystemClock().NowNs();
  if (store_ != nullptr && !log_pending_) {
    bool read_log = now >= next_log_read_ns_;
    {
      std::lock_guard lock(mailbox_->mutex);
      read_log |= mailbox_->head_changed;
      mailbox_->head_changed = false;
    }
    if (read_log) ReadChangeLog();
  }
  for (ModelState& state : models_) {
    for (auto& [id, group] : state.groups) {
      if (store_ == nullptr) continue;
      RefreshShadow(state, group);
      // What the lists of plans say counts from where the change log is read on.
      if (now < group.retry_ns || !log_position_known_) continue;
      if (!group.variants_known && !group.variants_pending) AskVariants(state, group);
      if (group.variants_known && compile_ != nullptr) Consider(state, group);
    }
  }
  epochs_.Reclaim();
}

// Sums the threads' counters and shapes into the groups, and books interpreted calls under the reason that holds now.
void TierController::CollectProfile(ModelState& state) {
  std::vector<std::unordered_map<int, std::vector<ShapeHistogram::Entry>>> taken;
  for (ModelThread* thread : state.model->threads()) taken.push_back(thread->shapes.Take());
  for (auto& [id, group] : state.groups) {
    const uint64_t before = group.profile.interpreted_calls, before_ns = group.profile.interpreted_ns;
    SegmentProfile& profile = group.profile;
    profile.interpreted_calls = profile.interpreted_ns = profile.plan_calls = 0;
    for (size_t site : group.sites) {
      const Model::Totals totals = state.model->SumCounters(site);
      profile.interpreted_calls += totals.interpreted_calls;
      profile.interpreted_ns += totals.interpreted_ns;
      profile.plan_calls += totals.plan_calls;
      for (auto& shapes : taken) {
        const auto entries = shapes.find(static_cast<int>(site));
        if (entries == shapes.end()) continue;
        for (const ShapeHistogram::Entry& entry : entries->second) {
          const auto parts = ParseSignature(entry.signature.words, group.segment->runtime_inputs);
          if (!parts.has_value()) continue;
          std::vector<TensorRef> inputs;
          for (const SignatureInput& input : parts->inputs)
            inputs.push_back({input.dtype, input.dims, input.strides, nullptr});
          std::vector<int64_t> values(group.segment->symbols.size(), -1);
          if (!BindSymbols(*group.segment, inputs, parts->parameters, values).has_value()) continue;
          if (group.shapes.size() < kShapesPerSegmentMax || group.shapes.contains(values))
            group.shapes[values] += entry.calls;
          group.last_interpreted = SeenCall{std::move(values), parts->inputs};
        }
      }
    }
    stats_.misses.Add(group.reason, profile.interpreted_calls - before, profile.interpreted_ns - before_ns);
    group.misses.Add(group.reason, profile.interpreted_calls - before, profile.interpreted_ns - before_ns);
    profile.shapes.clear();
    for (const auto& [values, calls] : group.shapes) profile.shapes.push_back({values, calls});
    std::stable_sort(profile.shapes.begin(), profile.shapes.end(),
                     [](const auto& a, const auto& b) { return a.calls > b.calls; });
  }
}

void TierController::AskVariants(ModelState& state, Group& group) {
  group.variants_pending = true;
  group.variants_stale = false;
  cache::VariantsRequest request{group.id, {}};
  for (Target target : options_.targets) request.targets.emplace_back(InfoOf(target).name);
  store_->Call(request, options_.store_deadline_ms,
               [this, mailbox = mailbox_, model = std::weak_ptr<Model>(state.model),
                id = group.id](Result<cache::VariantsReply> reply) {
                 mailbox->Post([this, model, id, reply = std::move(reply)] {
                   ModelState* state = Find(model);
                   if (state == nullptr) return;
                   Group& group = state->groups[id];
                   group.variants_pending = false;
                   if (!reply.has_value()) return BackOff(group, MissReason::kNoService, reply.error());
                   group.variants_known = !group.variants_stale;
                   group.backoff_ms = 0;
                   if (group.reason == MissReason::kNoService) group.reason = MissReason::kCold;
                   for (const cache::Variant& variant : reply->variants)
                     if (variant.numeric_mode == static_cast<uint8_t>(options_.numeric_mode))
                       Fetch(*state, group, variant.plan_key, variant.evidence);
                 });
               });
}

void TierController::Consider(ModelState& state, Group& group) {
  SegmentPlans plans;
  plans.request_pending = group.request_pending || !group.fetching.empty();
  plans.exact = group.exact_asked;
  for (const auto& [key, entry] : group.plans) {
    if (entry.state == PlanState::kPublished) ++plans.published;
    if (entry.state != PlanState::kRejected && !entry.exact) plans.generic = true;
  }
  if (const auto wish = NextPlan(options_.policy, *group.segment, group.profile, plans))
    SendRequest(state, group, *wish);
}

void TierController::SendRequest(ModelState& state, Group& group, const PlanWish& wish) {
  Result<std::vector<uint8_t>> segment = EncodeSegment(*group.segment);
  if (!segment.has_value()) return BackOff(group, MissReason::kCompileFailed, segment.error());
  CompileRequest request;
  request.segment = std::move(*segment);
  request.target = InfoOf(options_.targets.front()).name;
  request.numeric_mode = options_.numeric_mode;
  request.tier = wish.tier;
  request.priority = wish.priority;
  request.symbols = wish.symbols;
  request.hints = wish.hints;
  if (wish.tier == PlanTier::kExact) group.exact_asked.push_back(wish.hints);
  group.request_pending = true;
  if (group.reason == MissReason::kCold) group.reason = MissReason::kCompiling;
  ++stats_.compile_requests;
  spdlog::info("model {}: segment {} is hot ({} runs, {:.1f} ms interpreted); asking for a {} plan",
               state.model->name(), group.id.ShortHex(), group.profile.interpreted_calls,
               static_cast<double>(group.profile.interpreted_ns) / 1e6, PlanTierName(wish.tier));
  RequestCompile(
      *compile_, request, options_.compile_deadline_ms,
      [this, mailbox = mailbox_, model = std::weak_ptr<Model>(state.model), id = group.id](Result<CompileReply> reply) {
        mailbox->Post([this, model, id, reply = std::move(reply)] { OnCompiled(model, id, reply); });
      });
}

void TierController::OnCompiled(const std::weak_ptr<Model>& model, const SegmentId& id,
                                const Result<CompileReply>& reply) {
  ModelState* state = Find(model);
  if (state == nullptr) return;
  Group& group = state->groups[id];
  group.request_pending = false;
  if (!reply.has_value()) {
    ++stats_.compile_failures;
    return BackOff(group, IsUnreachable(reply.error().code) ? MissReason::kNoService : MissReason::kCompileFailed,
                   reply.error());
  }
  group.backoff_ms = 0;
  stats_.compiled += reply->already_there ? 0 : 1;
  Fetch(*state, group, reply->plan_key, {});
}

void TierController::BackOff(Group& group, MissReason reason, const Error& error) {
  // A store whose disk is full, or a host without memory, may have room again at any time.
  const bool permanent = !IsUnreachable(error.code) && error.code != ErrorCode::kResourceExhausted;
  group.backoff_ms = permanent ? kBackoffMaxMs : std::clamp(group.backoff_ms * 2, kBackoffFirstMs, kBackoffMaxMs);
  group.retry_ns = SystemClock().NowNs() + group.backoff_ms * 1'000'000;
  group.reason = reason;
  group.detail = ToString(error);
  spdlog::warn("segment {}: {}; next try in {} ms", group.id.ShortHex(), group.detail, group.backoff_ms);
}

void TierController::ReadChangeLog() {
  log_pending_ = true;
  next_log_read_ns_ = SystemClock().NowNs() + options_.change_log_ms * 1'000'000;
  store_->Call(cache::ChangeLogRequest{log_position_, 0}, options_.store_deadline_ms,
               [this, mailbox = mailbox_](Result<cache::ChangeLogReply> reply) {
                 mailbox->Post([this, reply = std::move(reply)] { OnChangeLog(reply); });
               });
}

void TierController::AskVariantsAgain(Group& group) {
  group.variants_known = false;
  group.variants_stale = group.variants_pending;
}

void TierController::OnChangeLog(const Result<cache::ChangeLogReply>& reply) {
  log_pending_ = false;
  if (!reply.has_value()) {
    if (log_position_known_) return;
    for (ModelState& state : models_)
      for (auto& [id, group] : state.groups)
        if (SystemClock().NowNs() >= group.retry_ns) BackOff(group, MissReason::kNoService, reply.error());
    return;
  }
  if (!log_position_known_ || reply->gap) {
    // What happened before is in the Variants lists, which are read (again) from here on.
    log_position_known_ = true;
    log_position_ = reply->head;
    for (ModelState& state : models_)
      for (auto& [id, group] : state.groups) AskVariantsAgain(group);
    return;
  }
  for (const cache::ChangeEntry& change : reply->entries) {
    log_position_ = std::max(log_position_, change.sequence);
    switch (change.kind) {
      case cache::ChangeKind::kPublish:
      case cache::ChangeKind::kUnquarantine:
        for (ModelState& state : models_)
          if (auto it = state.groups.find(change.segment); it != state.groups.end()) AskVariantsAgain(it->second);
        break;
      case cache::ChangeKind::kQuarantine:
      case cache::ChangeKind::kPurge:
        Drop(change.plan_key, MissReason::kQuarantined,
             std::string("the store announced: ") + std::string(ChangeKindName(change.kind)));
        break;
      case cache::ChangeKind::kEvict:
      case cache::ChangeKind::kDamaged:
        break;
    }
  }
}

TierController::ModelState* TierController::Find(const std::weak_ptr<Model>& model) {
  const std::shared_ptr<Model> alive = model.lock();
  for (ModelState& state : models_)
    if (alive != nullptr && state.model == alive) return &state;
  return nullptr;
}

}  // namespace kiln
