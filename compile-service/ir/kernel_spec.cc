// Verification, range and key of kernel specs.
#include "compile-service/ir/kernel_spec.h"

#include <algorithm>
#include <optional>
#include <string>

#include "common/base/limits.h"
#include "compile-service/ir/nest_stages.h"
#include "compile-service/ir/scalar_check.h"

namespace kiln::ir {

namespace {

// Rows of A that stay in the second-level cache beside the panel that they are multiplied by and the results. Of fewer
// rows B would come from far away too often; beyond as many, nothing is gained.
constexpr int64_t kRowBlockBytes = 384 << 10;
constexpr int64_t kRowBlockRowsMin = 64, kRowBlockRowsMax = 4096;

class Verifier {
 public:
  explicit Verifier(const KernelSpec& spec) : spec_(spec) {}

  Status Verify() {
    if (spec_.pointers < 0 || spec_.pointers > limits::kSpecPointersMax)
      return InvalidSpec("spec has " + std::to_string(spec_.pointers) + " pointers; at most " +
                         std::to_string(limits::kSpecPointersMax) + " are possible");
    if (spec_.dims < 0 || spec_.dims > limits::kSpecArgumentsMax)
      return InvalidSpec("spec has " + std::to_string(spec_.dims) + " dims arguments; at most " +
                         std::to_string(limits::kSpecArgumentsMax) + " are possible");
    return std::visit([this](const auto& kernel) { return Check(kernel); }, spec_.kernel);
  }

 private:
  Status CheckInt(const SpecInt& value, std::string_view what, int64_t low) {
    if (value.is_argument) {
      if (value.value < 0 || value.value >= spec_.dims)
        return InvalidSpec(std::string(what) + " is argument " + std::to_string(value.value) + " of " +
                           std::to_string(spec_.dims));
      return {};
    }
    if (value.value < low || value.value > limits::kSpecIntMax)
      return InvalidSpec(std::string(what) + " is " + std::to_string(value.value) + "; it must be in [" +
                         std::to_string(low) + ", 2^40]");
    return {};
  }
  Status CheckExtents(const std::vector<SpecInt>& extents, std::string_view what) {
    if (extents.size() > limits::kSpecDimsMax) return InvalidSpec("spec has too many " + std::string(what) + " dims");
    for (const SpecInt& extent : extents) RETURN_IF_ERROR(CheckInt(extent, std::string(what) + " extent", 0));
    return {};
  }
  Status CheckPointer(int32_t pointer) {
    if (pointer < 0 || pointer >= spec_.pointers)
      return InvalidSpec("an access names pointer " + std::to_string(pointer) + " of " +
                         std::to_string(spec_.pointers));
    return {};
  }
  Status CheckAccess(const Access& access, size_t dims) {
    RETURN_IF_ERROR(CheckPointer(access.pointer));
    if (!DTypeFromNumber(static_cast<int>(access.storage)))
      return InvalidSpec("an access has an unknown storage dtype");
    if (access.strides.size() != dims)
      return InvalidSpec("an access has " + std::to_string(access.strides.size()) + " strides; its loops have " +
                         std::to_string(dims) + " dims");
    for (const SpecInt& stride : access.strides) RETURN_IF_ERROR(CheckInt(stride, "stride", -limits::kSpecIntMax));
    return {};
  }
  Status CheckAccesses(const std::vector<Access>& accesses, size_t dims) {
    if (accesses.size() > limits::kSpecAccessesMax)
      return InvalidSpec("spec has more than " + std::to_string(limits::kSpecAccessesMax) + " accesses");
    for (const Access& access : accesses) RETURN_IF_ERROR(CheckAccess(access, dims));
    return {};
  }

