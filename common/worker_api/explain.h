// The worker's answer to "why": how each segment of a model runs now, what it costs and what would change it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/messaging/message.h"

namespace kiln {

class RpcClient;

struct ExplainRequest {
  std::string model;
  std::string segment;    // index, or the beginning of an id; empty: all
  std::string node;       // only segments that hold a node of this name; empty: all
  bool plans = false;     // with the steps of plans; the next calls of the segments chosen measure them
  std::string code = {};  // the beginning of a kernel id: with that kernel's code
};

struct ExplainedNode {
  std::string name, op;  // the source's name; empty for constants that the segment carries along
  // Of a node of no segment: what keeps it out of one and would change that, and the region it lies in.
  std::string reason = {}, place = {};
};

// One step of a plan. `ns` is summed over the plan's timed_calls.
struct ExplainedStep {
  std::string label;
  std::string kernel;           // kernel id; empty: a reference step
  std::string op;               // of a reference step
  std::string dims;             // kernel arguments: numbers at the measured shape, else over the model's symbols
  std::vector<uint32_t> nodes;  // indices into ExplainedSegment::nodes
  uint64_t ns = 0;
  std::string operands;  // memory it works on, and how that is laid out
};

struct ExplainedPlan {
  std::string key, state, target, tier;
  std::vector<std::string> guard;  // one condition a line
  uint32_t kernels = 0, generated_steps = 0, reference_steps = 0, clean_runs = 0;
  uint64_t timed_calls = 0;
  std::string timed_shape;  // symbol values of the last timed call
  int64_t arena_bytes = 0;  // of the last timed call
  std::vector<ExplainedStep> steps;
  std::vector<std::string> mismatch;  // why it does not admit the last interpreted call, field by field
  std::vector<uint8_t> guard_bytes;   // EncodeGuard, for tools that ask for the same plan again
  std::vector<std::string> tuning;    // what was measured before tiles were chosen, a kernel a line
  std::string weights;                // how it reads them (weight_forms.def); empty: packed
};

// A row of the ledger: interpreted calls booked under one reason of miss_reasons.def.
struct ExplainedMiss {
  std::string reason;
  uint64_t calls = 0, ns = 0;
};

struct ExplainedSegment {
  uint32_t index = 0;
  std::string id, place, end_reason;
  std::vector<ExplainedNode> nodes;
  std::vector<std::string> inputs, symbols;
  std::string state, reason;
  std::string trouble, detail;  // why the last plan did not come or left, as `reason` and in words; empty: it did
  std::vector<std::string> remedies;
  uint64_t interpreted_calls = 0, interpreted_ns = 0, plan_calls = 0, kernel_ns = 0, reference_ns = 0, guard_misses = 0,
           input_copies = 0;
  std::string last_shape;
  std::vector<ExplainedMiss> misses;
  std::vector<ExplainedPlan> plans;
};

struct ExplainReply {
  std::string model;
  std::vector<ExplainedSegment> segments;
  std::vector<ExplainedNode> outside;  // nodes of no segment: always interpreted
  std::vector<ExplainedMiss> misses;
  std::string host;           // the target that plans are asked for, and what keeps the host from the next better one
  std::string kernel;         // id of `code`; empty: none was asked for
  std::vector<uint8_t> code;  // kernel_blob.h
};

Message Encode(const ExplainRequest& request);
Message Encode(const ExplainReply& reply);
Status Decode(const Message& message, ExplainRequest& request);
Status Decode(const Message& message, ExplainReply& reply);

// Blocking; not on the client's loop thread. NotFound when no model, segment or node is called so.
Result<ExplainReply> CallExplain(RpcClient& client, const ExplainRequest& request, int64_t deadline_ms);

}  // namespace kiln
