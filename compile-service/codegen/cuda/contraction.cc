// Contractions: a block per tile of rows and panel of columns. Sums are made in the order of k whatever the tile, and
// handed to the epilogue through shared memory, so that neighbouring threads store neighbouring columns.
#include <algorithm>
#include <functional>

#include "compile-service/codegen/cuda/contraction_tile.h"
#include "compile-service/codegen/cuda/emitters.h"

namespace kiln::codegen::cuda {

using ir::BLayout;
using ir::ContractionSpec;
using ir::SpecInt;

namespace {

constexpr int64_t kBytes = 4;  // that are multiplied together

class ContractionEmitter {
 public:
  ContractionEmitter(KernelText& text, const ContractionSpec& spec)
      : text_(text), out_(text.out()), spec_(spec), tile_(ThreadTileFor(spec.tile)) {}

  CudaSource Emit();

 private:
  bool bytes() const { return !IsFloat(spec_.a.storage); }
  size_t batch() const { return spec_.batch.size(); }
  int64_t taps() const { return int64_t{spec_.conv->kernel_h} * spec_.conv->kernel_w; }
  // The k of one convolution position, of bytes, and its groups of four.
  int64_t run() const { return spec_.conv ? spec_.k.value / taps() : spec_.k.value; }
  int64_t run_steps() const { return (run() + kBytes - 1) / kBytes; }
  std::string_view SumType() const { return bytes() ? "int" : "float"; }
  std::string_view WordType() const { return bytes() ? "unsigned" : "float"; }
  // Whether neighbouring threads take neighbouring rows of A, and not neighbouring k.
  bool AlongRows() const {
    return !spec_.conv && !bytes() && spec_.a.strides[batch()] == SpecInt::Const(1) &&
           spec_.a.strides[batch() + 1] != SpecInt::Const(1);
  }
  int64_t LeftLoads() const { return CeilDiv(tile_.pass_rows() * tile_.depth, tile_.threads()); }
  int64_t RightLoads() const { return CeilDiv(tile_.width * tile_.depth, tile_.threads()); }
  static int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

  void Sizes();
  void WriteOrder();
  void Place();
  void Pass();
  void RowPlaces();
  void FetchLeft();
  void FetchRight();
  std::string LeftValue(const std::string& row, const std::string& k, const std::string& j);
  void ConvolvedPlace(const std::string& tap, const std::string& j);
  void ByteWord(const std::string& j);
  void Keep(const std::string& slice);
  void GetFour(const std::string& array, int64_t first, const std::string& place);
  void WithSums(const std::function<void()>& body);
  void Multiply();
  void Epilogue();
  void ForLoads(int64_t loads, int64_t elements, const std::function<void()>& body);

