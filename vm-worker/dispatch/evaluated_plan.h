// EvaluatedPlan: a linked plan at one set of symbol values, before anybody says where its storages lie: what is written
// where, checked. The stage before an instance, on whatever it runs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "vm-worker/dispatch/linked_plan.h"

namespace kiln {

// A view of a storage.
struct EvaluatedValue {
  TensorRef view;  // without data
  StorageKind storage;
  int32_t index;   // of the storage, as in PlanValue
  int64_t offset;  // of the view's first element there, in bytes
};

struct EvaluatedOutput {
  TensorRef ref;  // without data
  int64_t bytes;
};

struct EvaluatedPlan {
  std::vector<EvaluatedOutput> outputs;
  std::vector<EvaluatedValue> values;  // per plan value
  std::vector<int64_t> input_bytes;    // per run-time input; 0 where no value lies in it
  std::vector<int64_t> buffer_bytes;   // per buffer
  bool is_empty = false;               // every output is
};

// Evaluates every Dim of values and buffers, and verifies that every value lies inside its storage (64-bit
// arithmetic) and that outputs have the segment's shapes.
Result<EvaluatedPlan> EvaluatePlan(const LinkedPlan& linked, std::span<const int64_t> symbol_values);

// A kernel step's numbers.
struct EvaluatedKernel {
  std::vector<int64_t> dims;
  int64_t range = 0, scratch_bytes = 0, cost = 0;
};
Result<EvaluatedKernel> EvaluateKernel(const Plan& plan, size_t step, std::span<const int64_t> symbol_values);

}  // namespace kiln
