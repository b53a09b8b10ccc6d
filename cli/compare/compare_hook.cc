#include "cli/compare/compare_hook.h"

#include "vm-worker/interp/loaded_program.h"

namespace kiln::cli {

SegmentVerdict CompareHook::Enter(const SegmentEntry& entry) {
  if (seen_.emplace(entry.segment, entry.signature->words).second)
    if (Status status = Compare(entry); !status.has_value())
      failures_.push_back("segment " + std::to_string(entry.segment) + ": " + ToString(status.error()));
  return SegmentVerdict::kInterpret;
}

Status CompareHook::Compare(const SegmentEntry& entry) {
  const Segment& segment = entry.program->segments()[static_cast<size_t>(entry.segment)];
  std::vector<int64_t> values(segment.symbols.size(), -1);
  RETURN_IF_ERROR(BindSymbols(segment, entry.inputs, entry.parameters, values));
  SegmentCase call;
  ASSIGN_OR_RETURN(call.plan, plans_(entry, segment, values));
  for (const TensorRef& input : entry.inputs) call.inputs.push_back(MakeContiguous(input));
  call.parameters.assign(entry.parameters.begin(), entry.parameters.end());
  ASSIGN_OR_RETURN(auto difference, CompareCase(call));
  ++compared_;
  if (difference) findings_.push_back({entry.segment, std::move(call), std::move(*difference)});
  return {};
}

}  // namespace kiln::cli