  Status CheckStores(const std::vector<Store>& stores, const std::vector<Access>& accesses,
                     const ScalarProgram& program) {
    if (stores.empty() || stores.size() > limits::kSpecStoresMax)
      return InvalidSpec("a kernel stores between 1 and " + std::to_string(limits::kSpecStoresMax) + " values");
    for (const Store& store : stores) {
      if (store.access < 0 || static_cast<size_t>(store.access) >= accesses.size())
        return InvalidSpec("a store names access " + std::to_string(store.access));
      if (store.node < 0 || static_cast<size_t>(store.node) >= program.size())
        return InvalidSpec("a store names node " + std::to_string(store.node));
      // In place means in place: one way to address whatever is written.
      const Access& written = accesses[static_cast<size_t>(store.access)];
      for (const Access& other : accesses)
        if (other.pointer == written.pointer && !(other == written))
          return InvalidSpec("pointer " + std::to_string(written.pointer) +
                             " is stored to and accessed in another way as well");
    }
    return {};
  }

  Status Check(const LoopNestSpec& nest) {
    RETURN_IF_ERROR(CheckExtents(nest.outer, "outer"));
    RETURN_IF_ERROR(CheckExtents(nest.reduce, "reduce"));
    RETURN_IF_ERROR(CheckInt(nest.inner, "inner extent", 0));
    const size_t dims = nest.outer.size() + nest.reduce.size() + 1;
    RETURN_IF_ERROR(CheckAccesses(nest.accesses, dims));
    if (nest.stages.empty() || nest.stages.size() > limits::kSpecStagesMax)
      return InvalidSpec("a loop nest has between 1 and " + std::to_string(limits::kSpecStagesMax) + " stages");
    RETURN_IF_ERROR(CheckScalarProgram(nest.body, {dims, spec_.dims, &nest.accesses, std::nullopt, 0, &nest}));
    if (nest.pairs_rows && !nest.reduce_inner) return InvalidSpec("pairs rows whose inner dim is not reduced");
    for (size_t i = 0; i < nest.stages.size(); ++i) {
      if (Status status = CheckStage(nest, i); !status) return FailIn("stage " + std::to_string(i), status.error());
    }
    return {};
  }

  Status CheckStage(const LoopNestSpec& nest, size_t at) {
    const Stage& stage = nest.stages[at];
    if (stage.kind < Stage::Kind::kReduce || stage.kind > Stage::Kind::kScan)
      return InvalidSpec("unknown kind of stage");
    switch (stage.kind) {
      case Stage::Kind::kReduce:
        if (stage.node < 0 || static_cast<size_t>(stage.node) >= nest.body.size())
          return InvalidSpec("reduces node " + std::to_string(stage.node));
        if (nest.body[static_cast<size_t>(stage.node)].type == DType::kBool) return InvalidSpec("cannot reduce a bool");
        if (stage.combine < Combine::kSum || stage.combine > Combine::kProduct)
          return InvalidSpec("unknown way to combine");
        if (!stage.stores.empty()) return InvalidSpec("a reduction stores nothing");
        break;
      case Stage::Kind::kStore:
      case Stage::Kind::kScatter:
      case Stage::Kind::kScan:
        RETURN_IF_ERROR(CheckStores(stage.stores, nest.accesses, nest.body));
        RETURN_IF_ERROR(CheckDomain(nest, stage));
        break;
    }
    return CheckNestStage(nest, at);
  }

  static Status CheckDomain(const LoopNestSpec& nest, const Stage& stage) {
    if (stage.domain < Stage::Domain::kRow || stage.domain > Stage::Domain::kFull)
      return InvalidSpec("unknown store domain");
    if (stage.domain == Stage::Domain::kRow) {
      if (nest.reduce_inner) return {};
      return InvalidSpec("a row store needs an inner dim that is reduced");
    }
    for (const Store& store : stage.stores)
      if (nest.accesses[static_cast<size_t>(store.access)].strides.back() == SpecInt::Const(0) &&
          nest.inner != SpecInt::Const(1))
        return InvalidSpec("all inner positions would be stored to one element; use a row store");
    return {};
  }