  KernelText& text_;
  SourceWriter& out_;
  const ContractionSpec& spec_;
  const ThreadTile tile_;
  std::vector<std::string> batch_names_;
};

// The sizes of the product, as constants of the text.
void ContractionEmitter::Sizes() {
  out_.Line("const long long m_extent = {}, n_extent = {}, k_extent = {};", KernelText::Int(spec_.m),
            KernelText::Int(spec_.n), KernelText::Int(spec_.k));
  if (bytes()) {
    out_.Line("const long long steps = {};", run_steps() * (spec_.conv ? taps() : 1));
  } else {
    out_.Put("const long long steps = k_extent;");
  }
}

// `row_tile` and `panel` of the item, as ir::ContractionOrder has them.
void ContractionEmitter::WriteOrder() {
  const int64_t most = ir::ContractionOrder::BlockTilesMax(spec_);
  if (most == 0) {
    out_.Put("const long long row_tile = item % row_tiles, panel = item / row_tiles % panels;");
    return;
  }
  out_.Line("const long long blocks = (row_tiles + {}) / {}, block_tiles = (row_tiles + blocks - 1) / blocks;",
            most - 1, most);
  out_.Put("const long long in_matrix = item % (row_tiles * panels);");
  out_.Put("const long long first_tile = in_matrix / (block_tiles * panels) * block_tiles;");
  out_.Put("const long long in_block = in_matrix % (block_tiles * panels);");
  out_.Put("const long long tiles = kiln_least(block_tiles, row_tiles - first_tile);");
  out_.Put("const long long row_tile = first_tile + in_block % tiles, panel = in_block / tiles;");
}

// Which tile the block makes, and where its factors begin.
void ContractionEmitter::Place() {
  out_.Line("const long long row_tiles = (m_extent + {}) / {}, panels = (n_extent + {}) / {};", spec_.tile.mr - 1,
            spec_.tile.mr, tile_.width - 1, tile_.width);
  out_.Put("const long long item = begin + blockIdx.x;");
  WriteOrder();
  out_.Line("const long long first_row = row_tile * {};", spec_.tile.mr);
  out_.Line("const long long first_column = panel * {};", tile_.width);
  if (batch() > 0) out_.Put("long long rest = item / row_tiles / panels;");
  batch_names_ = text_.Decode("b", "rest", spec_.batch);
  const auto base = [&](const ir::Access& access) {
    return KernelText::Offset(std::span(access.strides).first(batch()), batch_names_);
  };
  out_.Line("const long long left_base = {}, right_base = {};", base(spec_.a), base(spec_.b));
  out_.Line("const int across = threadIdx.x % {0}, down = threadIdx.x / {0};", tile_.across);
}

// `loads` elements per thread of `elements`, as `at`; `j` counts them.
void ContractionEmitter::ForLoads(int64_t loads, int64_t elements, const std::function<void()>& body) {
  out_.Put("#pragma unroll");
  out_.Block(fmt::format("for (int j = 0; j < {}; ++j)", loads), [&] {
    out_.Line("const int at = threadIdx.x + j * {};", tile_.threads());
    if (loads * tile_.threads() == elements) {
      body();
    } else {
      out_.Block(fmt::format("if (at < {})", elements), body);
    }
  });
}

// Where the rows of an implicit matrix begin that this thread loads: a row's threads are the same in every slice.
void ContractionEmitter::RowPlaces() {
  if (!spec_.conv) return;
  const ir::WindowGeometry& g = *spec_.conv;
  const int64_t loads = LeftLoads();
  out_.Line("long long image_at[{0}];", loads);
  out_.Line("int row_at[{0}], column_at[{0}];", loads);
  ForLoads(loads, tile_.pass_rows() * tile_.depth, [&] {
    out_.Line("const long long m = first_row + pass + at / {};", tile_.depth);
    out_.Line("const long long width = {}, height = {};", KernelText::Int(g.out_width), KernelText::Int(g.out_height));
    out_.Line("image_at[j] = left_base + m / width / height * {};", KernelText::Int(g.image_stride));
    out_.Line("row_at[j] = static_cast<int>(m / width % height) * {} - {};", g.stride_h, g.pad_top);
    out_.Line("column_at[j] = static_cast<int>(m % width) * {} - {};", g.stride_w, g.pad_left);
  });
}

// `inside`, and `offset` of the channel that comes first, at position `tap` of the kernel.
void ContractionEmitter::ConvolvedPlace(const std::string& tap, const std::string& j) {
  const ir::WindowGeometry& g = *spec_.conv;
  out_.Line("const int in_row = row_at[{}] + static_cast<int>({} / {}) * {};", j, tap, g.kernel_w, g.dilation_h);
  out_.Line("const int in_column = column_at[{}] + static_cast<int>({} % {}) * {};", j, tap, g.kernel_w, g.dilation_w);
  out_.Line("const bool inside = in_row >= 0 && in_row < {} && in_column >= 0 && in_column < {};",
            KernelText::Int(g.in_height), KernelText::Int(g.in_width));
  out_.Line("const long long offset = image_at[{}] + in_row * {} + in_column * {};", j, KernelText::Int(g.row_stride),
            KernelText::Int(g.column_stride));
}

// Four bytes of A, `word`, of step `k` of the product: counted from -128 when they have a sign.
void ContractionEmitter::ByteWord(const std::string& j) {
  const bool is_signed = spec_.a.storage == DType::kI8;
  const int64_t steps_of_run = std::max<int64_t>(run_steps(), 1);  // none is taken of an empty run
  out_.Line("const int channel = static_cast<int>(k % {}) * {};", steps_of_run, kBytes);
  out_.Put("const kiln_u8* bytes;");
  if (spec_.conv) {
    out_.Line("const long long tap = k / {};", steps_of_run);
    ConvolvedPlace("tap", j);
    out_.Line("bytes = inside ? left + offset + channel : {};", spec_.zeros >= 0 ? "zeros + channel" : "nullptr");
  } else {
    out_.Line("bytes = left + left_base + m * {} + channel;", KernelText::Int(spec_.a.strides[batch()]));
  }
  out_.Put("unsigned word = 0;");
  if (run() % kBytes == 0) {
    out_.Put("word = kiln_word(bytes);");
  } else {
    out_.Line("for (int b = 0; b < {} && channel + b < {}; ++b) word |= static_cast<unsigned>(bytes[b]) << (8 * b);",
              kBytes, run());
  }
  if (is_signed) out_.Put("word ^= 0x80808080u;");
}

// The element of A in row m at step k, as an expression; what it needs is written before.
std::string ContractionEmitter::LeftValue(const std::string& row, const std::string& k, const std::string& j) {
  if (bytes()) {
    ByteWord(j);
    return "word";
  }
  const auto element = [&](const std::string& offset) {
    return Loaded(fmt::format("left[{}]", offset), spec_.a.storage, DType::kF32);
  };
  if (!spec_.conv)
    return element(fmt::format("left_base + {} * {} + {} * {}", row, KernelText::Int(spec_.a.strides[batch()]), k,
                               KernelText::Int(spec_.a.strides[batch() + 1])));
  out_.Line("const long long channels = k_extent / {}, tap = {} / channels;", taps(), k);
  ConvolvedPlace("tap", j);
  return fmt::format("inside ? {} : 0.0f", element(fmt::format("offset + {} % channels", k)));
}

// This thread's part of the slice of A at `slice`, into left_next.
void ContractionEmitter::FetchLeft() {
  ForLoads(LeftLoads(), tile_.pass_rows() * tile_.depth, [&] {
    if (AlongRows()) {
      out_.Line("const int row = at % {0}, step = at / {0};", tile_.pass_rows());
    } else {
      out_.Line("const int row = at / {0}, step = at % {0};", tile_.depth);
    }
    out_.Put("const long long m = first_row + pass + row, k = slice + step;");
    out_.Line("left_next[j] = 0;");
    out_.Block(fmt::format("if (pass + row < {} && m < m_extent && k < steps)", spec_.tile.mr), [&] {
      const std::string value = LeftValue("m", "k", "j");
      out_.Line("left_next[j] = {};", value);
    });
  });
}

// The same of B, into right_next: columns beyond the last one are 0 where they are not in memory.
void ContractionEmitter::FetchRight() {
  const bool transposed = spec_.b_layout == BLayout::kTransposed, in_panels = spec_.b_layout == BLayout::kPanels;
  ForLoads(RightLoads(), tile_.width * tile_.depth, [&] {
    if (transposed) {
      out_.Line("const int column = at / {0}, step = at % {0};", tile_.depth);
    } else {
      out_.Line("const int column = at % {0}, step = at / {0};", tile_.width);
    }
    out_.Put("const long long n = first_column + column, k = slice + step;");
    out_.Put("right_next[j] = 0;");
    const std::string there = in_panels ? "k < steps" : "k < steps && n < n_extent";
    if (bytes()) {
      out_.Line("if ({}) right_next[j] = kiln_word(right + right_base + ((panel * steps + k) * {} + column) * {});",
                there, tile_.width, kBytes);
      return;
    }
    std::string offset;
    switch (spec_.b_layout) {
      case BLayout::kPanels:
        offset = fmt::format("(panel * k_extent + k) * {} + column", tile_.width);
        break;
      case BLayout::kRows:
        offset = fmt::format("k * {} + n", KernelText::Int(spec_.b.strides[batch()]));
        break;
      case BLayout::kTransposed:
        offset = fmt::format("n * {} + k", KernelText::Int(spec_.b.strides[batch()]));
        break;
    }
    out_.Line("if ({}) right_next[j] = {};", there,
              Loaded(fmt::format("right[right_base + {}]", offset), spec_.b.storage, DType::kF32));
  });
}

// Puts what was fetched into the slice of shared memory that begins at word `slice`.
void ContractionEmitter::Keep(const std::string& slice) {
  ForLoads(LeftLoads(), tile_.pass_rows() * tile_.depth, [&] {
    const auto [row, step] =
        AlongRows() ? std::pair(fmt::format("at % {}", tile_.pass_rows()), fmt::format("at / {}", tile_.pass_rows()))
                    : std::pair(fmt::format("at / {}", tile_.depth), fmt::format("at % {}", tile_.depth));
    out_.Line("KILN_PUT(words, {} + {} * {} + {}, left_next[j]);", slice, step, tile_.row_pitch(), row);
  });
  const bool transposed = spec_.b_layout == BLayout::kTransposed;
  ForLoads(RightLoads(), tile_.width * tile_.depth, [&] {
    const std::string place =
        transposed ? fmt::format("at % {} * {} + at / {}", tile_.depth, tile_.width, tile_.depth) : std::string("at");
    out_.Line("KILN_PUT(words, {} + {} + {}, right_next[j]);", slice, tile_.left_words(), place);
  });
}

// Four neighbouring words as elements of `array` from `first` on.
void ContractionEmitter::GetFour(const std::string& array, int64_t first, const std::string& place) {
  out_.Block("", [&] {
    out_.Line("const float4 four = KILN_GET4(words, {});", place);
    for (int64_t i = 0; i < 4; ++i)
      out_.Line("{}[{}] = four.{};", array, first + i, std::string_view("xyzw").substr(static_cast<size_t>(i), 1));
  });
}

// What only threads with sums do.
void ContractionEmitter::WithSums(const std::function<void()>& body) {
  if (tile_.has_idle_threads()) {
    out_.Block(fmt::format("if (down < {})", tile_.down), body);
  } else {
    body();
  }
}

// sums[i][c] += left[i] * right[c] over the steps of the slice at word `now`.
void ContractionEmitter::Multiply() {
  out_.Put("#pragma unroll");
  out_.Block(fmt::format("for (int step = 0; step < {}; ++step)", tile_.depth), [&] {
    out_.Line("{} left_now[{}], right_now[{}];", WordType(), tile_.rows, tile_.columns);
    const std::string left = fmt::format("now + step * {} + down * {}", tile_.row_pitch(), tile_.rows);
    if (!bytes() && tile_.rows == 4 && tile_.row_pitch() % 4 == 0) {
      GetFour("left_now", 0, left);
    } else {
      for (int64_t i = 0; i < tile_.rows; ++i) out_.Line("left_now[{0}] = KILN_GET(words, {1} + {0});", i, left);
    }
    for (int64_t group = 0; group < tile_.columns / 4; ++group) {
      const std::string place = fmt::format("now + {} + step * {} + across * 4 + {}", tile_.left_words(), tile_.width,
                                            group * 4 * tile_.across);
      if (bytes()) {
        for (int64_t c = 0; c < 4; ++c) out_.Line("right_now[{}] = KILN_GET(words, {} + {});", 4 * group + c, place, c);
        continue;
      }
      GetFour("right_now", 4 * group, place);
    }
    out_.Put("#pragma unroll");
    out_.Block(fmt::format("for (int i = 0; i < {}; ++i)", tile_.rows), [&] {
      out_.Put("#pragma unroll");
      out_.Line("for (int c = 0; c < {}; ++c) sums[i][c] = {}(left_now[i], right_now[c], sums[i][c]);", tile_.columns,
                bytes() ? "kiln_dot4" : "fmaf");
    });
  });
}

// Through shared memory to the epilogue, a column per thread.
void ContractionEmitter::Epilogue() {
  const std::string_view as_word = bytes() ? "static_cast<unsigned>(sums[i][c])" : "sums[i][c]";
  WithSums([&] {
    out_.Put("#pragma unroll");
    out_.Block(fmt::format("for (int i = 0; i < {}; ++i)", tile_.rows), [&] {
      out_.Put("#pragma unroll");
      out_.Line(
          "for (int c = 0; c < {}; ++c) KILN_PUT(words, (down * {} + i) * {} + across * 4 + c / 4 * {} + c % 4, {});",
          tile_.columns, tile_.rows, tile_.width, 4 * tile_.across, as_word);
    });
  });
  out_.Put("__syncthreads();");
  out_.Block(
      fmt::format("for (int at = threadIdx.x; at < {}; at += {})", tile_.pass_rows() * tile_.width, tile_.threads()),
      [&] {
        out_.Line("const int row = at / {0}, column = at % {0};", tile_.width);
        out_.Put("const long long m = first_row + pass + row, n = first_column + column;");
        out_.Line("if (pass + row >= {} || m >= m_extent || n >= n_extent) continue;", spec_.tile.mr);
        out_.Line("const {0} sum = static_cast<{0}>(KILN_GET(words, at));", SumType());
        std::vector<std::string> coordinates = batch_names_;
        coordinates.insert(coordinates.end(), {"m", "n"});
        text_.Epilogue(spec_.epilogue, spec_.stores, spec_.accesses, coordinates, [](int32_t) { return "sum"; });
      });
}

// The rows from `pass` on that the threads hold at once.
void ContractionEmitter::Pass() {
  RowPlaces();
  out_.Line("{} left_next[{}], right_next[{}];", WordType(), LeftLoads(), RightLoads());
  out_.Line("{} sums[{}][{}] = {{}};", SumType(), tile_.rows, tile_.columns);
  out_.Put("int now = 0;");
  out_.Block("if (steps > 0)", [&] {
    out_.Put("const long long slice = 0;");
    FetchLeft();
    FetchRight();
    Keep("now");
  });
  out_.Put("__syncthreads();");
  out_.Block(fmt::format("for (long long done = 0; done < steps; done += {})", tile_.depth), [&] {
    out_.Line("const long long slice = done + {};", tile_.depth);
    out_.Block("if (slice < steps)", [&] {
      FetchLeft();
      FetchRight();
    });
    WithSums([&] { Multiply(); });
    out_.Line("now = {} - now;", tile_.slice_words());
    out_.Block("if (slice < steps)", [&] { Keep("now"); });
    out_.Put("__syncthreads();");
  });
  Epilogue();
}

CudaSource ContractionEmitter::Emit() {
  return text_.Function(static_cast<uint32_t>(tile_.threads()), 1, [&] {
    text_.Pointers(spec_.accesses);
    text_.Pointer("left", spec_.a.pointer, bytes() ? DType::kU8 : spec_.a.storage);
    text_.Pointer("right", spec_.b.pointer, bytes() ? DType::kU8 : spec_.b.storage);
    if (bytes() && spec_.zeros >= 0) text_.Pointer("zeros", spec_.zeros, DType::kU8);
    out_.Line("KILN_SHARED({}, words, {});", WordType(), tile_.shared_words());
    Sizes();
    Place();
    if (spec_.tile.mr <= tile_.pass_rows()) {
      out_.Put("const int pass = 0;");
      Pass();
      return;
    }
    out_.Block(fmt::format("for (int pass = 0; pass < {}; pass += {})", spec_.tile.mr, tile_.pass_rows()), [&] {
      Pass();
      out_.Put("__syncthreads();");  // before the next pass fills what the epilogue reads
    });
  });
}

}  // namespace

CudaSource EmitContraction(KernelText& text, const ContractionSpec& spec) {
  return ContractionEmitter(text, spec).Emit();
}

}  // namespace kiln::codegen::cuda
