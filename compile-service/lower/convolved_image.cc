#include "compile-service/lower/convolved_image.h"

#include <utility>

namespace kiln::lower {
namespace {

constexpr int64_t kFewChannels = 8;

}  // namespace

Result<ConvolvedImage> WithBorder(PlanBuilder& b, DType dtype, Place zero, ConvolvedImage image,
                                  const std::vector<Dim>& out) {
  const WindowShape shape = image.shape;
  if (!shape.padded) return image;
  SymbolTable& symbols = b.symbols();
  std::vector<Dim> dims = image.dims;
  const auto border = [&](size_t dim, int64_t pad, int64_t kernel, int64_t stride, int64_t dilation) {
    const Dim last = symbols.Mul(symbols.Sub(out[dim], Dim::Const(1)), Dim::Const(stride));
    const Dim read = symbols.Add(last, Dim::Const((kernel - 1) * dilation + 1));
    dims[dim] = symbols.Max(symbols.Add(dims[dim], Dim::Const(pad)), read);
  };
  if (shape.spatial == 2) border(2, shape.pad_top, shape.kernel_h, shape.stride_h, shape.dilation_h);
  border(dims.size() - 1, shape.pad_left, shape.kernel_w, shape.stride_w, shape.dilation_w);
  const Place whole = b.AllocateBuffer(dtype, dims, ChannelsLast(static_cast<int>(dims.size())));
  zero.strides.assign(dims.size(), Dim::Const(0));
  RETURN_IF_ERROR(b.AddCopy(zero, whole, dtype, dims, {"pad", {}}));
  Place inside = whole;
  if (shape.spatial == 2) inside.offset = symbols.Mul(whole.strides[2], Dim::Const(shape.pad_top));
  inside.offset = symbols.Add(inside.offset, symbols.Mul(whole.strides.back(), Dim::Const(shape.pad_left)));
  RETURN_IF_ERROR(b.AddCopy(image.place, inside, dtype, image.dims, {"pad", {}}));
  image.place = whole;
  image.dims = std::move(dims);
  image.shape.pad_top = image.shape.pad_left = 0;
  image.shape.padded = false;
  return image;
}

bool GainsFromBorder(const ConvolvedImage& image, Dim width) {
  const WindowShape& shape = image.shape;
  return shape.padded && shape.spatial < 3 && shape.group == 1 && shape.kernel_w > 1 && shape.dilation_w == 1 &&
         image.channels <= kFewChannels && width.is_const() && width.value() <= kNarrowLine;
}

}  // namespace kiln::lower