  Status CheckGeometry(const WindowGeometry& g) {
    for (const SpecInt* extent : {&g.in_height, &g.in_width, &g.out_height, &g.out_width})
      RETURN_IF_ERROR(CheckInt(*extent, "image extent", 0));
    for (const SpecInt* stride : {&g.image_stride, &g.row_stride, &g.column_stride})
      RETURN_IF_ERROR(CheckInt(*stride, "image stride", -limits::kSpecIntMax));
    for (int32_t value : {g.kernel_h, g.kernel_w, g.stride_h, g.stride_w, g.dilation_h, g.dilation_w})
      if (value < 1 || value > limits::kSpecWindowMax)
        return InvalidSpec("window sizes, strides and dilations must be in [1, " +
                           std::to_string(limits::kSpecWindowMax) + "]");
    for (int32_t value : {g.pad_top, g.pad_left})
      if (value < 0 || value > (1 << 24)) return InvalidSpec("padding must be in [0, 2^24]");
    return {};
  }

  Status CheckBytes(const ContractionSpec& c) {
    const bool bytes = (c.a.storage == DType::kU8 || c.a.storage == DType::kI8) && c.b.storage == DType::kI8;
    if (!bytes) return InvalidSpec("the factors of a contraction must be floats, or u8 or i8 and i8");
    if (c.b_layout != BLayout::kPanels) return InvalidSpec("a contraction of bytes reads B in panels");
    if (c.k.is_argument) return InvalidSpec("a contraction of bytes has a constant k");
    if (!c.conv && c.a.strides.back() != SpecInt::Const(1))
      return InvalidSpec("a contraction of bytes reads A with a k stride of 1");
    return {};
  }

  Status CheckWinograd(const ContractionSpec& c) {
    if (!c.conv || c.b_layout != BLayout::kPanels || c.a.storage != DType::kF32 || c.b.storage != DType::kF32)
      return InvalidSpec("Winograd's form is for convolutions of f32 by panels of f32");
    const WindowGeometry& g = *c.conv;
    if (g.kernel_w != kWinogradKernel || g.kernel_h > kWinogradHeightMax || g.stride_h != 1 || g.stride_w != 1 ||
        g.dilation_h != 1 || g.dilation_w != 1)
      return InvalidSpec("Winograd's form is for kernels of 1 to 7 rows and 3 columns, strides and dilations of 1");
    if (c.zeros == -1 || c.tile.mr < kWinogradRowsMin)
      return InvalidSpec("Winograd's form needs a pointer to zeros, and tiles of at least 4 rows");
    if (c.k.is_argument || c.n.is_argument) return InvalidSpec("Winograd's form is for a known k and n");
    const int64_t rows = c.k.value / g.kernel_w, channels = rows / g.kernel_h;
    if (channels < 1 || channels % kWinogradChannels != 0 ||
        kWinogradPositions * rows * c.tile.nv * kF32LanesMax > kWinogradWeightsMax)
      return InvalidSpec("Winograd's form is for multiples of 16 channels, and weights of at most " +
                         std::to_string(kWinogradWeightsMax) + " numbers a panel");
    return {};
  }

