// Verification, range and key of kernel specs.
#include "compile-service/ir/kernel_spec.h"

#include <optional>
#include <string>

#include "common/base/limits.h"
#include "compile-service/ir/nest_stages.h"

namespace kiln::ir {

namespace {

int OperandCount(ScalarOp op) {
  switch (op) {
#define KILN_SCALAR_OP(value, name, operands, doc) \
  case ScalarOp::k##name:                          \
    return operands;
#include "compile-service/ir/scalar_ops.def"
#undef KILN_SCALAR_OP
  }
  return -1;
}

bool IsComputeType(DType type) {
  return type == DType::kF32 || type == DType::kF64 || type == DType::kI32 || type == DType::kI64 ||
         type == DType::kBool;
}

std::unexpected<Error> Invalid(std::string message) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message));
}

class Verifier {
 public:
  explicit Verifier(const KernelSpec& spec) : spec_(spec) {}

  Status Verify() {
    if (spec_.pointers < 0 || spec_.pointers > limits::kSpecPointersMax)
      return Invalid("spec has " + std::to_string(spec_.pointers) + " pointers; at most " +
                     std::to_string(limits::kSpecPointersMax) + " are possible");
    if (spec_.dims < 0 || spec_.dims > limits::kSpecArgumentsMax)
      return Invalid("spec has " + std::to_string(spec_.dims) + " dims arguments; at most " +
                     std::to_string(limits::kSpecArgumentsMax) + " are possible");
    return std::visit([this](const auto& kernel) { return Check(kernel); }, spec_.kernel);
  }

 private:
  // What leaves a program may have, and how deep its loops are.
  struct Surroundings {
    size_t dims = 0;
    const std::vector<Access>* accesses = nullptr;
    std::optional<DType> accumulator;
    int32_t accumulators = 1;  // of that type
    const LoopNestSpec* nest = nullptr;
  };

  Status CheckInt(const SpecInt& value, std::string_view what, int64_t low) {
    if (value.is_argument) {
      if (value.value < 0 || value.value >= spec_.dims)
        return Invalid(std::string(what) + " is argument " + std::to_string(value.value) + " of " +
                       std::to_string(spec_.dims));
      return {};
    }
    if (value.value < low || value.value > limits::kSpecIntMax)
      return Invalid(std::string(what) + " is " + std::to_string(value.value) + "; it must be in [" +
                     std::to_string(low) + ", 2^40]");
    return {};
  }
  Status CheckExtents(const std::vector<SpecInt>& extents, std::string_view what) {
    if (extents.size() > limits::kSpecDimsMax) return Invalid("spec has too many " + std::string(what) + " dims");
    for (const SpecInt& extent : extents) RETURN_IF_ERROR(CheckInt(extent, std::string(what) + " extent", 0));
    return {};
  }
  Status CheckPointer(int32_t pointer) {
    if (pointer < 0 || pointer >= spec_.pointers)
      return Invalid("an access names pointer " + std::to_string(pointer) + " of " + std::to_string(spec_.pointers));
    return {};
  }
  Status CheckAccess(const Access& access, size_t dims) {
    RETURN_IF_ERROR(CheckPointer(access.pointer));
    if (!DTypeFromNumber(static_cast<int>(access.storage))) return Invalid("an access has an unknown storage dtype");
    if (access.strides.size() != dims)
      return Invalid("an access has " + std::to_string(access.strides.size()) + " strides; its loops have " +
                     std::to_string(dims) + " dims");
    for (const SpecInt& stride : access.strides) RETURN_IF_ERROR(CheckInt(stride, "stride", -limits::kSpecIntMax));
    return {};
  }
  Status CheckAccesses(const std::vector<Access>& accesses, size_t dims) {
    if (accesses.size() > limits::kSpecAccessesMax)
      return Invalid("spec has more than " + std::to_string(limits::kSpecAccessesMax) + " accesses");
    for (const Access& access : accesses) RETURN_IF_ERROR(CheckAccess(access, dims));
    return {};
  }

  Status CheckProgram(const ScalarProgram& program, const Surroundings& around) {
    if (program.size() > limits::kSpecNodesMax)
      return Invalid("a scalar program has more than " + std::to_string(limits::kSpecNodesMax) + " nodes");
    for (size_t i = 0; i < program.size(); ++i) {
      if (Status status = CheckNode(program, i, around); !status)
        return FailIn("node " + std::to_string(i) + " (" + std::string(ScalarOpName(program[i].op)) + ")",
                      status.error());
    }
    return {};
  }

