#include "common/worker_api/explain.h"

#include "common/base/flatbuffer.h"
#include "common/messaging/rpc_client.h"
#include "common/worker_api/worker_api.h"
#include "schemas/worker_generated.h"

namespace kiln {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
using flatbuffers::Vector;

std::string Text(const flatbuffers::String* text) {
  return text == nullptr ? std::string() : text->str();
}

std::vector<std::string> Texts(const Vector<Offset<flatbuffers::String>>* list) {
  std::vector<std::string> texts;
  if (list != nullptr)
    for (const flatbuffers::String* text : *list) texts.push_back(Text(text));
  return texts;
}

template <class T, class Make>
auto EncodeList(FlatBufferBuilder& builder, const std::vector<T>& list, Make make) {
  std::vector<decltype(make(list.front()))> offsets;
  for (const T& item : list) offsets.push_back(make(item));
  return builder.CreateVector(offsets);
}

Offset<Vector<Offset<fbs::ExplainedNode>>> EncodeNodes(FlatBufferBuilder& builder,
                                                       const std::vector<ExplainedNode>& nodes) {
  return EncodeList(builder, nodes, [&](const ExplainedNode& node) {
    return fbs::CreateExplainedNode(builder, builder.CreateString(node.name), builder.CreateString(node.op),
                                    node.reason.empty() ? 0 : builder.CreateString(node.reason),
                                    node.place.empty() ? 0 : builder.CreateString(node.place));
  });
}

std::vector<ExplainedNode> DecodeNodes(const Vector<Offset<fbs::ExplainedNode>>* list) {
  std::vector<ExplainedNode> nodes;
  if (list != nullptr)
    for (const fbs::ExplainedNode* node : *list)
      nodes.push_back({Text(node->name()), Text(node->op()), Text(node->reason()), Text(node->place())});
  return nodes;
}

Offset<Vector<Offset<fbs::ExplainedMiss>>> EncodeMisses(FlatBufferBuilder& builder,
                                                        const std::vector<ExplainedMiss>& misses) {
  return EncodeList(builder, misses, [&](const ExplainedMiss& miss) {
    return fbs::CreateExplainedMiss(builder, builder.CreateString(miss.reason), miss.calls, miss.ns);
  });
}

std::vector<ExplainedMiss> DecodeMisses(const Vector<Offset<fbs::ExplainedMiss>>* list) {
  std::vector<ExplainedMiss> misses;
  if (list != nullptr)
    for (const fbs::ExplainedMiss* miss : *list) misses.push_back({Text(miss->reason()), miss->calls(), miss->ns()});
  return misses;
}

Offset<fbs::ExplainedPlan> EncodePlanOf(FlatBufferBuilder& builder, const ExplainedPlan& plan) {
  const auto steps = EncodeList(builder, plan.steps, [&](const ExplainedStep& step) {
    return fbs::CreateExplainedStep(builder, builder.CreateString(step.label), builder.CreateString(step.kernel),
                                    builder.CreateString(step.op), builder.CreateString(step.dims),
                                    builder.CreateVector(step.nodes), step.ns, builder.CreateString(step.operands));
  });
  return fbs::CreateExplainedPlan(
      builder, builder.CreateString(plan.key), builder.CreateString(plan.state), builder.CreateString(plan.target),
      builder.CreateVectorOfStrings(plan.guard), plan.kernels, plan.generated_steps, plan.reference_steps,
      plan.clean_runs, plan.timed_calls, builder.CreateString(plan.timed_shape), plan.arena_bytes, steps,
      builder.CreateVectorOfStrings(plan.mismatch), builder.CreateVector(plan.guard_bytes),
      builder.CreateString(plan.tier), builder.CreateVectorOfStrings(plan.tuning), builder.CreateString(plan.weights));
}

ExplainedPlan DecodePlanOf(const fbs::ExplainedPlan& from) {
  ExplainedPlan plan;
  plan.key = Text(from.key());
  plan.state = Text(from.state());
  plan.target = Text(from.target());
  plan.guard = Texts(from.guard());
  plan.kernels = from.kernels();
  plan.generated_steps = from.generated_steps();
  plan.reference_steps = from.reference_steps();
  plan.clean_runs = from.clean_runs();
  plan.timed_calls = from.timed_calls();
  plan.timed_shape = Text(from.timed_shape());
  plan.arena_bytes = from.arena_bytes();
  plan.mismatch = Texts(from.mismatch());
  plan.tier = Text(from.tier());
  plan.tuning = Texts(from.tuning());
  plan.weights = Text(from.weights());
  if (from.guard_bytes() != nullptr) plan.guard_bytes.assign(from.guard_bytes()->begin(), from.guard_bytes()->end());
  if (from.steps() != nullptr)
    for (const fbs::ExplainedStep* step : *from.steps()) {
      ExplainedStep& to = plan.steps.emplace_back();
      to = {Text(step->label()), Text(step->kernel()),  Text(step->op()), Text(step->dims()), {},
            step->ns(),          Text(step->operands())};
      if (step->nodes() != nullptr) to.nodes.assign(step->nodes()->begin(), step->nodes()->end());
    }
  return plan;
}

Offset<fbs::ExplainedSegment> EncodeSegmentOf(FlatBufferBuilder& builder, const ExplainedSegment& segment) {
  const auto nodes = EncodeNodes(builder, segment.nodes);
  const auto misses = EncodeMisses(builder, segment.misses);
  const auto plans =
      EncodeList(builder, segment.plans, [&](const ExplainedPlan& plan) { return EncodePlanOf(builder, plan); });
  return fbs::CreateExplainedSegment(
      builder, segment.index, builder.CreateString(segment.id), builder.CreateString(segment.place),
      builder.CreateString(segment.end_reason), nodes, builder.CreateVectorOfStrings(segment.inputs),
      builder.CreateVectorOfStrings(segment.symbols), builder.CreateString(segment.state),
      builder.CreateString(segment.reason), builder.CreateString(segment.detail),
      builder.CreateVectorOfStrings(segment.remedies), segment.interpreted_calls, segment.interpreted_ns,
      segment.plan_calls, segment.kernel_ns, segment.reference_ns, segment.guard_misses, segment.input_copies,
      builder.CreateString(segment.last_shape), misses, plans, builder.CreateString(segment.trouble));
}

ExplainedSegment DecodeSegmentOf(const fbs::ExplainedSegment& from) {
  ExplainedSegment segment;
  segment.index = from.index();
  segment.id = Text(from.id());
  segment.place = Text(from.place());
  segment.end_reason = Text(from.end_reason());
  segment.nodes = DecodeNodes(from.nodes());
  segment.inputs = Texts(from.inputs());
  segment.symbols = Texts(from.symbols());
  segment.state = Text(from.state());
  segment.reason = Text(from.reason());
  segment.trouble = Text(from.trouble());
  segment.detail = Text(from.detail());
  segment.remedies = Texts(from.remedies());
  segment.interpreted_calls = from.interpreted_calls();
  segment.interpreted_ns = from.interpreted_ns();
  segment.plan_calls = from.plan_calls();
  segment.kernel_ns = from.kernel_ns();
  segment.reference_ns = from.reference_ns();
  segment.guard_misses = from.guard_misses();
  segment.input_copies = from.input_copies();
  segment.last_shape = Text(from.last_shape());
  segment.misses = DecodeMisses(from.misses());
  if (from.plans() != nullptr)
    for (const fbs::ExplainedPlan* plan : *from.plans()) segment.plans.push_back(DecodePlanOf(*plan));
  return segment;
}

// Steps name nodes by index: what a peer sends is checked before it is used as one.
Status CheckNodes(const ExplainedSegment& segment) {
  for (const ExplainedPlan& plan : segment.plans)
    for (const ExplainedStep& step : plan.steps)
      for (uint32_t node : step.nodes)
        if (node >= segment.nodes.size())
          return Fail(ErrorCode::kMalformed, "explain reply: step \"" + step.label + "\" names node " +
                                                 std::to_string(node) + " of " + std::to_string(segment.nodes.size()));
  return {};
}

}  // namespace

