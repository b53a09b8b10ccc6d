// Windows: a block per output line, a thread per (column, channel) of it, channels fastest.
#include "compile-service/codegen/cuda/emitters.h"

namespace kiln::codegen::cuda {

using ir::WindowSpec;

namespace {

// The value of one output element, before the epilogue, as `value`; in the scope of `column` and `channel`.
void WriteWindow(SourceWriter& out, const WindowSpec& w) {
  const ir::WindowGeometry& g = w.geometry;
  const bool largest = w.combine == ir::Combine::kMax;
  const auto in = [](const ir::SpecInt& value) { return KernelText::Int(value); };
  out.Line("float total = {};", IdentityOf(w.combine, DType::kF32));
  out.Put("int inside = 0;");
  out.Block(fmt::format("for (int y = 0; y < {}; ++y)", g.kernel_h), [&] {
    out.Line("const long long in_row = row * {} - {} + y * {};", g.stride_h, g.pad_top, g.dilation_h);
    out.Line("if (in_row < 0 || in_row >= {}) continue;", in(g.in_height));
    out.Line("const long long line = image * {} + in_row * {} + channel;", in(g.image_stride), in(g.row_stride));
    if (!largest) out.Put("float part = 0.0f;");
    out.Block(fmt::format("for (int x = 0; x < {}; ++x)", g.kernel_w), [&] {
      out.Line("const long long in_column = column * {} - {} + x * {};", g.stride_w, g.pad_left, g.dilation_w);
      out.Line("if (in_column < 0 || in_column >= {}) continue;", in(g.in_width));
      out.Put("++inside;");
      const std::string element = fmt::format("input[line + in_column * {}]", in(g.column_stride));
      const std::string value = Loaded(element, w.input.storage, DType::kF32);
      if (largest) {
        out.Line("total = kiln_max(total, {});", value);
      } else if (w.weights) {
        const std::string weight = fmt::format("weights[(y * {} + x) * {} + channel * {}]", g.kernel_w,
                                               in(w.weights->strides[0]), in(w.weights->strides[1]));
        out.Line("part = fmaf({}, {}, part);", value, Loaded(weight, w.weights->storage, DType::kF32));
      } else {
        out.Line("part += {};", value);
      }
    });
    if (!largest) out.Put("total += part;");
  });
  if (!w.average) {
    out.Put("const float value = total;");
  } else if (w.count_include_pad) {
    out.Line("const float value = total / {};", FloatLiteral(static_cast<double>(int64_t{g.kernel_h} * g.kernel_w)));
  } else {
    out.Put("const float value = total / static_cast<float>(inside > 0 ? inside : 1);");
  }
}

}  // namespace

CudaSource EmitWindow(KernelText& text, const WindowSpec& w) {
  SourceWriter& out = text.out();
  return text.Function(kBlockThreads, 1, [&] {
    text.Pointers(w.accesses);
    text.Pointer("input", w.input.pointer, w.input.storage);
    if (w.weights) text.Pointer("weights", w.weights->pointer, w.weights->storage);
    const std::string height = KernelText::Int(w.geometry.out_height), channels = KernelText::Int(w.channels);
    out.Put("const long long item = begin + blockIdx.x;");
    out.Line("const long long image = item / {}, row = item % {};", height, height);
    out.Line("const long long elements = {} * {};", KernelText::Int(w.geometry.out_width), channels);
    out.Block(fmt::format("for (long long at = threadIdx.x; at < elements; at += {})", kBlockThreads), [&] {
      out.Line("const long long column = at / {0}, channel = at % {0};", channels);
      WriteWindow(out, w);
      text.Epilogue(w.epilogue, w.stores, w.accesses, {"image", "row", "column", "channel"},
                    [](int32_t) { return "value"; });
    });
  });
}

}  // namespace kiln::codegen::cuda
