// Resize as one node per axis that it changes. Such a node has one input; attribute `axes` names its axis, `scale` is
// the scale of the axis where it does not follow from the sizes, and `roi` the part that is shown.
#include <algorithm>

#include "common/ops/resize_rules.h"
#include "common/ops/resize_scales.h"
#include "compile-service/passes/passes.h"
#include "compile-service/passes/rewriter.h"

namespace kiln::passes {
namespace {

using ir::Graph;
using ir::GraphNode;
using ir::GraphValueId;

struct ResizedAxis {
  size_t axis = 0;
  Dim in, out;
  std::optional<float> scale;
  double roi_begin = 0, roi_end = 1;

  // How much larger the axis becomes; a guess where only a call tells.
  double Growth() const {
    if (scale) return *scale;
    if (in.is_const() && out.is_const() && in.value() > 0)
      return static_cast<double>(out.value()) / static_cast<double>(in.value());
    return 2;
  }
};

class ResizeSeparator {
 public:
  explicit ResizeSeparator(Rewriter& rewriter) : r_(rewriter), graph_(rewriter.graph()) {}

  bool Run(const GraphNode& node) {
    if (node.op != TensorOp::kResize || graph_.value(node.outputs[0]).prepack) return false;
    const Result<ResizeRules> rules = ReadResizeRules(node.attributes);
    if (!rules || !Generates(*rules, graph_.value(node.inputs[0]).dtype)) return false;
    std::optional<std::vector<ResizedAxis>> axes = AxesOf(node, *rules);
    if (!axes) return false;
    // The least rows for every pass; of equal axes first the one whose elements lie side by side.
    std::ranges::sort(*axes, [](const ResizedAxis& a, const ResizedAxis& b) {
      return std::pair(a.Growth(), b.axis) < std::pair(b.Growth(), a.axis);
    });
    Emit(node, *axes);
    return true;
  }

 private:
  // Interpolated integers become integers again after all axes: that is left to the reference kernel.
  static bool Generates(const ResizeRules& rules, DType dtype) {
    if (rules.mode == ResizeMode::kNearest && rules.coordinates != ResizeCoordinates::kCropAndResize) return true;
    return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
  }

  // Contents of an f32 immediate.
  std::optional<std::vector<float>> FloatsOf(GraphValueId id) const {
    const ir::GraphValue& value = graph_.value(id);
    if (value.origin != ir::Origin::kImmediate || value.dtype != DType::kF32) return std::nullopt;
    const std::span<float> numbers = graph_.immediates[static_cast<size_t>(value.index)].values<float>();
    return std::vector<float>(numbers.begin(), numbers.end());
  }

  // An operand of floats, empty where it is absent; nullopt where only a call tells.
  std::optional<std::vector<float>> Floats(const GraphNode& node, size_t input) const {
    if (input >= node.inputs.size() || node.inputs[input] < 0) return std::vector<float>();
    return FloatsOf(node.inputs[input]);
  }

  bool HasSizes(const GraphNode& node) const {
    if (node.inputs.size() < 4 || node.inputs[3] < 0) return false;
    return !graph_.symbols.ProvenEqual(graph_.value(node.inputs[3]).dims[0], Dim::Const(0));
  }

  // One scale for all axes where the aspect is kept; nullopt when it is not known.
  std::optional<float> Aspect(const GraphNode& node, const List<int>& axes) const {
    const std::optional<KnownValues>& known = graph_.value(node.inputs[3]).known;
    List<int64_t> in, wanted;
    for (size_t i = 0; i < axes.size(); ++i) {
      const Dim dim = graph_.value(node.inputs[0]).dims[static_cast<size_t>(axes[i])];
      if (!known || known->size() != axes.size() || !(*known)[i].is_const() || !dim.is_const()) return std::nullopt;
      in.push_back(dim.value());
      wanted.push_back((*known)[i].value());
    }
    return static_cast<float>(KeepAspect(node.attributes, in, wanted).scale);
  }