  Status CheckNode(const ScalarProgram& program, size_t at, const Surroundings& around) {
    const ScalarNode& node = program[at];
    const int operands = OperandCount(node.op);
    if (operands < 0) return Invalid("unknown operation " + std::to_string(static_cast<int>(node.op)));
    if (!IsComputeType(node.type)) return Invalid("type is none of f32, f64, i32, i64, bool");
    const int32_t given[] = {node.a, node.b, node.c};
    for (int k = 0; k < 3; ++k) {
      if (k < operands ? given[k] < 0 || static_cast<size_t>(given[k]) >= at : given[k] != -1)
        return Invalid("operand " + std::to_string(k) + " is " + std::to_string(given[k]) +
                       "; it must be an earlier node, or -1 where there is none");
    }
    auto type_of = [&](int32_t operand) { return program[static_cast<size_t>(operand)].type; };
    auto operands_are = [&](DType type) {
      for (int k = 0; k < operands; ++k)
        if (type_of(given[k]) != type) return false;
      return true;
    };
    auto require = [](bool ok, const char* rule) -> Status {
      if (ok) return {};
      return Invalid(rule);
    };
    switch (node.op) {
      case ScalarOp::kLoad:
        return require(node.index >= 0 && static_cast<size_t>(node.index) < around.accesses->size(), "no such access");
      case ScalarOp::kLoadAt:
        return CheckLoadAt(program, node, around);
      case ScalarOp::kConstant:
        return {};
      case ScalarOp::kStageResult:
        return CheckStageResult(program, node, around);
      case ScalarOp::kAccumulator:
        return require(around.accumulator == node.type && node.index >= 0 && node.index < around.accumulators,
                       "no such sum: only epilogues have them, of type f32, or i32 for sums of bytes");
      case ScalarOp::kCoordinate:
        return require(node.type == DType::kI64 && node.index >= 0 && static_cast<size_t>(node.index) < around.dims,
                       "must be i64 and name a loop dim");
      case ScalarOp::kArgument:
        return require(node.type == DType::kI64 && node.index >= 0 && node.index < spec_.dims,
                       "must be i64 and name a dims argument");
      case ScalarOp::kAdd:
      case ScalarOp::kSub:
      case ScalarOp::kMul:
      case ScalarOp::kDiv:
      case ScalarOp::kMin:
      case ScalarOp::kMax:
      case ScalarOp::kNeg:
      case ScalarOp::kAbs:
        return require(node.type != DType::kBool && operands_are(node.type),
                       "operands and type must be one numeric type");
      case ScalarOp::kFma:
      case ScalarOp::kSqrt:
      case ScalarOp::kFloor:
      case ScalarOp::kCeil:
      case ScalarOp::kRound:
        return require(IsFloat(node.type) && operands_are(node.type), "operands and type must be one float type");
      case ScalarOp::kRoundF16:
      case ScalarOp::kRoundBF16:
        return require(node.type == DType::kF32 && operands_are(node.type), "operand and type must be f32");
      case ScalarOp::kPow:
      case ScalarOp::kExp:
      case ScalarOp::kLog:
      case ScalarOp::kTanh:
      case ScalarOp::kErf:
      case ScalarOp::kSigmoid:
      case ScalarOp::kSin:
      case ScalarOp::kCos:
        if (node.type == DType::kF64)
          return Fail(ErrorCode::kUnsupported,
                      "elementary functions are generated for f32 only; leave f64 to the interpreter");
        return require(node.type == DType::kF32 && operands_are(node.type), "operands and type must be f32");
      case ScalarOp::kLess:
      case ScalarOp::kLessEqual:
      case ScalarOp::kEqual:
        return require(node.type == DType::kBool && type_of(node.a) == type_of(node.b) &&
                           (type_of(node.a) != DType::kBool || node.op == ScalarOp::kEqual),
                       "type must be bool and both operands of one numeric type");
      case ScalarOp::kAnd:
      case ScalarOp::kOr:
      case ScalarOp::kNot:
        return require(node.type == DType::kBool && operands_are(DType::kBool), "operands and type must be bool");
      case ScalarOp::kIsNaN:
        return require(node.type == DType::kBool && IsFloat(type_of(node.a)),
                       "type must be bool and the operand a float");
      case ScalarOp::kSelect:
        return require(type_of(node.a) == DType::kBool && type_of(node.b) == node.type && type_of(node.c) == node.type,
                       "needs a bool and two operands of its type");
      case ScalarOp::kConvert:
        return {};
    }
    return {};
  }

