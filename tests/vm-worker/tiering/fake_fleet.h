// A store and a compiler in memory, time that tests move, and a worker thread for one model: everything around a
// TierController that is stepped by hand.
#pragma once

#include <map>

#include "common/artifact/record.h"
#include "tests/vm-worker/dispatch/plan_fixture.h"
#include "vm-worker/dispatch/dispatcher.h"
#include "vm-worker/interp/interpreter.h"
#include "vm-worker/tiering/tier_controller.h"

namespace kiln::testing {

class ManualClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns.load(); }
  int64_t WallMs() const override { return now_ns.load() / 1'000'000; }
  std::atomic<int64_t> now_ns{1'000'000'000};
};

// The time of a ManualClock, which it moves on by `reading_ns` whenever it is read: what a call by plan takes is one
// reading.
class CallClock final : public Clock {
 public:
  explicit CallClock(ManualClock& clock) : clock_(clock) {}
  int64_t NowNs() const override { return clock_.now_ns.fetch_add(reading_ns); }
  int64_t WallMs() const override { return clock_.WallMs(); }
  int64_t reading_ns = 0;

 private:
  ManualClock& clock_;
};

// Answers at once, unless `hung` (never, until released) or `down` (Unavailable).
class FakeFleet final : public PlanServices {
 public:
  struct Stored {
    Plan plan;
    uint32_t proven_runs = 0;
    std::vector<std::vector<uint8_t>> blobs;
    SignPublicKey signer;
    uint32_t revision = 0;  // another one is another record with other contents
  };

