// Canonical bytes of kernel specs: little-endian, counts in front, one version. Equal specs give equal bytes, and bytes
// that decode give a spec whose bytes they are.
#include <bit>

#include "compile-service/ir/kernel_spec.h"

namespace kiln::ir {

namespace {

constexpr uint32_t kVersion = 0x3153504b;   // "KPS1"
constexpr uint64_t kWindowWithColumns = 5;  // kind of a window that says how many columns it works on at a time
constexpr size_t kItemsMax = 8192;          // of any list; VerifySpec has the tighter limits

class Writer {
 public:
  void Put(const uint8_t& value) { bytes_.push_back(value); }
  void Put(const bool& value) { bytes_.push_back(value ? 1 : 0); }
  void Put(const int32_t& value) { PutBits(static_cast<uint32_t>(value), 4); }
  void Put(const int64_t& value) { PutBits(static_cast<uint64_t>(value), 8); }
  void Put(const double& value) { PutBits(std::bit_cast<uint64_t>(value), 8); }
  void PutBits(uint64_t value, int count) {
    for (int i = 0; i < count; ++i) bytes_.push_back(static_cast<uint8_t>(value >> (8 * i)));
  }
  void PutCount(size_t count) { PutBits(count, 4); }
  std::vector<uint8_t> Take() { return std::move(bytes_); }

 private:
  std::vector<uint8_t> bytes_;
};

// Reads of a truncated or hostile encoding give zeros and set `failed`.
class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  void Put(uint8_t& value) { value = static_cast<uint8_t>(GetBits(1)); }
  void Put(bool& value) {
    const uint64_t bits = GetBits(1);
    if (bits > 1) failed_ = true;
    value = bits == 1;
  }
  void Put(int32_t& value) { value = static_cast<int32_t>(GetBits(4)); }
  void Put(int64_t& value) { value = static_cast<int64_t>(GetBits(8)); }
  void Put(double& value) { value = std::bit_cast<double>(GetBits(8)); }
  uint64_t GetBits(int count) {
    if (bytes_.size() < static_cast<size_t>(count)) {
      failed_ = true;
      bytes_ = {};
      return 0;
    }
    uint64_t value = 0;
    for (int i = 0; i < count; ++i) value |= static_cast<uint64_t>(bytes_[static_cast<size_t>(i)]) << (8 * i);
    bytes_ = bytes_.subspan(static_cast<size_t>(count));
    return value;
  }
  // Every item takes at least one byte, so a count beyond what is left is refused before anything is allocated.
  size_t GetCount() {
    const uint64_t count = GetBits(4);
    if (count <= kItemsMax && count <= bytes_.size()) return count;
    failed_ = true;
    return 0;
  }
  bool failed() const { return failed_; }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::span<const uint8_t> bytes_;
  bool failed_ = false;
};

// One field list per struct serves both directions: `T` is const when writing.
template <class S, class T>
void Field(S& stream, T& value);

template <class S, class E>
void EnumField(S& stream, E& value) {
  if constexpr (std::is_const_v<E>) {
    stream.Put(static_cast<uint8_t>(value));
  } else {
    uint8_t number = 0;
    stream.Put(number);
    value = static_cast<E>(number);
  }
}

template <class S, class T>
void List(S& stream, T& items) {
  if constexpr (std::is_const_v<T>) {
    stream.PutCount(items.size());
  } else {
    items.resize(stream.GetCount());
  }
  for (auto& item : items) Field(stream, item);
}

template <class S, class T>
void Optional(S& stream, T& value) {
  bool has = value.has_value();
  stream.Put(has);
  if constexpr (!std::is_const_v<T>) {
    if (has) value.emplace();
  }
  if (has) Field(stream, *value);
}

template <class S, class T>
void Field(S& stream, T& value) {
  using Type = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Type, SpecInt>) {
    stream.Put(value.is_argument);
    stream.Put(value.value);
  } else if constexpr (std::is_same_v<Type, Access>) {
    stream.Put(value.pointer);
    EnumField(stream, value.storage);
    List(stream, value.strides);
  } else if constexpr (std::is_same_v<Type, ScalarNode>) {
    EnumField(stream, value.op);
    EnumField(stream, value.type);
    stream.Put(value.a);
    stream.Put(value.b);
    stream.Put(value.c);
    stream.Put(value.index);
    stream.Put(value.number);
    stream.Put(value.integer);
  } else if constexpr (std::is_same_v<Type, Store>) {
    stream.Put(value.access);
    stream.Put(value.node);
  } else if constexpr (std::is_same_v<Type, Stage>) {
    EnumField(stream, value.kind);
    EnumField(stream, value.combine);
    stream.Put(value.node);
    EnumField(stream, value.domain);
    List(stream, value.stores);
  } else if constexpr (std::is_same_v<Type, WindowGeometry>) {
    for (auto* extent : {&value.in_height, &value.in_width, &value.out_height, &value.out_width})
      Field(stream, *extent);
    for (auto* number : {&value.kernel_h, &value.kernel_w, &value.stride_h, &value.stride_w, &value.dilation_h,
                         &value.dilation_w, &value.pad_top, &value.pad_left})
      stream.Put(*number);
    for (auto* stride : {&value.image_stride, &value.row_stride, &value.column_stride}) Field(stream, *stride);
  } else if constexpr (std::is_same_v<Type, LoopNestSpec>) {
    List(stream, value.outer);
    List(stream, value.reduce);
    Field(stream, value.inner);
    stream.Put(value.reduce_inner);
    List(stream, value.accesses);
    List(stream, value.body);
    List(stream, value.stages);
  } else if constexpr (std::is_same_v<Type, ContractionSpec>) {
    List(stream, value.batch);
    for (auto* extent : {&value.m, &value.n, &value.k}) Field(stream, *extent);
    Field(stream, value.a);
    Optional(stream, value.conv);
    stream.Put(value.zeros);
    Field(stream, value.b);
    EnumField(stream, value.b_layout);
    stream.Put(value.tile.mr);
    stream.Put(value.tile.nv);
    List(stream, value.accesses);
    List(stream, value.epilogue);
    List(stream, value.stores);
  } else if constexpr (std::is_same_v<Type, RecurrentStage>) {
    for (auto* number : {&value.gates, &value.vectors, &value.input, &value.panels}) stream.Put(*number);
    List(stream, value.body);
    List(stream, value.stores);
  } else if constexpr (std::is_same_v<Type, RecurrentSpec>) {
    Field(stream, value.time);
    Field(stream, value.rows);
    stream.Put(value.units);
    stream.Put(value.tile_rows);
    stream.Put(value.reversed);
    stream.Put(value.lengths);
    List(stream, value.accesses);
    for (auto* stages : {&value.before, &value.steps, &value.after}) List(stream, *stages);
  } else if constexpr (std::is_same_v<Type, AttentionSpec>) {
    List(stream, value.batch);
    for (auto* extent : {&value.m, &value.n}) Field(stream, *extent);
    for (auto* number : {&value.key_elements, &value.value_elements, &value.tile.mr, &value.tile.nv})
      stream.Put(*number);
    for (auto* access : {&value.q, &value.k, &value.v, &value.out}) Field(stream, *access);
    List(stream, value.accesses);
    List(stream, value.scores);
    stream.Put(value.score);
  } else {
    static_assert(std::is_same_v<Type, WindowSpec>);
    Field(stream, value.images);
    Field(stream, value.channels);
    Field(stream, value.geometry);
    EnumField(stream, value.combine);
    stream.Put(value.average);
    stream.Put(value.count_include_pad);
    Field(stream, value.input);
    Optional(stream, value.weights);
    List(stream, value.accesses);
    List(stream, value.epilogue);
    List(stream, value.stores);
  }
}

}  // namespace

