#include "vm-worker/tiering/tier_controller.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "common/base/caught.h"
#include "common/base/limits.h"
#include "vm-worker/tiering/thread_observer.h"

namespace kiln {
namespace {

ShadowRunner::Options ShadowOptionsOf(const TierOptions& options) {
  ShadowRunner::Options shadow = options.shadow;
  shadow.own_thread = options.own_threads;
  shadow.clock = options.clock;
  shadow.budget = options.budget;
  shadow.device = options.device;
  return shadow;
}

}  // namespace

TierController::TierController(EpochDomain& epochs, PlanServices* services, RecipeRunner recipes, TierOptions options)
    : epochs_(epochs),
      services_(services),
      packer_(std::move(recipes), options.budget),
      options_(std::move(options)),
      requests_(options_.rates.worker, Now()) {
  if (options_.device != nullptr) {
    device_modules_ = std::make_unique<DeviceModules>(*options_.device);
    device_weights_ = std::make_unique<DeviceWeights>(*options_.device);
  }
  fetch_lane_ = std::make_unique<JobLane>(limits::kFetchesQueuedMax, options_.own_threads);
  shadow_ = std::make_unique<ShadowRunner>(ShadowOptionsOf(options_), [this](ShadowVerdict verdict) {
    mailbox_->Post([this, verdict = std::move(verdict)] { OnVerdict(verdict); });
  });
  if (services_ != nullptr)
    fetch_lane_->Post("reading which plans faulted before", [this, mailbox = mailbox_] {
      mailbox->Post([this, untold = services_->Untold()] {
        for (const PlanServices::Mark& mark : untold)
          accusations_.try_emplace(mark.plan_key, Accusation{cache::ReportKind::kFault, "ended an earlier process"});
      });
    });
  if (options_.own_threads) thread_ = std::thread([this] { Run(); });
}

TierController::~TierController() {
  {
    std::lock_guard lock(mailbox_->mutex);
    mailbox_->closed = true;
  }
  mailbox_->wake.notify_all();
  if (thread_.joinable()) thread_.join();
  fetch_lane_.reset();
  shadow_.reset();
}

// Bounded by what brings events: calls under way, the fetch lane, the shadow queue.
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
    Round(std::move(events));
  }
}

bool TierController::Step() {
  bool worked = false;
  while (fetch_lane_->Step()) worked = true;
  while (shadow_->Step()) worked = true;
  std::deque<Mailbox::Event> events;
  {
    std::lock_guard lock(mailbox_->mutex);
    events.swap(mailbox_->events);
  }
  return Round(std::move(events)) || worked;
}

bool TierController::Round(std::deque<Mailbox::Event> events) {
  std::lock_guard lock(state_mutex_);
  const auto guarded = [](const std::string& what, const auto& work) {
    const Status done = Caught([&]() -> Status {
      work();
      return {};
    });
    if (!done.has_value()) spdlog::error("control thread: {}: {}", what, ToString(done.error()));
  };
  // Before reasons change: calls are booked under the one they met.
  for (ModelState& state : models_)
    guarded("profile of model " + state.model->name(),
            [&] { state.CollectProfile(options_.policy, Now(), stats_.misses); });
  for (Mailbox::Event& event : events) guarded("an answer of the fleet", event);
  guarded("its round", [this] { Tick(); });
  return !events.empty();
}

void TierController::Tick() {
  const int64_t now = Now();
  bool read_log = now >= next_log_read_ns_;
  {
    std::lock_guard lock(mailbox_->mutex);
    read_log |= mailbox_->head_changed;
    if (!log_pending_) mailbox_->head_changed = false;
  }
  if (services_ != nullptr && read_log && !log_pending_) ReadChangeLog();
  AskToReproduce();
  WatchDevice();
  for (ModelState& state : models_) {
    if (services_ == nullptr) break;
    for (auto& [id, group] : state.groups) {
      TurnShadow(state, group);
      // With a compile service, its answer names the plan again; but no plan is asked for beside one that stands in.
      const bool list_again = !services_->CanCompile() || !group.no_pack_room.empty();
      if (list_again && group.variants_again_ns > 0 && now >= group.variants_again_ns) {
        group.variants_again_ns = 0;
        group.ListAgain();
      }
      if (now < group.retry_ns) continue;
      if (!group.variants_known && !group.variants_pending) AskVariants(state, group);
      if (group.variants_known && group.fetching.empty() && services_->CanCompile()) Consider(state, group);
    }
  }
  MakeRoom();
  epochs_.Reclaim();
}