  static Status CheckLoadAt(const ScalarProgram& program, const ScalarNode& node, const Surroundings& around) {
    if (around.nest == nullptr) return Invalid("only loop nests load from positions");
    if (node.index < 0 || static_cast<size_t>(node.index) >= around.accesses->size()) return Invalid("no such access");
    for (int32_t operand : {node.a, node.b, node.c})
      if (program[static_cast<size_t>(operand)].type != DType::kI64)
        return Invalid("position, extent and stride are i64");
    for (int32_t operand : {node.b, node.c}) {
      const ScalarNode& fixed = program[static_cast<size_t>(operand)];
      if (fixed.op == ScalarOp::kConstant && fixed.integer >= 0 && fixed.integer <= limits::kSpecIntMax) continue;
      if (fixed.op != ScalarOp::kArgument) return Invalid("extent and stride are constants of [0, 2^40] or arguments");
    }
    for (const Stage& stage : around.nest->stages) {
      if (stage.kind == Stage::Kind::kScatter && stage.node == &node - program.data()) continue;
      for (const Store& store : stage.stores)
        if (store.access >= 0 && static_cast<size_t>(store.access) < around.accesses->size() &&
            (*around.accesses)[static_cast<size_t>(store.access)].pointer ==
                (*around.accesses)[static_cast<size_t>(node.index)].pointer)
          return Invalid("reads memory that the kernel stores to");
    }
    return {};
  }

  static Status CheckStageResult(const ScalarProgram& program, const ScalarNode& node, const Surroundings& around) {
    if (around.nest == nullptr) return Invalid("only loop nests have stages");
    if (node.index < 0 || static_cast<size_t>(node.index) >= around.nest->stages.size())
      return Invalid("names stage " + std::to_string(node.index));
    const Stage& stage = around.nest->stages[static_cast<size_t>(node.index)];
    if (stage.kind != Stage::Kind::kReduce && stage.kind != Stage::Kind::kScan)
      return Invalid("names a stage that has no result");
    if (stage.node < 0 || static_cast<size_t>(stage.node) >= program.size() ||
        program[static_cast<size_t>(stage.node)].type != node.type)
      return Invalid("has another type than the stage it names");
    return {};
  }

