#include "common/segment/shape_rule.h"

#include "common/base/limits.h"
#include "common/segment/shape_walk.h"

namespace kiln {
namespace {

constexpr size_t kFreshSymbolsMax = 1024;  // more leftovers than that are thrown away

}  // namespace

Status ShapeRule::RunOnContents(const Question& question, std::span<const TensorRef* const> inputs) {
  const auto contents = [inputs](int i) {
    const TensorRef* input = inputs[static_cast<size_t>(i)];
    return input != nullptr && input->data != nullptr ? input : nullptr;
  };
  const auto known = [&contents](int i) -> std::optional<KnownValues> {
    const TensorRef* input = contents(i);
    return input == nullptr ? std::nullopt : ReadKnownValues(*input, limits::kShapeContentsMax);
  };
  const auto known_floats = [&contents](int i) -> std::optional<std::vector<double>> {
    const TensorRef* input = contents(i);
    return input == nullptr ? std::nullopt : ReadKnownFloats(*input, limits::kShapeContentsMax);
  };
  return Run(question, inputs, known, known_floats, false);
}

Status ShapeRule::Run(const Question& question, std::span<const TensorRef* const> inputs, KnownFunction known,
                      KnownFloatsFunction known_floats, bool want_known) {
  if (symbols_.symbol_count() > kFreshSymbolsMax) symbols_ = SymbolTable();
  descs_.resize(std::max(descs_.size(), inputs.size()));
  inputs_.assign(inputs.size(), nullptr);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i]) continue;
    TensorDesc& desc = descs_[i];
    desc.dtype = inputs[i]->dtype;
    if (!desc.dims) desc.dims.emplace();
    desc.dims->clear();
    for (int64_t dim : inputs[i]->dims) desc.dims->push_back(Dim::Const(dim));
    inputs_[i] = &desc;
  }
  InferContext context{.symbols = symbols_,
                       .op = question.op,
                       .attributes = question.attributes,
                       .constants = question.constants,
                       .inputs = inputs_,
                       .known = std::move(known),
                       .known_floats = std::move(known_floats),
                       .want_known = want_known};
  context.outputs.swap(outputs_);
  context.outputs.assign(question.outputs, TensorDesc{});
  RETURN_IF_ERROR(InferShapes(context));
  outputs_.swap(context.outputs);
  known_outputs_.swap(context.known_outputs);
  return {};
}

std::optional<Dims> ShapeRule::OutputDims(size_t i) const {
  if (!outputs_[i].has_rank() || outputs_[i].rank() > limits::kRankMax) return std::nullopt;
  Dims dims;
  for (Dim dim : *outputs_[i].dims) {
    if (!dim.is_const()) return std::nullopt;
    dims.push_back(dim.value());
  }
  return dims;
}

Result<std::optional<int64_t>> EvaluateInFrame(const SymbolTable& symbols, Dim dim, std::span<const int64_t> frame) {
  switch (dim.kind()) {
    case Dim::Kind::kConst:
      return std::optional(dim.value());
    case Dim::Kind::kSymbol: {
      const int64_t value = frame[static_cast<size_t>(dim.symbol())];
      return value < 0 ? std::nullopt : std::optional(value);
    }
    case Dim::Kind::kExpr:
      break;
  }
  for (SymbolId id : symbols.SymbolsOf(dim))
    if (frame[static_cast<size_t>(id)] < 0) return std::optional<int64_t>();
  ASSIGN_OR_RETURN(const int64_t value, symbols.Evaluate(dim, frame));
  return std::optional(value);
}

}  // namespace kiln
