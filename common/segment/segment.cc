#include "common/segment/segment.h"

#include <fmt/format.h>

#include "common/base/byte_io.h"
#include "common/segment/canonical.h"

namespace kiln {
namespace {

constexpr std::string_view kDomain = "kiln.segment.v1";

void HashDims(FieldHasher& hash, const SymbolTable& symbols, std::span<const Dim> dims) {
  hash.U64(dims.size());
  for (Dim dim : dims) {
    if (dim.is_const()) {
      hash.U8(0).I64(dim.value());
    } else {
      hash.U8(1).Int64s(symbols.Encode(dim));
    }
  }
}

void HashDesc(FieldHasher& hash, const SymbolTable& symbols, const TensorDesc& desc) {
  hash.U8(static_cast<uint8_t>(desc.dtype)).U8(desc.has_rank());
  if (desc.has_rank()) HashDims(hash, symbols, *desc.dims);
}

struct AttributeHasher {
  FieldHasher& hash;
  const SymbolTable& symbols;
  void operator()(int64_t value) const { hash.I64(value); }
  void operator()(double value) const { hash.F64Bits(value); }
  void operator()(const std::string& value) const { hash.Text(value); }
  void operator()(const std::vector<int64_t>& value) const { hash.Int64s(value); }
  void operator()(const std::vector<double>& value) const {
    hash.U64(value.size());
    for (double item : value) hash.F64Bits(item);
  }
  void operator()(const std::vector<std::string>& value) const {
    hash.U64(value.size());
    for (const std::string& item : value) hash.Text(item);
  }
  void operator()(ConstantId value) const { hash.U32(static_cast<uint32_t>(value)); }
  void operator()(const std::vector<Dim>& value) const { HashDims(hash, symbols, value); }
};

void HashIds(FieldHasher& hash, std::span<const int32_t> ids) {
  hash.U64(ids.size());
  for (int32_t id : ids) hash.U32(static_cast<uint32_t>(id));
}

void HashSymbols(FieldHasher& hash, const SymbolTable& symbols) {
  hash.U64(symbols.symbol_count());
  for (size_t i = 0; i < symbols.symbol_count(); ++i) {
    const Symbol& symbol = symbols.symbol(static_cast<SymbolId>(i));
    hash.I64(symbol.range.min).I64(symbol.range.max).I64(symbol.divisor);
  }
  hash.U64(symbols.constraints().size());
  for (const Constraint& constraint : symbols.constraints()) {
    hash.U8(static_cast<uint8_t>(constraint.kind));
    HashDims(hash, symbols, std::vector<Dim>{constraint.left, constraint.right});
  }
}

void HashConstants(FieldHasher& hash, std::span<const Constant> constants) {
  hash.U64(constants.size());
  for (const Constant& constant : constants) {
    const TensorRef& ref = constant.tensor.ref;
    hash.U8(static_cast<uint8_t>(ref.dtype)).Int64s(ref.dims.span());
    hash.Bytes({ref.as<const uint8_t>(), static_cast<size_t>(ref.bytes())});
  }
}

}  // namespace

std::string_view SegmentEndText(SegmentEnd reason) {
  switch (reason) {
#define KILN_SEGMENT_END(value, name, text) \
  case SegmentEnd::k##name:                 \
    return text;
#include "common/segment/end_reasons.def"
#undef KILN_SEGMENT_END
  }
  return "";
}

int Segment::weight_count() const {
  return static_cast<int>(body.entry().regions[0].inputs.size()) - runtime_inputs;
}

const TensorDesc& Segment::input(int i) const {
  const Function& function = body.entry();
  return function.values[static_cast<size_t>(function.regions[0].inputs[static_cast<size_t>(i)])].desc;
}

Result<Segment> CanonicalSegment(const Program& program, const SegmentSite& site) {
  return CanonicalSegment(program, FindSymbolDefinitions(program), site);
}

Result<Segment> CanonicalSegment(const Program& program, const SymbolDefinitions& definitions,
                                 const SegmentSite& site) {
  if (site.function < 0 || static_cast<size_t>(site.function) >= program.functions.size() || site.region < 0 ||
      static_cast<size_t>(site.region) >= program.functions[static_cast<size_t>(site.function)].regions.size())
    return Fail(ErrorCode::kInvalidArgument, "the segment site lies outside the program");
  SegmentSite copy = site;
  Segment segment = BuildCanonical(program, definitions, &copy);
  segment.id = ComputeSegmentId(segment);
  return segment;
}

SegmentId ComputeSegmentId(const Segment& segment) {
  FieldHasher hash(kDomain);
  hash.U32(static_cast<uint32_t>(segment.runtime_inputs)).U32(static_cast<uint32_t>(segment.parameters));
  HashSymbols(hash, segment.body.symbols);
  hash.U64(segment.symbols.size());
  for (const SymbolSource& source : segment.symbols)
    hash.U8(static_cast<uint8_t>(source.kind))
        .U32(static_cast<uint32_t>(source.index))
        .U32(static_cast<uint32_t>(source.dim));
  HashConstants(hash, segment.body.constants);
  const Function& function = segment.body.entry();
  hash.U64(function.values.size());
  for (const Value& value : function.values) HashDesc(hash, segment.body.symbols, value.desc);
  const Region& region = function.regions[0];
  HashIds(hash, region.inputs);
  HashIds(hash, region.outputs);
  hash.U64(region.nodes.size());
  for (const Node& node : region.nodes) {
    hash.U32(static_cast<uint32_t>(node.op));
    HashIds(hash, node.inputs);
    HashIds(hash, node.outputs);
    hash.U64(node.attributes.all().size());
    for (const Attribute& attribute : node.attributes.all()) {
      hash.Text(attribute.name).U8(static_cast<uint8_t>(attribute.value.index()));
      std::visit(AttributeHasher{hash, segment.body.symbols}, attribute.value);
    }
  }
  return hash.Finish();
}

}  // namespace kiln