  // The axes that change; nullopt where no kernels follow the rules.
  std::optional<std::vector<ResizedAxis>> AxesOf(const GraphNode& node, const ResizeRules& rules) const {
    const std::vector<Dim>& in = graph_.value(node.inputs[0]).dims;
    const std::vector<Dim>& out = graph_.value(node.outputs[0]).dims;
    const Result<List<int>> named = ResizeAxes(node.attributes, static_cast<int>(in.size()));
    if (!named) return std::nullopt;
    const bool by_sizes = HasSizes(node), crops = rules.coordinates == ResizeCoordinates::kCropAndResize;
    const bool keeps_aspect = node.attributes.Text("keep_aspect_ratio_policy", "stretch") != "stretch";
    std::optional<float> aspect;
    if (by_sizes && keeps_aspect) {
      aspect = Aspect(node, *named);
      if (!aspect) return std::nullopt;
    }
    const std::optional<std::vector<float>> scales = by_sizes ? std::vector<float>() : Floats(node, 2);
    const std::optional<std::vector<float>> roi = crops ? Floats(node, 1) : std::vector<float>();
    if (!scales || !roi || (!by_sizes && scales->size() != named->size())) return std::nullopt;
    std::vector<ResizedAxis> axes;
    for (size_t i = 0; i < named->size(); ++i) {
      ResizedAxis axis{static_cast<size_t>((*named)[i]), {}, {}, aspect};
      axis.in = in[axis.axis];
      axis.out = out[axis.axis];
      if (!by_sizes) axis.scale = (*scales)[i];
      if (roi->size() == 2 * named->size()) {
        axis.roi_begin = (*roi)[i];
        axis.roi_end = (*roi)[i + named->size()];
      }
      const bool keeps = graph_.symbols.ProvenEqual(axis.in, axis.out) && axis.scale.value_or(1.0f) == 1.0f;
      const bool moves =
          axis.roi_begin != 0 || axis.roi_end != 1 || rules.coordinates == ResizeCoordinates::kTfHalfPixelForNn;
      if (keeps && !moves) continue;
      if (!IsSound(rules, axis)) return std::nullopt;
      axes.push_back(axis);
    }
    return axes;
  }

  // There is something to show in every call, by as many elements as the mode says.
  bool IsSound(const ResizeRules& rules, const ResizedAxis& axis) const {
    if (!axis.scale && !ir::IsAtMost(graph_.symbols, Dim::Const(1), axis.in)) return false;
    const bool grows = axis.scale ? *axis.scale >= 1 : ir::IsAtMost(graph_.symbols, axis.in, axis.out);
    return rules.mode == ResizeMode::kNearest || !rules.antialias || grows;
  }

  void Emit(const GraphNode& node, const std::vector<ResizedAxis>& axes) {
    GraphValueId x = node.inputs[0];
    const GraphValueId out = node.outputs[0];
    const DType dtype = graph_.value(x).dtype;
    const bool half = dtype == DType::kF16 || dtype == DType::kBF16;
    const bool widens = half && node.attributes.Text("mode", "nearest") != "nearest";
    const bool crops = node.attributes.Text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize";
    const bool through_f32 = (widens || (half && crops)) && !axes.empty();
    if (axes.empty()) return r_.Replace(out, x);
    if (through_f32) x = Cast(x, DType::kF32, -1);
    for (size_t i = 0; i < axes.size(); ++i) {
      std::vector<Dim> dims = graph_.value(x).dims;
      dims[axes[i].axis] = axes[i].out;
      const bool last = i + 1 == axes.size() && !through_f32;
      x = r_.Emit(TensorOp::kResize, {x}, std::move(dims), AttributesOf(node, axes[i]), last ? out : -1);
    }
    if (through_f32) Cast(x, dtype, out);
  }

  GraphValueId Cast(GraphValueId x, DType dtype, GraphValueId into) {
    Attributes to;
    to.Set("to", static_cast<int64_t>(dtype));
    const GraphValueId result = r_.Emit(TensorOp::kCast, {x}, graph_.value(x).dims, std::move(to), into);
    graph_.value(result).dtype = dtype;
    return result;
  }

  static Attributes AttributesOf(const GraphNode& node, const ResizedAxis& axis) {
    Attributes attributes;
    for (const Attribute& attribute : node.attributes.all()) {
      const bool whole = attribute.name == "antialias" || attribute.name == "keep_aspect_ratio_policy";
      if (!whole) attributes.Set(attribute.name, attribute.value);
    }
    attributes.Set("axes", std::vector<int64_t>{static_cast<int64_t>(axis.axis)});
    if (axis.scale) attributes.Set("scale", static_cast<double>(*axis.scale));
    if (axis.roi_begin != 0 || axis.roi_end != 1)
      attributes.Set("roi", std::vector<double>{axis.roi_begin, axis.roi_end});
    return attributes;
  }

  Rewriter& r_;
  Graph& graph_;
};

}  // namespace

Result<bool> SeparateResizes(Graph& graph) {
  return RewriteEach<ResizeSeparator>(graph);
}

}  // namespace kiln::passes