  Status CheckStores(const std::vector<Store>& stores, const std::vector<Access>& accesses,
                     const ScalarProgram& program) {
    if (stores.empty() || stores.size() > limits::kSpecStoresMax)
      return Invalid("a kernel stores between 1 and " + std::to_string(limits::kSpecStoresMax) + " values");
    for (const Store& store : stores) {
      if (store.access < 0 || static_cast<size_t>(store.access) >= accesses.size())
        return Invalid("a store names access " + std::to_string(store.access));
      if (store.node < 0 || static_cast<size_t>(store.node) >= program.size())
        return Invalid("a store names node " + std::to_string(store.node));
      // In place means in place: one way to address whatever is written.
      const Access& written = accesses[static_cast<size_t>(store.access)];
      for (const Access& other : accesses)
        if (other.pointer == written.pointer && !(other == written))
          return Invalid("pointer " + std::to_string(written.pointer) +
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
      return Invalid("a loop nest has between 1 and " + std::to_string(limits::kSpecStagesMax) + " stages");
    RETURN_IF_ERROR(CheckProgram(nest.body, {dims, &nest.accesses, std::nullopt, 0, &nest}));
    if (nest.pairs_rows && !nest.reduce_inner) return Invalid("pairs rows whose inner dim is not reduced");
    for (size_t i = 0; i < nest.stages.size(); ++i) {
      if (Status status = CheckStage(nest, i); !status) return FailIn("stage " + std::to_string(i), status.error());
    }
    return {};
  }

  Status CheckStage(const LoopNestSpec& nest, size_t at) {
    const Stage& stage = nest.stages[at];
    if (stage.kind < Stage::Kind::kReduce || stage.kind > Stage::Kind::kScan) return Invalid("unknown kind of stage");
    switch (stage.kind) {
      case Stage::Kind::kReduce:
        if (stage.node < 0 || static_cast<size_t>(stage.node) >= nest.body.size())
          return Invalid("reduces node " + std::to_string(stage.node));
        if (nest.body[static_cast<size_t>(stage.node)].type == DType::kBool) return Invalid("cannot reduce a bool");
        if (stage.combine < Combine::kSum || stage.combine > Combine::kProduct)
          return Invalid("unknown way to combine");
        if (!stage.stores.empty()) return Invalid("a reduction stores nothing");
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
      return Invalid("unknown store domain");
    if (stage.domain == Stage::Domain::kRow) {
      if (nest.reduce_inner) return {};
      return Invalid("a row store needs an inner dim that is reduced");
    }
    for (const Store& store : stage.stores)
      if (nest.accesses[static_cast<size_t>(store.access)].strides.back() == SpecInt::Const(0) &&
          nest.inner != SpecInt::Const(1))
        return Invalid("all inner positions would be stored to one element; use a row store");
    return {};
  }

  Status CheckGeometry(const WindowGeometry& g) {
    for (const SpecInt* extent : {&g.in_height, &g.in_width, &g.out_height, &g.out_width})
      RETURN_IF_ERROR(CheckInt(*extent, "image extent", 0));
    for (const SpecInt* stride : {&g.image_stride, &g.row_stride, &g.column_stride})
      RETURN_IF_ERROR(CheckInt(*stride, "image stride", -limits::kSpecIntMax));
    for (int32_t value : {g.kernel_h, g.kernel_w, g.stride_h, g.stride_w, g.dilation_h, g.dilation_w})
      if (value < 1 || value > limits::kSpecWindowMax)
        return Invalid("window sizes, strides and dilations must be in [1, " + std::to_string(limits::kSpecWindowMax) +
                       "]");
    for (int32_t value : {g.pad_top, g.pad_left})
      if (value < 0 || value > (1 << 24)) return Invalid("padding must be in [0, 2^24]");
    return {};
  }

  Status CheckBytes(const ContractionSpec& c) {
    const bool bytes = (c.a.storage == DType::kU8 || c.a.storage == DType::kI8) && c.b.storage == DType::kI8;
    if (!bytes) return Invalid("the factors of a contraction must be floats, or u8 or i8 and i8");
    if (c.b_layout != BLayout::kPanels) return Invalid("a contraction of bytes reads B in panels");
    if (c.k.is_argument) return Invalid("a contraction of bytes has a constant k");
    if (!c.conv && c.a.strides.back() != SpecInt::Const(1))
      return Invalid("a contraction of bytes reads A with a k stride of 1");
    return {};
  }

  Status CheckWinograd(const ContractionSpec& c) {
    if (!c.conv || c.b_layout != BLayout::kPanels || c.a.storage != DType::kF32 || c.b.storage != DType::kF32)
      return Invalid("Winograd's form is for convolutions of f32 by panels of f32");
    const WindowGeometry& g = *c.conv;
    if (g.kernel_w != kWinogradKernel || g.kernel_h > kWinogradHeightMax || g.stride_h != 1 || g.stride_w != 1 ||
        g.dilation_h != 1 || g.dilation_w != 1)
      return Invalid("Winograd's form is for kernels of 1 to 7 rows and 3 columns, strides and dilations of 1");
    if (c.zeros == -1 || c.tile.mr < kWinogradRowsMin)
      return Invalid("Winograd's form needs a pointer to zeros, and tiles of at least 4 rows");
    if (c.k.is_argument || c.n.is_argument) return Invalid("Winograd's form is for a known k and n");
    const int64_t rows = c.k.value / g.kernel_w, channels = rows / g.kernel_h;
    if (channels < 1 || channels % kWinogradChannels != 0 ||
        kWinogradPositions * rows * c.tile.nv * kF32LanesMax > kWinogradWeightsMax)
      return Invalid("Winograd's form is for multiples of 16 channels, and weights of at most " +
                     std::to_string(kWinogradWeightsMax) + " numbers a panel");
    return {};
  }

  Status Check(const ContractionSpec& c) {
    RETURN_IF_ERROR(CheckExtents(c.batch, "batch"));
    for (const SpecInt* extent : {&c.m, &c.n, &c.k}) RETURN_IF_ERROR(CheckInt(*extent, "matrix extent", 0));
    if (c.tile.mr < 1 || c.tile.mr > 32 || c.tile.nv < 1 || c.tile.nv > 24)
      return Invalid("tile " + std::to_string(c.tile.mr) + "x" + std::to_string(c.tile.nv) +
                     " is outside 1..32 x 1..24");
    const size_t batch = c.batch.size();
    RETURN_IF_ERROR(CheckAccess(c.a, c.conv ? batch : batch + 2));
    if (c.b_layout > BLayout::kTurned) return Invalid("unknown layout of B");
    if (c.b_layout == BLayout::kTurned && (c.b.storage != DType::kF32 || c.conv))
      return Invalid("a turned B is f32, and no convolution's");
    RETURN_IF_ERROR(CheckAccess(c.b, c.b_layout == BLayout::kPanels ? batch : batch + 1));
    if (c.conv) RETURN_IF_ERROR(CheckGeometry(*c.conv));
    if (c.conv && !c.k.is_argument && c.k.value % (int64_t{c.conv->kernel_h} * c.conv->kernel_w) != 0)
      return Invalid("k of a convolution is no multiple of the kernel's positions");
    if (c.few_rows && (c.conv || !c.m.is_argument || c.b_layout == BLayout::kTurned))
      return Invalid("code for few rows is for an m known at run time, no convolution and no turned B");
    if (!IsFloat(c.a.storage) || !IsFloat(c.b.storage)) RETURN_IF_ERROR(CheckBytes(c));
    if (c.winograd) RETURN_IF_ERROR(CheckWinograd(c));
    if (c.zeros != -1) RETURN_IF_ERROR(CheckPointer(c.zeros));
    if (c.conv && c.zeros == -1 && (c.conv->pad_top != 0 || c.conv->pad_left != 0))
      return Invalid("a convolution with padding needs a pointer to zeros");
    RETURN_IF_ERROR(CheckAccesses(c.accesses, batch + 2));
    RETURN_IF_ERROR(CheckProgram(
        c.epilogue, {batch + 2, &c.accesses, IsFloat(c.a.storage) ? DType::kF32 : DType::kI32, 1, nullptr}));
    return CheckStores(c.stores, c.accesses, c.epilogue);
  }

  Status Check(const WindowSpec& w) {
    RETURN_IF_ERROR(CheckInt(w.images, "image count", 0));
    RETURN_IF_ERROR(CheckInt(w.channels, "channel count", 0));
    RETURN_IF_ERROR(CheckGeometry(w.geometry));
    if (w.out_columns < 0 || w.out_columns > kWindowColumnsMax)
      return Invalid("a window works on at most " + std::to_string(kWindowColumnsMax) + " columns at a time");
    if (w.combine != Combine::kSum && w.combine != Combine::kMax) return Invalid("a window sums or takes the maximum");
    if (w.combine == Combine::kMax && (w.weights || w.average))
      return Invalid("a maximum has neither weights nor an average");
    RETURN_IF_ERROR(CheckAccess(w.input, 0));
    if (w.weights) RETURN_IF_ERROR(CheckAccess(*w.weights, 2));
    RETURN_IF_ERROR(CheckAccesses(w.accesses, 4));
    RETURN_IF_ERROR(CheckProgram(w.epilogue, {4, &w.accesses, DType::kF32, 1, nullptr}));
    return CheckStores(w.stores, w.accesses, w.epilogue);
  }

  Status Check(const RecurrentSpec& r) {
    RETURN_IF_ERROR(CheckInt(r.time, "time", 0));
    RETURN_IF_ERROR(CheckInt(r.rows, "row count", 0));
    if (r.units < 1 || r.units > limits::kSpecUnitsMax)
      return Invalid("a recurrent kernel has between 1 and " + std::to_string(limits::kSpecUnitsMax) + " units");
    if (r.tile_rows < 1 || r.tile_rows > 32) return Invalid("a recurrent kernel works on 1 to 32 rows at a time");
    if (r.lengths != -1) {
      RETURN_IF_ERROR(CheckPointer(r.lengths));
      if (r.tile_rows != 1) return Invalid("rows of different lengths are worked on one at a time");
    }
    RETURN_IF_ERROR(CheckAccesses(r.accesses, 3));
    for (const auto* stages : {&r.before, &r.steps, &r.after}) {
      if (stages->size() > limits::kSpecStagesMax)
        return Invalid("a time step has at most " + std::to_string(limits::kSpecStagesMax) + " stages");
      for (const RecurrentStage& stage : *stages) RETURN_IF_ERROR(CheckRecurrentStage(r, stage, stages == &r.before));
    }
    return {};
  }

  Status CheckRecurrentStage(const RecurrentSpec& r, const RecurrentStage& stage, bool before) {
    const int64_t blocks = int64_t{stage.gates} * stage.vectors;
    if (stage.gates < 0 || stage.gates > 8 || stage.vectors < 1 || stage.vectors > 24 || blocks > 24)
      return Invalid("a stage has at most 8 gates, and 24 vectors of sums");
    RETURN_IF_ERROR(CheckProgram(stage.body, {3, &r.accesses, DType::kF32, stage.gates, nullptr}));
    RETURN_IF_ERROR(CheckStores(stage.stores, r.accesses, stage.body));
    if (stage.gates > 0) {
      if (before) return Invalid("what runs before time has no products");
      RETURN_IF_ERROR(CheckPointer(stage.panels));
      if (stage.input < 0 || static_cast<size_t>(stage.input) >= r.accesses.size())
        return Invalid("a product reads access " + std::to_string(stage.input));
    }
    for (const Store& store : stage.stores) {
      const Access& written = r.accesses[static_cast<size_t>(store.access)];
      if (r.units > 1 && written.strides[2] == SpecInt::Const(0)) return Invalid("all units are stored to one element");
      if (stage.gates == 0) continue;
      const Access& input = r.accesses[static_cast<size_t>(stage.input)];
      if (input.storage != DType::kF32) return Invalid("the factors of a recurrent product must be f32");
      if (written.pointer == input.pointer) return Invalid("a stage stores to what its products read");
    }
    if (!before) return {};
    for (const ScalarNode& node : stage.body)
      if (node.op == ScalarOp::kLoad && r.accesses[static_cast<size_t>(node.index)].strides[0] != SpecInt::Const(0))
        return Invalid("what runs before time may not move over time");
    for (const Store& store : stage.stores)
      if (r.accesses[static_cast<size_t>(store.access)].strides[0] != SpecInt::Const(0))
        return Invalid("what runs before time may not move over time");
    return {};
  }

  Status Check(const AttentionSpec& a) {
    RETURN_IF_ERROR(CheckExtents(a.batch, "batch"));
    for (const SpecInt* extent : {&a.m, &a.n}) RETURN_IF_ERROR(CheckInt(*extent, "attention extent", 0));
    for (int32_t elements : {a.key_elements, a.value_elements})
      if (elements < 1 || elements > kAttentionElementsMax)
        return Invalid("rows of " + std::to_string(elements) + " elements are outside 1..256");
    if (a.tile.mr < 1 || a.tile.mr > 32 || a.tile.nv < 1 || a.tile.nv > 4)
      return Invalid("tile " + std::to_string(a.tile.mr) + "x" + std::to_string(a.tile.nv) +
                     " is outside 1..32 x 1..4");
    const size_t dims = a.batch.size() + 2;
    for (const Access* access : {&a.q, &a.k, &a.v, &a.out}) {
      RETURN_IF_ERROR(CheckAccess(*access, dims));
      if (!IsFloat(access->storage)) return Invalid("the tensors of an attention must be floats");
      if (access != &a.out && access->pointer == a.out.pointer) return Invalid("the result of an attention is read");
    }
    RETURN_IF_ERROR(CheckAccesses(a.accesses, dims));
    for (const Access& access : a.accesses)
      if (access.pointer == a.out.pointer) return Invalid("the result of an attention is read");
    RETURN_IF_ERROR(CheckProgram(a.scores, {dims, &a.accesses, DType::kF32, 1, nullptr}));
    if (a.score < 0 || static_cast<size_t>(a.score) >= a.scores.size() ||
        a.scores[static_cast<size_t>(a.score)].type != DType::kF32)
      return Invalid("the score must be an f32 node of its program");
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
