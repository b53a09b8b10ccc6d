// What a convolution or pooling node asks of the window kernels.
#pragma once

#include <cstdint>
#include <optional>

#include "compile-service/ir/graph.h"
#include "compile-service/ir/kernel_spec.h"

namespace kiln::lower {

// One or two spatial dims; 1-D has height 1. Three: of convolutions, with images of every depth.
struct WindowShape {
  int spatial = 2;
  int32_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int32_t pad_top = 0, pad_left = 0;
  bool padded = false;                              // some window may reach outside the image
  bool average = false, count_include_pad = false;  // AveragePool
  int64_t group = 1;                                // Conv

  bool is_pointwise() const { return kernel_h == 1 && kernel_w == 1 && stride_h == 1 && stride_w == 1 && !padded; }
};

// One spatial dim of a window.
struct WindowAxis {
  int64_t kernel = 1, stride = 1, dilation = 1;
  int64_t pad = 0;      // in front
  bool padded = false;  // some window may reach outside the image
};
// Of a pooling or convolution node with kernels of these sizes; nullopt when a pad depends on symbols or takes elements
// away.
std::optional<std::vector<WindowAxis>> WindowAxesOf(const ir::Graph& graph, const ir::GraphNode& node,
                                                    std::span<const int64_t> kernel);

// nullopt when the kernels do not cover the node (a kernel with a depth, padding that depends on symbols, ceil mode
// with counted padding, …).
std::optional<WindowShape> WindowOf(const ir::Graph& graph, const ir::GraphNode& node);
// The weights among the operands of a convolution op.
ir::GraphValueId WeightsOf(const ir::GraphNode& conv);
// The widest panels, in vectors, for which a convolution of `channels` can be made with fewer products
// (ir::ContractionSpec::winograd); 0: it cannot.
int64_t WinogradVectorsMax(const WindowShape& shape, int64_t channels);
// Whether a convolution of `channels` into `out` channels (of one group), over about `pixels` in lines of about
// `width`, is faster with fewer products, and possible so.
bool GainsFromWinograd(const WindowShape& shape, int64_t channels, int64_t out, int64_t pixels, int64_t width,
                       ir::Tile tile);
// Conv over at most two dims with one input and one output channel per group.
bool IsDepthwise(const ir::Graph& graph, const ir::GraphNode& conv, const WindowShape& shape);

}  // namespace kiln::lower
