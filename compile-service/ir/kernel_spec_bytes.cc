// Canonical bytes of kernel specs: little-endian, counts in front, one version. Equal specs give equal bytes, and bytes
// that decode give a spec whose bytes they are.
#include <bit>

#include "common/base/limits.h"
#include "compile-service/ir/kernel_spec.h"

namespace kiln::ir {

namespace {

constexpr uint32_t kVersion = 0x3153504b;      // "KPS1"
constexpr uint64_t kWindowWithColumns = 5;     // kind of a window that says how many columns it works on at a time
constexpr uint64_t kContractionOfFewRows = 6;  // kind of a contraction with `few_rows`
constexpr uint64_t kWinogradContraction = 7;   // kind of a contraction with `winograd`
constexpr uint64_t kNestOfPairs = 8;           // kind of a loop nest with `pairs_rows`

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
    if (count <= limits::kSpecItemsMax && count <= bytes_.size()) return count;
    failed_ = true;
    return 0;
  }
  bool failed() const { return failed_; }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::span<const uint8_t> bytes_;
  bool failed_ = false;
};

// A struct, const or not.
template <class T, class Type>
concept Is = std::is_same_v<std::remove_const_t<T>, Type>;

// One field list per struct serves both directions: what is written is const.
template <class Stream>
class Fields {
 public:
  explicit Fields(Stream& stream) : stream_(stream) {}

  template <Is<SpecInt> T>
  void Field(T& value) {
    stream_.Put(value.is_argument);
    stream_.Put(value.value);
  }
  template <Is<Access> T>
  void Field(T& value) {
    stream_.Put(value.pointer);
    Enum(value.storage);
    List(value.strides);
  }
  template <Is<ScalarNode> T>
  void Field(T& value) {
    Enum(value.op);
    Enum(value.type);
    stream_.Put(value.a);
    stream_.Put(value.b);
    stream_.Put(value.c);
    stream_.Put(value.index);
    stream_.Put(value.number);
    stream_.Put(value.integer);
  }
  template <Is<Store> T>
  void Field(T& value) {
    stream_.Put(value.access);
    stream_.Put(value.node);
  }
  template <Is<Stage> T>
  void Field(T& value) {
    Enum(value.kind);
    Enum(value.combine);
    stream_.Put(value.node);
    Enum(value.domain);
    List(value.stores);
  }
  template <Is<WindowGeometry> T>
  void Field(T& value) {
    for (auto* extent : {&value.in_height, &value.in_width, &value.out_height, &value.out_width}) Field(*extent);
    for (auto* number : {&value.kernel_h, &value.kernel_w, &value.stride_h, &value.stride_w, &value.dilation_h,
                         &value.dilation_w, &value.pad_top, &value.pad_left})
      stream_.Put(*number);
    for (auto* stride : {&value.image_stride, &value.row_stride, &value.column_stride}) Field(*stride);
  }
  template <Is<LoopNestSpec> T>
  void Field(T& value) {
    List(value.outer);
    List(value.reduce);
    Field(value.inner);
    stream_.Put(value.reduce_inner);
    List(value.accesses);
    List(value.body);
    List(value.stages);
  }
  template <Is<ContractionSpec> T>
  void Field(T& value) {
    List(value.batch);
    for (auto* extent : {&value.m, &value.n, &value.k}) Field(*extent);
    Field(value.a);
    Optional(value.conv);
    stream_.Put(value.zeros);
    Field(value.b);
    Enum(value.b_layout);
    stream_.Put(value.tile.mr);
    stream_.Put(value.tile.nv);
    List(value.accesses);
    List(value.epilogue);
    List(value.stores);
  }
  template <Is<RecurrentStage> T>
  void Field(T& value) {
    for (auto* number : {&value.gates, &value.vectors, &value.input, &value.panels}) stream_.Put(*number);
    List(value.body);
    List(value.stores);
  }
  template <Is<RecurrentSpec> T>
  void Field(T& value) {
    Field(value.time);
    Field(value.rows);
    stream_.Put(value.units);
    stream_.Put(value.tile_rows);
    stream_.Put(value.reversed);
    stream_.Put(value.lengths);
    List(value.accesses);
    for (auto* stages : {&value.before, &value.steps, &value.after}) List(*stages);
  }
  template <Is<AttentionSpec> T>
  void Field(T& value) {
    List(value.batch);
    for (auto* extent : {&value.m, &value.n}) Field(*extent);
    for (auto* number : {&value.key_elements, &value.value_elements, &value.tile.mr, &value.tile.nv})
      stream_.Put(*number);
    for (auto* access : {&value.q, &value.k, &value.v, &value.out}) Field(*access);
    List(value.accesses);
    List(value.scores);
    stream_.Put(value.score);
  }
  template <Is<WindowSpec> T>
  void Field(T& value) {
    Field(value.images);
    Field(value.channels);
    Field(value.geometry);
    Enum(value.combine);
    stream_.Put(value.average);
    stream_.Put(value.count_include_pad);
    Field(value.input);
    Optional(value.weights);
    List(value.accesses);
    List(value.epilogue);
    List(value.stores);
  }

