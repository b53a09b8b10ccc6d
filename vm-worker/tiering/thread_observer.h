// ThreadObserver: what one request thread tells the control thread about one model.
#pragma once

#include "vm-worker/dispatch/dispatcher.h"
#include "vm-worker/tiering/model.h"
#include "vm-worker/tiering/shadow.h"

namespace kiln {

// Refers to the model without keeping it: it is called only while a request holds the model, and may outlive it idle.
class ThreadObserver final : public CallObserver {
 public:
  // `thread` is the model's; `shadow` outlives this.
  ThreadObserver(Model& model, ModelThread& thread, ShadowRunner& shadow)
      : model_(model), thread_(thread), shadow_(shadow) {}

  void Interpreted(int segment, const Signature& signature, int64_t elapsed_ns) override;
  void Answered(int segment, const Signature& signature, bool exact, uint64_t calls, int64_t elapsed_ns) override;
  bool ShadowRoom() const override { return shadow_.HasRoom(); }
  void ShadowCandidate(int segment, const SegmentEntry& entry, const LinkedPlan& plan, bool by_plan) override;
  void AnsweredByPlan(int segment, const SegmentEntry& entry, const LinkedPlan& plan) override;
  void Timed(int segment, const SegmentEntry& entry, const LinkedPlan& plan, int64_t arena_bytes,
             const StepTiming& timing) override;

 private:
  bool Offer(const SegmentEntry& entry, const LinkedPlan& plan, SampleAnswer answer);

  Model& model_;
  ModelThread& thread_;
  ShadowRunner& shadow_;
};

}  // namespace kiln
