#include <fmt/format.h>

#include "common/base/byte_io.h"
#include "common/base/limits.h"
#include "common/bytecode/program_codec.h"
#include "common/segment/segment.h"

namespace kiln {
namespace {

constexpr uint32_t kMagic = 0x3147534b;  // "KSG1"
constexpr size_t kSourceBytes = 9;       // kind, index, dim

Status VerifySource(const Segment& segment, size_t id) {
  const SymbolSource& source = segment.symbols[id];
  const Function& function = segment.body.entry();
  const TensorDesc* desc = nullptr;
  switch (source.kind) {
    case SymbolSource::Kind::kParameter:
      if (source.index >= 0 && source.index < segment.parameters && source.dim == 0) return {};
      break;
    case SymbolSource::Kind::kInputDim:
      if (source.index >= 0 && source.index < segment.runtime_inputs) desc = &segment.input(source.index);
      break;
    case SymbolSource::Kind::kValueDim:
      if (source.index >= 0 && static_cast<size_t>(source.index) < function.values.size())
        desc = &function.values[static_cast<size_t>(source.index)].desc;
      break;
  }
  if (desc && source.dim >= 0 && source.dim < desc->rank() &&
      (*desc->dims)[static_cast<size_t>(source.dim)] == segment.body.symbols.SymbolDim(static_cast<SymbolId>(id)))
    return {};
  return Fail(ErrorCode::kMalformed, fmt::format("symbol {} of the segment comes from nowhere", id));
}

Status VerifySegment(const Segment& segment) {
  RETURN_IF_ERROR(VerifyProgram(segment.body));
  if (segment.body.functions.size() != 1 || segment.body.entry().regions.size() != 1)
    return Fail(ErrorCode::kMalformed, "a segment's body is one function with one region");
  const Region& region = segment.body.entry().regions[0];
  if (segment.runtime_inputs < 0 || static_cast<size_t>(segment.runtime_inputs) > region.inputs.size())
    return Fail(ErrorCode::kMalformed,
                fmt::format("segment names {} run-time inputs of {}", segment.runtime_inputs, region.inputs.size()));
  if (region.nodes.size() > 4 * limits::kSegmentNodesMax)
    return Fail(ErrorCode::kLimitExceeded, fmt::format("segment has {} nodes; the limit is {}", region.nodes.size(),
                                                       4 * limits::kSegmentNodesMax));
  for (const Value& value : segment.body.entry().values)
    if (!value.desc.has_rank()) return Fail(ErrorCode::kMalformed, "a value of the segment has no rank");
  for (size_t i = static_cast<size_t>(segment.runtime_inputs); i < region.inputs.size(); ++i)
    if (!segment.input(static_cast<int>(i)).is_static())
      return Fail(ErrorCode::kMalformed, "a weight of the segment has no fixed shape");
  if (segment.symbols.size() != segment.body.symbols.symbol_count())
    return Fail(ErrorCode::kMalformed, fmt::format("segment names {} symbol sources for {} symbols",
                                                   segment.symbols.size(), segment.body.symbols.symbol_count()));
  for (size_t i = 0; i < segment.symbols.size(); ++i) RETURN_IF_ERROR(VerifySource(segment, i));
  return {};
}

}  // namespace

Result<std::vector<uint8_t>> EncodeSegment(const Segment& segment) {
  ByteWriter writer;
  writer.U32(kMagic);
  writer.U32(static_cast<uint32_t>(segment.runtime_inputs));
  writer.U32(static_cast<uint32_t>(segment.parameters));
  writer.U32(static_cast<uint32_t>(segment.symbols.size()));
  for (const SymbolSource& source : segment.symbols) {
    writer.U8(static_cast<uint8_t>(source.kind));
    writer.U32(static_cast<uint32_t>(source.index));
    writer.U32(static_cast<uint32_t>(source.dim));
  }
  ASSIGN_OR_RETURN(const std::vector<uint8_t> body, EncodeProgram(segment.body));
  writer.U64(body.size());
  std::vector<uint8_t> bytes = writer.Take();
  // The program starts at a multiple of 64, as its reader expects of a buffer.
  bytes.resize((bytes.size() + 63) / 64 * 64);
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

Result<Segment> DecodeSegment(std::span<const uint8_t> bytes) {
  ByteReader reader(bytes);
  if (reader.U32() != kMagic) return Fail(ErrorCode::kMalformed, "the bytes are no segment");
  Segment segment;
  segment.runtime_inputs = static_cast<int>(reader.U32());
  segment.parameters = static_cast<int>(reader.U32());
  segment.symbols.resize(reader.Count(kSourceBytes, limits::kProgramValuesMax));
  for (SymbolSource& source : segment.symbols) {
    const uint8_t kind = reader.U8();
    if (kind > static_cast<uint8_t>(SymbolSource::Kind::kValueDim))
      return Fail(ErrorCode::kMalformed, fmt::format("symbol source {} does not exist", kind));
    source = {static_cast<SymbolSource::Kind>(kind), static_cast<int32_t>(reader.U32()),
              static_cast<int32_t>(reader.U32())};
  }
  const uint64_t body_bytes = reader.U64();
  const size_t start = (reader.offset() + 63) / 64 * 64;
  if (!reader.ok() || start > bytes.size()) return Fail(ErrorCode::kMalformed, "the segment's header is cut off");
  if (bytes.size() - start != body_bytes)
    return Fail(ErrorCode::kMalformed,
                fmt::format("the segment's program has {} bytes; {} were announced", bytes.size() - start, body_bytes));
  ASSIGN_OR_RETURN(segment.body, DecodeProgram(bytes.subspan(start)));
  RETURN_IF_ERROR(VerifySegment(segment));
  segment.id = ComputeSegmentId(segment);
  return segment;
}

}  // namespace kiln