Message Encode(const ExplainRequest& request) {
  FlatBufferBuilder builder(256);
  builder.Finish(fbs::CreateExplainRequest(builder, builder.CreateString(request.model),
                                           builder.CreateString(request.segment), builder.CreateString(request.node),
                                           request.plans, builder.CreateString(request.code)));
  return {FinishedBytes(builder), {}};
}

Status Decode(const Message& message, ExplainRequest& request) {
  ASSIGN_OR_RETURN(const fbs::ExplainRequest* root,
                   VerifiedRoot<fbs::ExplainRequest>(message.payload, "explain request"));
  request = {Text(root->model()), Text(root->segment()), Text(root->node()), root->plans(), Text(root->code())};
  return {};
}

Message Encode(const ExplainReply& reply) {
  FlatBufferBuilder builder(16384);
  const auto segments = EncodeList(builder, reply.segments,
                                   [&](const ExplainedSegment& segment) { return EncodeSegmentOf(builder, segment); });
  const auto outside = EncodeNodes(builder, reply.outside);
  const auto misses = EncodeMisses(builder, reply.misses);
  builder.Finish(fbs::CreateExplainReply(builder, builder.CreateString(reply.model), segments, outside, misses,
                                         builder.CreateString(reply.host), builder.CreateString(reply.kernel),
                                         builder.CreateVector(reply.code)));
  return {FinishedBytes(builder), {}};
}

Status Decode(const Message& message, ExplainReply& reply) {
  ASSIGN_OR_RETURN(const fbs::ExplainReply* root, VerifiedRoot<fbs::ExplainReply>(message.payload, "explain reply"));
  reply = {Text(root->model()),  {}, DecodeNodes(root->outside()), DecodeMisses(root->misses()), Text(root->host()),
           Text(root->kernel()), {}};
  const auto code = BytesOf(root->code());
  reply.code.assign(code.begin(), code.end());
  if (root->segments() != nullptr)
    for (const fbs::ExplainedSegment* segment : *root->segments()) {
      reply.segments.push_back(DecodeSegmentOf(*segment));
      RETURN_IF_ERROR(CheckNodes(reply.segments.back()));
    }
  return {};
}

Result<ExplainReply> CallExplain(RpcClient& client, const ExplainRequest& request, int64_t deadline_ms) {
  ASSIGN_OR_RETURN(RpcReply raw,
                   client.CallSync(static_cast<uint16_t>(WorkerMethod::kExplain), Encode(request), deadline_ms));
  ExplainReply reply;
  RETURN_IF_ERROR(Decode(raw.message, reply));
  return reply;
}

}  // namespace kiln
