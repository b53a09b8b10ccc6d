#include "vm-worker/onnx/file_weights.h"

#include <utility>

namespace kiln::onnx {
namespace {

// Field numbers of schemas/onnx.proto.
constexpr uint64_t kModelGraph = 7, kGraphInitializer = 5, kTensorRawData = 9, kTensorRawOffset = 1001,
                   kTensorRawBytes = 1002;
constexpr uint64_t kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5;

// One field of a protobuf message.
struct Field {
  uint64_t number = 0;
  std::span<const uint8_t> whole;    // tag and all
  std::span<const uint8_t> payload;  // of kLengthDelimited
  bool is_delimited = false;
};

class FieldReader {
 public:
  explicit FieldReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool AtEnd() const { return at_ == bytes_.size(); }

  // Nothing when the bytes are no field.
  std::optional<Field> Next() {
    const size_t start = at_;
    const std::optional<uint64_t> tag = Varint();
    if (!tag) return std::nullopt;
    Field field{.number = *tag >> 3};
    std::optional<uint64_t> skip = 0;
    switch (*tag & 7) {
      case kVarint:
        if (!Varint()) return std::nullopt;
        break;
      case kFixed64:
        skip = 8;
        break;
      case kFixed32:
        skip = 4;
        break;
      case kLengthDelimited:
        skip = Varint();
        field.is_delimited = true;
        break;
      default:  // groups, which ONNX has none of
        return std::nullopt;
    }
    if (!skip || *skip > bytes_.size() - at_) return std::nullopt;
    if (field.is_delimited) field.payload = bytes_.subspan(at_, *skip);
    at_ += *skip;
    field.whole = bytes_.subspan(start, at_ - start);
    return field;
  }

 private:
  std::optional<uint64_t> Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) return std::nullopt;
      const uint8_t byte = bytes_[at_++];
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    return std::nullopt;
  }

  const std::span<const uint8_t> bytes_;
  size_t at_ = 0;
};

void AppendVarint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void AppendNumber(std::string& out, uint64_t field, uint64_t value) {
  AppendVarint(out, field << 3 | kVarint);
  AppendVarint(out, value);
}

// Rewrites messages; `removed` counts what stayed in the file.
class RawDataRemover {
 public:
  explicit RawDataRemover(const uint8_t* file) : file_(file) {}
  size_t removed() const { return removed_; }

  bool Model(std::span<const uint8_t> bytes, std::string& out) {
    return Rewrite(bytes, kModelGraph, &RawDataRemover::Graph, out);
  }

 private:
  using Inner = bool (RawDataRemover::*)(std::span<const uint8_t> bytes, std::string& out);

  // Copies all fields but `nested`, whose messages `inner` rewrites.
  bool Rewrite(std::span<const uint8_t> bytes, uint64_t nested, Inner inner, std::string& out) {
    for (FieldReader reader(bytes); !reader.AtEnd();) {
      const std::optional<Field> field = reader.Next();
      if (!field) return false;
      if (field->number != nested || !field->is_delimited) {
        Append(field->whole, out);
        continue;
      }
      std::string message;
      if (!(this->*inner)(field->payload, message)) return false;
      AppendVarint(out, nested << 3 | kLengthDelimited);
      AppendVarint(out, message.size());
      out += message;
    }
    return true;
  }

  bool Graph(std::span<const uint8_t> bytes, std::string& out) {
    return Rewrite(bytes, kGraphInitializer, &RawDataRemover::Tensor, out);
  }

  bool Tensor(std::span<const uint8_t> bytes, std::string& out) {
    bool has_raw = false;
    for (FieldReader reader(bytes); !reader.AtEnd();) {
      const std::optional<Field> field = reader.Next();
      if (!field) return false;
      if (field->number == kTensorRawOffset || field->number == kTensorRawBytes) continue;
      if (field->number == kTensorRawData && std::exchange(has_raw, true))
        return false;  // the parser knows which counts
      if (field->number != kTensorRawData || !field->is_delimited || field->payload.size() < kFileWeightBytesMin) {
        Append(field->whole, out);
        continue;
      }
      AppendNumber(out, kTensorRawOffset, static_cast<uint64_t>(field->payload.data() - file_));
      AppendNumber(out, kTensorRawBytes, field->payload.size());
      removed_ += field->payload.size();
    }
    return true;
  }

  static void Append(std::span<const uint8_t> bytes, std::string& out) {
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  const uint8_t* file_;
  size_t removed_ = 0;
};

}  // namespace

std::optional<std::string> WithoutRawData(std::span<const uint8_t> model) {
  std::string out;
  RawDataRemover remover(model.data());
  if (!remover.Model(model, out) || remover.removed() == 0) return std::nullopt;
  return out;
}

Result<std::shared_ptr<const MappedFile>> WeightFiles::External(std::string_view location) {
  ASSIGN_OR_RETURN(const std::filesystem::path path, ResolveExternalData(directory_, location));
  std::shared_ptr<const MappedFile>& file = external_[path];
  if (file == nullptr) {
    ASSIGN_OR_RETURN(file, MappedFile::Open(path));
  }
  return file;
}

std::vector<std::filesystem::path> WeightFiles::external_paths() const {
  std::vector<std::filesystem::path> paths;
  for (const auto& [path, file] : external_)
    if (file != nullptr) paths.push_back(path);
  return paths;
}

}  // namespace kiln::onnx