std::vector<uint8_t> EncodeSpec(const KernelSpec& spec) {
  Writer writer;
  writer.PutBits(kVersion, 4);
  writer.Put(spec.pointers);
  writer.Put(spec.dims);
  const auto* window = std::get_if<WindowSpec>(&spec.kernel);
  const bool with_columns = window != nullptr && window->out_columns != 0;
  writer.PutBits(with_columns ? kWindowWithColumns : spec.kernel.index(), 1);
  if (with_columns) writer.Put(window->out_columns);
  std::visit([&](const auto& kernel) { Field(writer, kernel); }, spec.kernel);
  return writer.Take();
}

Result<KernelSpec> DecodeSpec(std::span<const uint8_t> bytes) {
  Reader reader(bytes);
  if (reader.GetBits(4) != kVersion) return Fail(ErrorCode::kMalformed, "bytes are no kernel spec of this version");
  KernelSpec spec;
  reader.Put(spec.pointers);
  reader.Put(spec.dims);
  switch (reader.GetBits(1)) {
    case 0:
      Field(reader, spec.kernel.emplace<LoopNestSpec>());
      break;
    case 1:
      Field(reader, spec.kernel.emplace<ContractionSpec>());
      break;
    case 2:
      Field(reader, spec.kernel.emplace<WindowSpec>());
      break;
    case 3:
      Field(reader, spec.kernel.emplace<RecurrentSpec>());
      break;
    case 4:
      Field(reader, spec.kernel.emplace<AttentionSpec>());
      break;
    case kWindowWithColumns: {
      int32_t columns = 0;
      reader.Put(columns);
      if (columns == 0) return Fail(ErrorCode::kMalformed, "kernel spec writes a window without columns in two ways");
      auto& window = spec.kernel.emplace<WindowSpec>();
      Field(reader, window);
      window.out_columns = columns;
      break;
    }
    default:
      return Fail(ErrorCode::kMalformed, "kernel spec has an unknown kind");
  }
  if (reader.failed()) return Fail(ErrorCode::kMalformed, "kernel spec is truncated or has an impossible count");
  if (!reader.at_end()) return Fail(ErrorCode::kMalformed, "kernel spec has bytes behind its end");
  if (Status status = VerifySpec(spec); !status) return FailIn("decoded kernel spec", status.error());
  return spec;
}

}  // namespace kiln::ir