  Status Check(const ContractionSpec& c) {
    RETURN_IF_ERROR(CheckExtents(c.batch, "batch"));
    for (const SpecInt* extent : {&c.m, &c.n, &c.k}) RETURN_IF_ERROR(CheckInt(*extent, "matrix extent", 0));
    if (c.tile.mr < 1 || c.tile.mr > 64 || c.tile.nv < 1 || c.tile.nv > 24 || c.tile.mr * c.tile.nv > 32 * 24)
      return InvalidSpec("tile " + std::to_string(c.tile.mr) + "x" + std::to_string(c.tile.nv) +
                         " is outside 1..64 x 1..24, of at most 768 vectors");
    const size_t batch = c.batch.size();
    RETURN_IF_ERROR(CheckAccess(c.a, c.conv ? batch : batch + 2));
    if (c.b_layout > BLayout::kTransposed) return InvalidSpec("unknown layout of B");
    if (c.b_layout == BLayout::kTransposed && (c.b.storage != DType::kF32 || c.conv))
      return InvalidSpec("a transposed B is f32, and no convolution's");
    RETURN_IF_ERROR(CheckAccess(c.b, c.b_layout == BLayout::kPanels ? batch : batch + 1));
    if (c.conv) RETURN_IF_ERROR(CheckGeometry(*c.conv));
    if (c.conv && !c.k.is_argument && c.k.value % (int64_t{c.conv->kernel_h} * c.conv->kernel_w) != 0)
      return InvalidSpec("k of a convolution is no multiple of the kernel's positions");
    if (c.few_rows && (c.conv || !c.m.is_argument || c.b_layout == BLayout::kTransposed))
      return InvalidSpec("code for few rows is for an m known at run time, no convolution and no transposed B");
    if (!IsFloat(c.a.storage) || !IsFloat(c.b.storage)) RETURN_IF_ERROR(CheckBytes(c));
    if (c.winograd) RETURN_IF_ERROR(CheckWinograd(c));
    if (c.zeros != -1) RETURN_IF_ERROR(CheckPointer(c.zeros));
    if (c.conv && c.zeros == -1 && (c.conv->pad_top != 0 || c.conv->pad_left != 0))
      return InvalidSpec("a convolution with padding needs a pointer to zeros");
    RETURN_IF_ERROR(CheckAccesses(c.accesses, batch + 2));
    RETURN_IF_ERROR(CheckScalarProgram(c.epilogue, {batch + 2, spec_.dims, &c.accesses,
                                                    IsFloat(c.a.storage) ? DType::kF32 : DType::kI32, 1, nullptr}));
    return CheckStores(c.stores, c.accesses, c.epilogue);
  }

  Status Check(const WindowSpec& w) {
    RETURN_IF_ERROR(CheckInt(w.images, "image count", 0));
    RETURN_IF_ERROR(CheckInt(w.channels, "channel count", 0));
    RETURN_IF_ERROR(CheckGeometry(w.geometry));
    if (w.out_columns < 0 || w.out_columns > kWindowColumnsMax)
      return InvalidSpec("a window works on at most " + std::to_string(kWindowColumnsMax) + " columns at a time");
    if (w.combine != Combine::kSum && w.combine != Combine::kMax)
      return InvalidSpec("a window sums or takes the maximum");
    if (w.combine == Combine::kMax && (w.weights || w.average))
      return InvalidSpec("a maximum has neither weights nor an average");
    RETURN_IF_ERROR(CheckAccess(w.input, 0));
    if (w.weights) RETURN_IF_ERROR(CheckAccess(*w.weights, 2));
    RETURN_IF_ERROR(CheckAccesses(w.accesses, 4));
    RETURN_IF_ERROR(CheckScalarProgram(w.epilogue, {4, spec_.dims, &w.accesses, DType::kF32, 1, nullptr}));
    return CheckStores(w.stores, w.accesses, w.epilogue);
  }

  Status Check(const RecurrentSpec& r) {
    RETURN_IF_ERROR(CheckInt(r.time, "time", 0));
    RETURN_IF_ERROR(CheckInt(r.rows, "row count", 0));
    if (r.units < 1 || r.units > limits::kSpecUnitsMax)
      return InvalidSpec("a recurrent kernel has between 1 and " + std::to_string(limits::kSpecUnitsMax) + " units");
    if (r.tile_rows < 1 || r.tile_rows > 32) return InvalidSpec("a recurrent kernel works on 1 to 32 rows at a time");
    if (r.lengths != -1) {
      RETURN_IF_ERROR(CheckPointer(r.lengths));
      if (r.tile_rows != 1) return InvalidSpec("rows of different lengths are worked on one at a time");
    }
    RETURN_IF_ERROR(CheckAccesses(r.accesses, 3));
    for (const auto* stages : {&r.before, &r.steps, &r.after}) {
      if (stages->size() > limits::kSpecStagesMax)
        return InvalidSpec("a time step has at most " + std::to_string(limits::kSpecStagesMax) + " stages");
      for (const RecurrentStage& stage : *stages) RETURN_IF_ERROR(CheckRecurrentStage(r, stage, stages == &r.before));
    }
    return {};
  }