 private:
  template <class E>
  void Enum(E& value) {
    if constexpr (std::is_const_v<E>) {
      stream_.Put(static_cast<uint8_t>(value));
    } else {
      uint8_t number = 0;
      stream_.Put(number);
      value = static_cast<E>(number);
    }
  }

  template <class T>
  void List(T& items) {
    if constexpr (std::is_const_v<T>) {
      stream_.PutCount(items.size());
    } else {
      items.resize(stream_.GetCount());
    }
    for (auto& item : items) Field(item);
  }

  template <class T>
  void Optional(T& value) {
    bool has = value.has_value();
    stream_.Put(has);
    if constexpr (!std::is_const_v<T>) {
      if (has) value.emplace();
    }
    if (has) Field(*value);
  }

  Stream& stream_;
};

}  // namespace

std::vector<uint8_t> EncodeSpec(const KernelSpec& spec) {
  Writer writer;
  writer.PutBits(kVersion, 4);
  writer.Put(spec.pointers);
  writer.Put(spec.dims);
  const auto* window = std::get_if<WindowSpec>(&spec.kernel);
  const auto* contraction = std::get_if<ContractionSpec>(&spec.kernel);
  const bool with_columns = window != nullptr && window->out_columns != 0;
  const auto* nest = std::get_if<LoopNestSpec>(&spec.kernel);
  uint64_t kind = spec.kernel.index();
  if (nest != nullptr && nest->pairs_rows) kind = kNestOfPairs;
  if (with_columns) kind = kWindowWithColumns;
  if (contraction != nullptr && contraction->few_rows) kind = kContractionOfFewRows;
  if (contraction != nullptr && contraction->winograd) kind = kWinogradContraction;  // never of few rows as well
  writer.PutBits(kind, 1);
  if (with_columns) writer.Put(window->out_columns);
  std::visit([&](const auto& kernel) { Fields(writer).Field(kernel); }, spec.kernel);
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
      Fields(reader).Field(spec.kernel.emplace<LoopNestSpec>());
      break;
    case 1:
      Fields(reader).Field(spec.kernel.emplace<ContractionSpec>());
      break;
    case 2:
      Fields(reader).Field(spec.kernel.emplace<WindowSpec>());
      break;
    case 3:
      Fields(reader).Field(spec.kernel.emplace<RecurrentSpec>());
      break;
    case 4:
      Fields(reader).Field(spec.kernel.emplace<AttentionSpec>());
      break;
    case kWindowWithColumns: {
      int32_t columns = 0;
      reader.Put(columns);
      if (columns == 0) return Fail(ErrorCode::kMalformed, "kernel spec writes a window without columns in two ways");
      auto& window = spec.kernel.emplace<WindowSpec>();
      Fields(reader).Field(window);
      window.out_columns = columns;
      break;
    }
    case kContractionOfFewRows: {
      auto& contraction = spec.kernel.emplace<ContractionSpec>();
      Fields(reader).Field(contraction);
      contraction.few_rows = true;
      break;
    }
    case kWinogradContraction: {
      auto& contraction = spec.kernel.emplace<ContractionSpec>();
      Fields(reader).Field(contraction);
      contraction.winograd = true;
      break;
    }
    case kNestOfPairs: {
      auto& nest = spec.kernel.emplace<LoopNestSpec>();
      Fields(reader).Field(nest);
      nest.pairs_rows = true;
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
