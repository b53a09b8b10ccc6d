#include "bench/compile/segments.h"

#include <algorithm>

#include "common/segment/segment.h"

namespace kiln::bench {
namespace {

class RecordingHook final : public SegmentHook {
 public:
  SegmentVerdict Enter(const SegmentEntry& entry) override {
    const Segment& segment = entry.program->segments()[static_cast<size_t>(entry.segment)];
    EnteredSegment found{entry.segment, std::vector<int64_t>(segment.symbols.size(), -1)};
    const Status bound = BindSymbols(segment, entry.inputs, entry.parameters, found.values);
    if (!bound.has_value() && status_.has_value()) status_ = bound;
    const bool known = std::ranges::any_of(entered_, [&](const EnteredSegment& other) {
      return other.segment == found.segment && other.values == found.values;
    });
    if (!known) entered_.push_back(std::move(found));
    return SegmentVerdict::kInterpret;
  }
  void Leave(const SegmentEntry&, int64_t) override {}

  Result<std::vector<EnteredSegment>> Take() {
    RETURN_IF_ERROR(status_);
    return std::move(entered_);
  }

 private:
  std::vector<EnteredSegment> entered_;
  Status status_;
};

}  // namespace

Result<std::vector<EnteredSegment>> SegmentsOf(const LoadedProgram& program, const std::vector<Request>& requests) {
  RecordingHook hook;
  VmContext context;
  RunOptions options;
  options.hook = &hook;
  for (const Request& request : requests) {
    auto outputs = context.Run(program, request.inputs, options);
    if (!outputs.has_value()) return FailIn(request.name, outputs.error());
  }
  return hook.Take();
}

}  // namespace kiln::bench