  Status CheckRecurrentStage(const RecurrentSpec& r, const RecurrentStage& stage, bool before) {
    const int64_t blocks = int64_t{stage.gates} * stage.vectors;
    if (stage.gates < 0 || stage.gates > 8 || stage.vectors < 1 || stage.vectors > 24 || blocks > 24)
      return InvalidSpec("a stage has at most 8 gates, and 24 vectors of sums");
    RETURN_IF_ERROR(CheckScalarProgram(stage.body, {3, spec_.dims, &r.accesses, DType::kF32, stage.gates, nullptr}));
    RETURN_IF_ERROR(CheckStores(stage.stores, r.accesses, stage.body));
    if (stage.gates > 0) {
      if (before) return InvalidSpec("what runs before time has no products");
      RETURN_IF_ERROR(CheckPointer(stage.panels));
      if (stage.input < 0 || static_cast<size_t>(stage.input) >= r.accesses.size())
        return InvalidSpec("a product reads access " + std::to_string(stage.input));
    }
    for (const Store& store : stage.stores) {
      const Access& written = r.accesses[static_cast<size_t>(store.access)];
      if (r.units > 1 && written.strides[2] == SpecInt::Const(0))
        return InvalidSpec("all units are stored to one element");
      if (stage.gates == 0) continue;
      const Access& input = r.accesses[static_cast<size_t>(stage.input)];
      if (input.storage != DType::kF32) return InvalidSpec("the factors of a recurrent product must be f32");
      if (written.pointer == input.pointer) return InvalidSpec("a stage stores to what its products read");
    }
    if (!before) return {};
    for (const ScalarNode& node : stage.body)
      if (node.op == ScalarOp::kLoad && r.accesses[static_cast<size_t>(node.index)].strides[0] != SpecInt::Const(0))
        return InvalidSpec("what runs before time may not move over time");
    for (const Store& store : stage.stores)
      if (r.accesses[static_cast<size_t>(store.access)].strides[0] != SpecInt::Const(0))
        return InvalidSpec("what runs before time may not move over time");
    return {};
  }

  Status Check(const AttentionSpec& a) {
    RETURN_IF_ERROR(CheckExtents(a.batch, "batch"));
    for (const SpecInt* extent : {&a.m, &a.n}) RETURN_IF_ERROR(CheckInt(*extent, "attention extent", 0));
    for (int32_t elements : {a.key_elements, a.value_elements})
      if (elements < 1 || elements > kAttentionElementsMax)
        return InvalidSpec("rows of " + std::to_string(elements) + " elements are outside 1..256");
    if (a.tile.mr < 1 || a.tile.mr > 32 || a.tile.nv < 1 || a.tile.nv > 4)
      return InvalidSpec("tile " + std::to_string(a.tile.mr) + "x" + std::to_string(a.tile.nv) +
                         " is outside 1..32 x 1..4");
    const size_t dims = a.batch.size() + 2;
    for (const Access* access : {&a.q, &a.k, &a.v, &a.out}) {
      RETURN_IF_ERROR(CheckAccess(*access, dims));
      if (!IsFloat(access->storage)) return InvalidSpec("the tensors of an attention must be floats");
      if (access != &a.out && access->pointer == a.out.pointer)
        return InvalidSpec("the result of an attention is read");
    }
    RETURN_IF_ERROR(CheckAccesses(a.accesses, dims));
    for (const Access& access : a.accesses)
      if (access.pointer == a.out.pointer) return InvalidSpec("the result of an attention is read");
    RETURN_IF_ERROR(CheckScalarProgram(a.scores, {dims, spec_.dims, &a.accesses, DType::kF32, 1, nullptr}));
    if (a.score < 0 || static_cast<size_t>(a.score) >= a.scores.size() ||
        a.scores[static_cast<size_t>(a.score)].type != DType::kF32)
      return InvalidSpec("the score must be an f32 node of its program");
    return {};
  }