  void Variants(const cache::VariantsRequest& request, Done<cache::VariantsReply> done) override {
    ++variants_asked;
    Answer<cache::VariantsReply>(std::move(done), [this, request]() -> Result<cache::VariantsReply> {
      cache::VariantsReply reply;
      const auto knows = [&](WeightForm form) {
        return form == WeightForm::kPacked || !knows_forms ||
               std::ranges::count(request.weights, static_cast<uint8_t>(form)) > 0;
      };
      for (const auto& [key, stored] : plans)
        if (stored.plan.segment == request.segment && !quarantined.contains(key) && knows(stored.plan.weights))
          reply.variants.push_back({.plan_key = key,
                                    .target = stored.plan.target,
                                    .numeric_mode = static_cast<uint8_t>(stored.plan.numeric_mode),
                                    .guard = {},
                                    .evidence = {ValidationKind::kExecuted, stored.proven_runs},
                                    .codegen_id = {},
                                    .weights = knows_forms ? static_cast<uint8_t>(stored.plan.weights) : uint8_t{0}});
      return reply;
    });
  }
  void ReadChangeLog(const cache::ChangeLogRequest& request, Done<cache::ChangeLogReply> done) override {
    ++logs_read;
    const auto reply = [this, request]() -> Result<cache::ChangeLogReply> {
      cache::ChangeLogReply reply;
      reply.head = head;
      reply.gap = request.since < log_begin || request.since > head;
      if (reply.gap) return reply;
      for (const cache::ChangeEntry& change : log)
        if (change.sequence > request.since && reply.entries.size() < log_entries_max) reply.entries.push_back(change);
      return reply;
    };
    if (hold_log)
      return held_logs_.push_back(
          [this, done = std::move(done), reply] { Answer<cache::ChangeLogReply>(done, reply); });
    Answer<cache::ChangeLogReply>(std::move(done), reply);
  }
  // Answers reads of the log that `hold_log` kept.
  void ReleaseLogs() {
    for (const auto& answer : std::exchange(held_logs_, {})) answer();
  }
  size_t LogsHeld() const { return held_logs_.size(); }
  // Changes up to here are gone: whoever has not read them sees a gap.
  void LoseLog() {
    log.clear();
    log_begin = head += 1000;
  }
  void Report(const cache::ReportRequest& request, Done<cache::ReportReply> done) override {
    reports.push_back(request);
    Answer<cache::ReportReply>(std::move(done), []() -> Result<cache::ReportReply> { return cache::ReportReply{}; });
  }
  bool CanCompile() const override { return can_compile; }
  void Compile(const CompileRequest& request, Done<CompileReply> done) override {
    ++compiles_asked;
    asked.push_back(request.Key());
    compile_tiers.push_back(request.tier);
    compile_weights.push_back(request.weights);
    compile_targets.push_back(request.target);
    Answer<CompileReply>(std::move(done), [this, request]() -> Result<CompileReply> {
      const bool for_device = InfoOf(*TargetFromName(request.target)).is_device();
      if (compile_fails) return Fail(*compile_fails, "no plan");
      if (for_device && device_fails) return Fail(*device_fails, "no NVRTC here");
      const SymbolGuard& asked = request.symbols.at(0);
      Plan plan = for_device ? make_device_plan(asked.min, asked.max)
                             : make_plan(asked.min, asked.max, knows_forms ? request.weights : WeightForm::kPacked);
      plan.guard.symbols[0].divisor = asked.divisor;
      if (request.tier == PlanTier::kGeneric && general_holds_for) plan.guard.symbols[0] = *general_holds_for;
      plan.tuned = request.tier == PlanTier::kTuned;
      CompileReply reply;
      reply.plan_key = ComputePlanKey(plan);
      if (quarantined.contains(reply.plan_key))
        return Fail(ErrorCode::kQuarantined, "plan " + reply.plan_key.ShortHex() + " is quarantined");
      reply.already_there = plans.contains(reply.plan_key);
      if (!reply.already_there) Publish(std::move(plan), 0, for_device ? device_blobs : decltype(device_blobs)());
      return reply;
    });
  }
  void Reproduce(const ReproduceRequest& request, Done<ReproduceReply> done) override {
    reproductions.push_back(request);
    Answer<ReproduceReply>(std::move(done), [this, request]() -> Result<ReproduceReply> {
      if (reproduce_fails) return Fail(*reproduce_fails, "not now");
      if (reproduced.IsReproduced()) {
        quarantined.insert(request.plan_key);
        Announce(cache::ChangeKind::kQuarantine, request.plan_key, {});
      }
      return ReproduceReply{reproduced, reproduced.IsReproduced()};
    });
  }
  void Cancel(const Digest& request) override { cancelled.push_back(request); }
  Result<FetchedPlan> Fetch(const PlanKey& key, const SegmentId&) override {
    ++fetches_asked;
    if (down || hung) return Fail(ErrorCode::kDeadlineExceeded, "the store did not answer");
    const auto it = plans.find(key);
    if (it == plans.end()) return Fail(ErrorCode::kNotFound, "no such plan");
    if (quarantined.contains(key)) return Fail(ErrorCode::kQuarantined, "the plan is quarantined");
    const Stored& stored = it->second;
    if (!Trusts(stored.signer)) return Fail(ErrorCode::kIntegrityFailure, "signed by nobody who is believed");
    FetchedPlan fetched;
    fetched.key = key;
    fetched.plan = std::make_shared<const Plan>(stored.plan);
    if (const Target target = *TargetFromName(stored.plan.target); InfoOf(target).is_device()) {
      ASSIGN_OR_RETURN(fetched.images, VerifyImages(stored.plan.kernels, stored.blobs, target));
    } else {
      const std::vector<std::span<const uint8_t>> blobs(stored.blobs.begin(), stored.blobs.end());
      ASSIGN_OR_RETURN(fetched.code, CodeMapping::Map(stored.plan.kernels, blobs, HostTargets().front()));
    }
    fetched.contents = HashBytes(EncodePlan(stored.plan));
    fetched.contents.bytes[0] ^= static_cast<uint8_t>(stored.revision);
    fetched.signer = stored.signer;
    if (after_fetch) std::exchange(after_fetch, nullptr)();
    return fetched;
  }
  Status Standing(const PlanKey& key) override {
    if (down || hung || standing_down) return Fail(ErrorCode::kUnavailable, "no service");
    if (!plans.contains(key)) return Fail(ErrorCode::kNotFound, "no such plan");
    if (quarantined.contains(key)) return Fail(ErrorCode::kQuarantined, "the plan is quarantined");
    return {};
  }
  void Forget(const PlanKey& key) override { forgotten.insert(key); }
  void Remember(const Mark& mark) override { marks[mark.plan_key] = mark.contents; }
  void Forgive(const PlanKey& key) override { marks.erase(key); }
  std::vector<Mark> Untold() override { return untold; }
  void Told(const PlanKey& key) override { told.insert(key); }
  bool Trusts(const SignPublicKey& signer) const override { return !(revoked && signer == *revoked); }

  PlanKey Publish(Plan plan, uint32_t proven_runs = 0, std::vector<std::vector<uint8_t>> blobs = {},
                  uint32_t revision = 0) {
    const PlanKey key = ComputePlanKey(plan);
    Announce(cache::ChangeKind::kPublish, key, plan.segment);
    plans[key] = {std::move(plan), proven_runs, std::move(blobs), {}, revision};
    return key;
  }
  void Announce(cache::ChangeKind kind, const PlanKey& key, const SegmentId& segment) {
    log.push_back({++head, kind, key, segment, ""});
  }
  size_t Reports(cache::ReportKind kind) const {
    return static_cast<size_t>(
        std::count_if(reports.begin(), reports.end(), [&](const auto& report) { return report.kind == kind; }));
  }

