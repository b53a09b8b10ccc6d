#include "compile-service/lower/convolution.h"

#include <algorithm>

#include "compile-service/lower/kernel_dtypes.h"

namespace kiln::lower {
namespace {

// Padding in front of one dim; nullopt when it depends on symbols. `padded` is set when any window may reach outside.
std::optional<int64_t> PadBegin(const Attributes& attributes, int d, int spatial, Dim in, Dim out, int64_t extent,
                                int64_t stride, bool* padded) {
  const std::string_view mode = attributes.Text("auto_pad", "NOTSET");
  if (mode == "VALID") return 0;
  const std::span<const int64_t> pads = attributes.Ints("pads");
  if (mode == "NOTSET" || mode.empty()) {
    if (pads.empty()) return 0;
    const int64_t begin = pads[static_cast<size_t>(d)], end = pads[static_cast<size_t>(d + spatial)];
    if (begin < 0 || end < 0) return std::nullopt;
    *padded = *padded || begin > 0 || end > 0;
    return begin;
  }
  // The whole padding of SAME depends on the size modulo the stride; what lies in front may still be the same for all
  // sizes.
  int64_t least = std::max<int64_t>(extent - stride, 0), most = extent - 1;
  if (in.is_const() && out.is_const())
    least = most = std::max<int64_t>((out.value() - 1) * stride + extent - in.value(), 0);
  const auto front = [&](int64_t total) { return mode == "SAME_LOWER" ? total - total / 2 : total / 2; };
  if (front(least) != front(most)) return std::nullopt;
  *padded = *padded || most > 0;
  return front(most);
}

bool IsByteConvolution(TensorOp op) {
  return op == TensorOp::kConvInteger || op == TensorOp::kQLinearConv;
}

}  // namespace

ir::GraphValueId WeightsOf(const ir::GraphNode& conv) {
  return conv.inputs[conv.op == TensorOp::kQLinearConv ? 3 : 1];
}

std::optional<std::vector<WindowAxis>> WindowAxesOf(const ir::Graph& graph, const ir::GraphNode& node,
                                                    std::span<const int64_t> kernel) {
  const std::vector<Dim>& in = graph.value(node.inputs[0]).dims;
  const std::vector<Dim>& out = graph.value(node.outputs[0]).dims;
  const int spatial = static_cast<int>(kernel.size());
  const auto setting = [&](const char* name, size_t d) {
    const std::span<const int64_t> list = node.attributes.Ints(name);
    return list.empty() ? int64_t{1} : list[d];
  };
  constexpr int64_t kLargest = 1 << 20;
  std::vector<WindowAxis> axes;
  for (size_t d = 0; d < kernel.size(); ++d) {
    WindowAxis axis{kernel[d], setting("strides", d), setting("dilations", d)};
    for (int64_t size : {axis.kernel, axis.stride, axis.dilation})
      if (size < 1 || size > kLargest) return std::nullopt;
    const std::optional<int64_t> pad = PadBegin(node.attributes, static_cast<int>(d), spatial, in[d + 2], out[d + 2],
                                                (axis.kernel - 1) * axis.dilation + 1, axis.stride, &axis.padded);
    if (!pad || *pad > kLargest) return std::nullopt;
    axis.pad = *pad;
    axes.push_back(axis);
  }
  return axes;
}

std::optional<WindowShape> WindowOf(const ir::Graph& graph, const ir::GraphNode& node) {
  const bool conv = node.op == TensorOp::kConv || IsByteConvolution(node.op);
  if (!conv && node.op != TensorOp::kMaxPool && node.op != TensorOp::kAveragePool) return std::nullopt;
  const ir::GraphValue& x = graph.value(node.inputs[0]);
  const ir::GraphValue& y = graph.value(node.outputs[0]);
  const bool bytes = (node.op == TensorOp::kMaxPool || IsByteConvolution(node.op)) && IsByte(x.dtype);
  const bool places = node.outputs.size() > 1 && node.outputs[1] >= 0;  // pool_places.h
  const int most = node.op == TensorOp::kConv ? 5 : 4;
  if ((x.dtype != DType::kF32 && !bytes) || places || x.rank() < 3 || x.rank() > most || y.rank() != x.rank())
    return std::nullopt;
  WindowShape shape;
  shape.spatial = x.rank() - 2;
  std::vector<int64_t> kernel(node.attributes.Ints("kernel_shape").begin(), node.attributes.Ints("kernel_shape").end());
  if (conv) {
    const ir::GraphValue& weight = graph.value(WeightsOf(node));
    const bool readable = weight.prepack || (node.op == TensorOp::kConv && weight.origin == ir::Origin::kWeight);
    if (!readable || weight.rank() != x.rank() || node.attributes.Int("depthwise", 0) != 0) return std::nullopt;
    kernel.clear();
    for (int d = 0; d < shape.spatial; ++d) kernel.push_back(weight.dims[static_cast<size_t>(d + 2)].value());
    shape.group = node.attributes.Int("group", 1);
  }
  if (static_cast<int>(kernel.size()) != shape.spatial) return std::nullopt;
  const std::optional<std::vector<WindowAxis>> axes = WindowAxesOf(graph, node, kernel);
  if (!axes) return std::nullopt;
  if (shape.spatial == 3) {  // images of every depth (passes/split_depth.cc)
    const WindowAxis& depth = axes->front();
    if (depth.kernel != 1 || depth.stride != 1 || depth.pad != 0 || depth.padded) return std::nullopt;
  }
  for (const WindowAxis& axis : std::span(*axes).last(static_cast<size_t>(std::min(shape.spatial, 2)))) {
    shape.padded = shape.padded || axis.padded;
    const bool is_width = &axis == &axes->back();
    (is_width ? shape.kernel_w : shape.kernel_h) = static_cast<int32_t>(axis.kernel);
    (is_width ? shape.stride_w : shape.stride_h) = static_cast<int32_t>(axis.stride);
    (is_width ? shape.dilation_w : shape.dilation_h) = static_cast<int32_t>(axis.dilation);
    (is_width ? shape.pad_left : shape.pad_top) = static_cast<int32_t>(axis.pad);
  }
  const bool ceil_mode = node.attributes.Int("ceil_mode", 0) != 0;
  shape.padded = shape.padded || ceil_mode;
  shape.average = node.op == TensorOp::kAveragePool;
  shape.count_include_pad = node.attributes.Int("count_include_pad", 0) != 0;
  const std::string_view mode = node.attributes.Text("auto_pad", "NOTSET");
  const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";  // windows reach no further than what they count
  if (shape.average && ceil_mode && shape.count_include_pad && !same) return std::nullopt;
  if (conv && !x.dims[1].is_const()) return std::nullopt;
  return shape;
}

int64_t WinogradVectorsMax(const WindowShape& shape, int64_t channels) {
  if (shape.kernel_w != ir::kWinogradKernel || shape.kernel_h > ir::kWinogradHeightMax || shape.stride_h != 1 ||
      shape.stride_w != 1 || shape.dilation_h != 1 || shape.dilation_w != 1 || channels % ir::kWinogradChannels != 0)
    return 0;
  return ir::kWinogradWeightsMax / (ir::kWinogradPositions * shape.kernel_h * channels * ir::kF32LanesMax);
}

bool GainsFromWinograd(const WindowShape& shape, int64_t channels, int64_t out, int64_t pixels, int64_t width,
                       ir::Tile tile) {
  if (tile.nv > WinogradVectorsMax(shape, channels) || tile.mr < ir::kWinogradRowsMin) return false;
  const int64_t rows = shape.kernel_h * channels;
  // In multiply-adds per pixel: the changes of form take about 10 for a channel that is read and 15 for one that is
  // stored; and 24 for each weight, once for all pixels.
  const int64_t products = rows * ir::kWinogradKernel * out;
  const int64_t changes = 10 * channels + 15 * out + 24 * rows * out / std::max<int64_t>(1, pixels);
  const int64_t fewer = products * ir::kWinogradPositions / (ir::kWinogradColumns * ir::kWinogradKernel) + changes;
  width = std::max<int64_t>(1, width);
  const int64_t made = (width + ir::kWinogradColumns - 1) / ir::kWinogradColumns * ir::kWinogradColumns;
  constexpr double kGain = 0.8;
  return static_cast<double>(fewer) * static_cast<double>(made) <
         kGain * static_cast<double>(products) * static_cast<double>(width);
}

bool IsDepthwise(const ir::Graph& graph, const ir::GraphNode& conv, const WindowShape& shape) {
  const std::vector<Dim>& weight = graph.value(WeightsOf(conv)).dims;
  return shape.spatial < 3 && shape.group > 1 && weight[0].value() == shape.group && weight[1].value() == 1;
}

}  // namespace kiln::lower
