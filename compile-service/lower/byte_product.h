// Quantised products and convolutions as contractions of bytes.
//
// The kernels multiply unsigned by signed bytes. Weights are brought into i8 around 0 when they are packed; the
// activation's zero point z stays in the sums as z times the sum of each column of weights, which the epilogue takes
// off: sum (a - z) b = sum a b - z sum b.
#pragma once

#include <optional>

#include "compile-service/lower/convolved_image.h"
#include "compile-service/lower/group_body.h"

namespace kiln::lower {

// The operands of MatMulInteger, ConvInteger, QLinearMatMul and QLinearConv by meaning; -1 absent.
struct ByteProduct {
  ir::GraphValueId a = -1, a_zero = -1, b = -1, b_zero = -1;
  // QLinear ops only.
  bool requantizes = false;
  ir::GraphValueId a_scale = -1, b_scale = -1, y_scale = -1, y_zero = -1, bias = -1;
};

// nullopt when the op is none of these, or its weights or parameters are not constant, or the weights' zero point is
// not the middle of their range.
std::optional<ByteProduct> ByteProductOf(const ir::Graph& graph, const ir::GraphNode& node);

// What contractions take A as more than its value.
int32_t ByteOffset(const ir::Graph& graph, const ByteProduct& product);
// Weights around 0.
Result<ir::GraphValueId> SignedWeights(PlanBuilder& b, ir::GraphValueId weights);
// Elements of the packed panels per column.
int64_t BytePanelDepth(int64_t runs, int64_t run);
// i8 [groups, runs * run, n] as [groups, panels, runs, ceil(run / 4), width, 4], zero-padded.
Result<Place> PackBytePanels(PlanBuilder& b, ir::GraphValueId matrices, int64_t groups, int64_t runs, int64_t run,
                             int64_t n, int64_t width);
// One zero point per channel, for positions outside the image.
Result<Place> ZeroPoints(PlanBuilder& b, const ByteProduct& product, int64_t channels);
// WithBorder, of zero points.
Result<ConvolvedImage> WithBorderOfZeroPoints(PlanBuilder& b, const ByteProduct& product, ConvolvedImage image,
                                              const std::vector<Dim>& out);
// Few channels leave most of each group of four empty. Where a row of the kernel reads bytes that lie together, the row
// becomes one position with kernel_w times the channels; a padded image first gets its border. Other images come back
// as they are.
Result<ConvolvedImage> WithKernelRowsTogether(PlanBuilder& b, const ByteProduct& product, ConvolvedImage image,
                                              const std::vector<Dim>& out);
// Depthwise sums of bytes are whole numbers that f32 holds exactly up to this many positions of the kernel.
inline constexpr int64_t kByteWindowPositionsMax = (int64_t{1} << 24) / (255 * 128);
// The scalar node of the op's result, from the scalar node of the sums of a * b in i32. `offset`: what the kernel took
// a as more than its value. `column`: the dim of the space that columns of weights run along; `reduced`: the dims of
// the signed weights that are summed over.
Result<int32_t> ByteResult(PlanBuilder& b, GroupBody& body, const ir::GraphNode& node, const ByteProduct& product,
                           int32_t sum, int32_t offset, ir::GraphValueId signed_weights,
                           const std::vector<int64_t>& reduced, size_t column, size_t rank);

}  // namespace kiln::lower