  std::map<PlanKey, Stored> plans;
  std::set<PlanKey> quarantined;
  std::map<PlanKey, Digest> marks;
  std::vector<Mark> untold;
  std::set<PlanKey> told;
  std::vector<cache::ChangeEntry> log;
  uint64_t head = 0, log_begin = 0;
  size_t log_entries_max = 1000;
  bool hold_log = false;
  std::function<void()> after_fetch;  // once, when the next record was read
  std::set<PlanKey> forgotten;
  std::vector<cache::ReportRequest> reports;
  std::vector<Digest> asked, cancelled;  // compile requests, by key
  std::vector<PlanTier> compile_tiers;
  std::vector<WeightForm> compile_weights;
  std::vector<std::string> compile_targets;
  std::function<Plan(int64_t min, int64_t max)> make_device_plan;
  std::vector<std::vector<uint8_t>> device_blobs;  // of what it makes
  std::optional<ErrorCode> device_fails;           // of requests for a device's target
  std::function<Plan(int64_t min, int64_t max, WeightForm weights)> make_plan =
      [](int64_t min, int64_t max, WeightForm) { return ReluPlan(min, max); };
  std::vector<ReproduceRequest> reproductions;
  ReproduceVerdict reproduced{ReproduceOutcome::kAgrees, "right"};
  std::optional<ErrorCode> reproduce_fails;
  std::optional<SignPublicKey> revoked;
  std::optional<ErrorCode> compile_fails;
  std::optional<SymbolGuard> general_holds_for;  // instead of what was asked for
  bool knows_forms = true;  // false: store and compile service are of the version before forms of weights
  bool can_compile = true, down = false, hung = false, standing_down = false;
  int variants_asked = 0, compiles_asked = 0, fetches_asked = 0, logs_read = 0;

 private:
  template <class Reply>
  void Answer(Done<Reply> done, const std::function<Result<Reply>()>& reply) {
    if (hung) return waiting_.push_back([done, reply] { done(reply()); });
    done(down ? Result<Reply>(Fail(ErrorCode::kUnavailable, "no service")) : reply());
  }
  std::vector<std::function<void()>> waiting_, held_logs_;
};

// y = Relu(x), or another element-wise program, in a model of its own, on one request thread, with a controller that
// steps when told.
struct SteppedWorker {
  explicit SteppedWorker(TierOptions options = {}, Program of = ReluProgram())
      : tiers(epochs, &fleet, InterpretRecipe, With(std::move(options))),
        program(LoadedProgram::Load(std::move(of)).value()) {
    tiers.AddModel(model);
  }
  explicit SteppedWorker(MemoryBudget& budget) : SteppedWorker(TierOptions{.budget = &budget}) {}
  TierOptions With(TierOptions options) {
    options.targets = HostTargets();
    options.own_threads = false;
    options.clock = &clock;
    options.policy.hot_ns = 0;
    return options;
  }

  static std::shared_ptr<const LoadedProgram> Relu() { return LoadedProgram::Load(ReluProgram()).value(); }

  // One request; its answer is checked.
  void Run(int64_t rows) {
    Tensor x = Tensor::Allocate(DType::kF32, {rows, columns});
    for (int64_t i = 0; i < rows * columns; ++i) x.ref.as<float>()[i] = static_cast<float>(i % 3) - 1;
    EpochScope scope(epochs, reader);
    RunOptions run;
    run.hook = &dispatcher;
    const auto outputs = context.Run(model->program(), {&x.ref, 1}, run);
    ASSERT_TRUE(outputs.has_value()) << ToString(outputs.error());
    bool wrong = false;
    for (int64_t i = 0; i < rows * columns; ++i)
      wrong |= (*outputs)[0].ref.as<float>()[i] != answer(static_cast<float>(i % 3) - 1);
    wrong_answers += wrong ? 1 : 0;
  }
  // Runs and steps for so long, `every_ms` apart.
  void Live(int64_t ms, int64_t every_ms = 50, int64_t rows = 3) {
    for (int64_t passed = 0; passed < ms; passed += every_ms) {
      Run(rows);
      clock.now_ns += every_ms * 1'000'000;
      while (tiers.Step()) {
      }
    }
  }
  SegmentStatus Status() const { return tiers.Segments(*model).at(0); }
  uint64_t Interpreted() const { return model->SumCounters(0).interpreted_calls; }
  uint64_t ByPlan() const { return model->SumCounters(0).plan_calls; }

  ManualClock clock;
  CallClock call_clock{clock};
  FakeFleet fleet;
  EpochDomain epochs;
  TierController tiers;
  const std::shared_ptr<const LoadedProgram> program;
  int64_t columns = 4;
  float (*answer)(float) = [](float x) { return std::max(0.0f, x); };
  std::shared_ptr<Model> model = std::make_shared<Model>("m", program, epochs);
  ModelThread& thread = model->AddThread();
  std::unique_ptr<CallObserver> observer = tiers.MakeObserver(model, thread);
  std::unique_ptr<DeviceLane> lane =
      tiers.options().device == nullptr ? nullptr : DeviceLane::Open(*tiers.options().device).value();
  Dispatcher dispatcher{model->runtimes(),
                        thread.counters,
                        *observer,
                        {.lane = lane.get(), .budget = tiers.options().budget, .clock = &call_clock}};
  VmContext context;
  int reader = epochs.RegisterReader();
  uint64_t wrong_answers = 0;
};

}  // namespace kiln::testing