void TierController::AddModel(std::shared_ptr<Model> model) {
  ModelState state(std::move(model), options_, Now());
  if (services_ == nullptr)
    for (auto& [id, group] : state.groups) group.trouble = MissReason::kDisabled;
  std::lock_guard lock(state_mutex_);
  models_.push_back(std::move(state));
}

void TierController::RemoveModel(const std::shared_ptr<Model>& model) {
  std::lock_guard lock(state_mutex_);
  for (const auto& runtime : model->runtimes()) {
    runtime->shadow_wanted.store(0);
    runtime->sample_every.store(0);
    runtime->shadowed.store(nullptr);
    runtime->slot.Publish({});
  }
  for (ModelState& state : models_)
    if (state.model == model)
      for (auto& [id, group] : state.groups)
        for (auto& [key, entry] : group.plans)
          for (auto& linked : entry.linked) epochs_.Retire(std::move(linked));
  std::vector<Digest> requests;
  for (const ModelState& state : models_)
    if (state.model == model)
      for (const auto& [id, group] : state.groups)
        for (const std::optional<Digest>& request : {group.request, group.range.request, group.tuned.request})
          if (request.has_value()) requests.push_back(*request);
  std::erase_if(models_, [&](const ModelState& state) { return state.model == model; });
  device_probed_ = false;  // it may have been this model's request
  for (const Digest& request : requests)
    if (!IsAwaited(request)) services_->Cancel(request);
  epochs_.Reclaim();
}

bool TierController::IsAwaited(const Digest& request) const {
  return std::ranges::any_of(models_, [&](const ModelState& state) {
    return std::ranges::any_of(state.groups, [&](const auto& item) {
      const Group& group = item.second;
      return group.request == request || group.range.request == request || group.tuned.request == request;
    });
  });
}

bool TierController::WaitWarm(int64_t timeout_ms) const {
  const int64_t deadline = Now() + timeout_ms * 1'000'000;
  for (;;) {
    {
      std::lock_guard lock(state_mutex_);
      bool warm = true;
      for (const ModelState& state : models_)
        for (const auto& [id, group] : state.groups)
          warm &= services_ == nullptr || (group.variants_known && !group.variants_pending && group.fetching.empty());
      if (warm) return true;
    }
    if (Now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

std::unique_ptr<CallObserver> TierController::MakeObserver(const std::shared_ptr<Model>& model, ModelThread& thread) {
  return std::make_unique<ThreadObserver>(*model, thread, *shadow_);
}

void TierController::OnNewHead() {
  std::lock_guard lock(mailbox_->mutex);
  mailbox_->head_changed = true;
}

void TierController::OnSignersChanged() {
  mailbox_->Post([this] { RecheckSigners(); });
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
      for (size_t place = 0; place < group.sites.size(); ++place) {
        SegmentStatus status;
        status.segment = group.sites[place];
        status.id = id;
        status.end_reason = model.program().sites()[status.segment].end_reason;
        status.reason = group.Reason();
        status.trouble = group.trouble;
        status.detail = group.detail;
        status.totals = model.SumCounters(status.segment);
        status.misses = group.misses;
        status.last_interpreted = group.last_interpreted;
        if (!group.profile.shapes.empty()) {
          status.top_shape = group.profile.shapes.front();
          status.top_forecast = ForecastExact(options_.policy, group.profile, *status.top_shape);
        }
        status.tuned_refusal = group.tuned.refusal;
        status.reproduction = group.reproduction;
        status.no_pack_room = group.no_pack_room;
        status.pack_again_in_ms = std::max<int64_t>(0, (group.variants_again_ns - Now()) / 1'000'000);
        status.request_pending = group.request.has_value();
        status.throttled = group.throttled_until_ns > 0;
        status.retry_in_ms =
            std::max<int64_t>(0, (std::max(group.retry_ns, group.throttled_until_ns) - Now()) / 1'000'000);
        for (const auto& [key, entry] : group.plans) {
          status.plans.push_back({key, entry.published, entry.clean, entry.linked[place]});
          (entry.published ? status.published : status.shadowing).push_back(key);
        }
        list.push_back(std::move(status));
      }
  }
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.segment < b.segment; });
  return list;
}

std::optional<TierController::Place> TierController::Find(const std::weak_ptr<Model>& model, const SegmentId& segment) {
  const std::shared_ptr<Model> alive = model.lock();
  for (ModelState& state : models_)
    if (alive != nullptr && state.model == alive)
      if (const auto it = state.groups.find(segment); it != state.groups.end()) return Place{&state, &it->second};
  return std::nullopt;
}

}  // namespace kiln
