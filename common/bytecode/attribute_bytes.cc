#include "common/bytecode/attribute_bytes.h"

#include "common/base/byte_io.h"
#include "common/base/limits.h"

namespace kiln {
namespace {

// The wire number of a value kind is its index in AttributeValue, which is append-only.
struct ValueWriter {
  ByteWriter& writer;
  const SymbolTable& symbols;

  void operator()(int64_t value) { writer.I64(value); }
  void operator()(double value) { writer.F64(value); }
  void operator()(const std::string& value) { writer.Text(value); }
  void operator()(ConstantId value) { writer.I64(value); }
  void operator()(const std::vector<int64_t>& list) { writer.Int64s(list); }
  void operator()(const std::vector<double>& list) {
    writer.U32(static_cast<uint32_t>(list.size()));
    for (double value : list) writer.F64(value);
  }
  void operator()(const std::vector<std::string>& list) {
    writer.U32(static_cast<uint32_t>(list.size()));
    for (const std::string& value : list) writer.Text(value);
  }
  void operator()(const std::vector<Dim>& list) {
    writer.U32(static_cast<uint32_t>(list.size()));
    for (Dim dim : list) writer.Int64s(symbols.Encode(dim));
  }
};

Result<AttributeValue> ReadValue(ByteReader& reader, SymbolTable& symbols) {
  switch (reader.U8()) {
    case 0:
      return AttributeValue(reader.I64());
    case 1:
      return AttributeValue(reader.F64());
    case 2:
      return AttributeValue(reader.Text(limits::kNameBytesMax));
    case 3:
      return AttributeValue(reader.Int64s(limits::kAttributeItemsMax));
    case 4: {
      std::vector<double> list(reader.Count(8, limits::kAttributeItemsMax));
      for (double& value : list) value = reader.F64();
      return AttributeValue(std::move(list));
    }
    case 5: {
      std::vector<std::string> list(reader.Count(4, limits::kAttributeItemsMax));
      for (std::string& value : list) value = reader.Text(limits::kNameBytesMax);
      return AttributeValue(std::move(list));
    }
    case 6:
      return AttributeValue(static_cast<ConstantId>(reader.I64()));
    case 7: {
      std::vector<Dim> list(reader.Count(4, limits::kAttributeItemsMax));
      for (Dim& dim : list) {
        const std::vector<int64_t> code = reader.Int64s(limits::kAttributeItemsMax);
        if (!reader.ok()) break;
        ASSIGN_OR_RETURN(dim, symbols.Decode(code));
      }
      return AttributeValue(std::move(list));
    }
    default:
      return Fail(ErrorCode::kMalformed, "attribute of an unknown kind");
  }
}

}  // namespace

std::vector<uint8_t> EncodeAttributes(const Attributes& attributes, const SymbolTable& symbols) {
  ByteWriter writer;
  writer.U32(static_cast<uint32_t>(attributes.all().size()));
  for (const Attribute& attribute : attributes.all()) {
    writer.Text(attribute.name);
    writer.U8(static_cast<uint8_t>(attribute.value.index()));
    std::visit(ValueWriter{writer, symbols}, attribute.value);
  }
  return writer.Take();
}

Result<Attributes> DecodeAttributes(std::span<const uint8_t> bytes, SymbolTable& symbols) {
  ByteReader reader(bytes);
  Attributes attributes;
  std::string previous;
  const size_t count = reader.Count(5, limits::kAttributesMax);
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    std::string name = reader.Text(limits::kNameBytesMax);
    if (i > 0 && name <= previous)
      return Fail(ErrorCode::kMalformed, "attributes are not sorted by name at \"" + name + "\"");
    ASSIGN_OR_RETURN(AttributeValue value, ReadValue(reader, symbols));
    attributes.Set(name, std::move(value));
    previous = std::move(name);
  }
  if (!reader.AtEnd()) return Fail(ErrorCode::kMalformed, "attributes end early or have bytes left over");
  return attributes;
}

}  // namespace kiln