  const KernelSpec& spec_;
};

int64_t ValueOf(const SpecInt& value, std::span<const int64_t> dims) {
  return value.is_argument ? dims[static_cast<size_t>(value.value)] : value.value;
}

int64_t Product(const std::vector<SpecInt>& extents, std::span<const int64_t> dims) {
  int64_t product = 1;
  for (const SpecInt& extent : extents) product *= ValueOf(extent, dims);
  return product;
}

}  // namespace

Status VerifySpec(const KernelSpec& spec) {
  return Verifier(spec).Verify();
}

Digest ComputeKernelKey(const KernelSpec& spec, std::string_view target, const Digest& codegen_id) {
  return FieldHasher("kiln.kernel.v1").Bytes(EncodeSpec(spec)).Text(target).Id(codegen_id).Finish();
}

int64_t ContractionOrder::BlockTilesMax(const ContractionSpec& spec) {
  if (spec.b_layout != BLayout::kPanels || spec.winograd || spec.k.is_argument || !spec.m.is_argument) return 0;
  int64_t row = spec.k.value * DTypeBytes(spec.a.storage);
  if (const auto& conv = spec.conv)  // an image's pixels, each of which many rows read
    row = row / (int64_t{conv->kernel_h} * conv->kernel_w) * conv->stride_h * conv->stride_w;
  const int64_t rows = kRowBlockBytes / std::max<int64_t>(row, 1);
  return rows < kRowBlockRowsMin ? 0 : std::min(rows, kRowBlockRowsMax) / spec.tile.mr;
}

ContractionOrder::ContractionOrder(const ContractionSpec& spec, int64_t m, int64_t n, int64_t width)
    : tiles((m + spec.tile.mr - 1) / spec.tile.mr), panels((n + width - 1) / width), block_tiles(tiles) {
  if (const int64_t most = BlockTilesMax(spec); most > 0) {
    const int64_t blocks = std::max<int64_t>(1, (tiles + most - 1) / most);
    block_tiles = (tiles + blocks - 1) / blocks;
  }
}

ContractionOrder::Item ContractionOrder::At(int64_t item) const {
  const int64_t rest = item % (tiles * panels), block = rest / (block_tiles * panels);
  const int64_t in_block = rest % (block_tiles * panels), first = block * block_tiles;
  const int64_t count = std::min(block_tiles, tiles - first);
  return {item / (tiles * panels), in_block / count, first + in_block % count};
}

int64_t PanelDepth(const ContractionSpec& spec, int64_t k) {
  if (IsFloat(spec.a.storage)) return k;
  const int64_t runs = spec.conv ? int64_t{spec.conv->kernel_h} * spec.conv->kernel_w : 1;
  return runs * ((k / runs + 3) / 4 * 4);
}

int64_t RangeOf(const KernelSpec& spec, std::span<const int64_t> dims, int f32_lanes) {
  if (const auto* nest = std::get_if<LoopNestSpec>(&spec.kernel)) {
    const bool flat = nest->outer.empty() && nest->reduce.empty() && !nest->reduce_inner;
    return flat ? ValueOf(nest->inner, dims) : Product(nest->outer, dims);
  }
  if (const auto* c = std::get_if<ContractionSpec>(&spec.kernel)) {
    const int64_t width = int64_t{c->tile.nv} * f32_lanes;
    const int64_t panels = (ValueOf(c->n, dims) + width - 1) / width;
    return Product(c->batch, dims) * panels * ((ValueOf(c->m, dims) + c->tile.mr - 1) / c->tile.mr);
  }
  if (const auto* recurrent = std::get_if<RecurrentSpec>(&spec.kernel))
    return (ValueOf(recurrent->rows, dims) + recurrent->tile_rows - 1) / recurrent->tile_rows;
  if (const auto* a = std::get_if<AttentionSpec>(&spec.kernel)) {
    const int64_t queries = int64_t{a->tile.nv} * f32_lanes;
    return Product(a->batch, dims) * ((ValueOf(a->m, dims) + queries - 1) / queries);
  }
  const auto& window = std::get<WindowSpec>(spec.kernel);
  return ValueOf(window.images, dims) * ValueOf(window.geometry.out_height, dims);
}

}  // namespace kiln::ir
