// Loop nests. Where the inner dim is reduced, a team of threads (a warp, or the block) works on one outer point
// together and combines what its threads have; else every (outer, inner) point has a thread of its own, which goes
// through the reduce dims in order.
#include <algorithm>
#include <functional>
#include <optional>

#include "compile-service/codegen/cuda/emitters.h"
#include "compile-service/ir/nest_stages.h"

namespace kiln::codegen::cuda {

using ir::Access;
using ir::LoopNestSpec;
using ir::ScalarNode;
using ir::ScalarOp;
using ir::SpecInt;
using ir::Stage;

namespace {

constexpr int64_t kWarp = 32;
// Rows up to this length are a warp's, so that no barrier is needed.
constexpr int64_t kWarpRowMax = 1024;
// Elements of element-wise work per thread, so that the index arithmetic is paid for once.
constexpr int64_t kElementsPerThread = 4;
// Sums of so many terms need no chains.
constexpr int64_t kShortSum = 128;

// Where a node's value changes.
enum class Level : uint8_t {
  kItem = 0,   // with the outer dims, and the inner one where each thread has one
  kStage = 1,  // and with results of stages
  kPoint = 2,  // with every position, or with memory that the kernel stores to
};

class NestEmitter {
 public:
  NestEmitter(KernelText& text, const LoopNestSpec& spec)
      : text_(text),
        out_(text.out()),
        spec_(spec),
        code_(out_, spec.body, [this](const ScalarNode& node) { return Leaf(node); }),
        coordinates_(inner_dim() + 1) {
    Analyse();
  }

  CudaSource Emit() { return spec_.reduce_inner ? EmitRows() : EmitPoints(); }

 private:
  size_t outer_count() const { return spec_.outer.size(); }
  size_t inner_dim() const { return spec_.outer.size() + spec_.reduce.size(); }
  bool is_flat() const { return spec_.outer.empty() && spec_.reduce.empty() && !spec_.reduce_inner; }
  DType TypeOf(const Stage& stage) const { return spec_.body[static_cast<size_t>(stage.node)].type; }
  std::string ResultOf(size_t stage) const { return "s" + std::to_string(stage); }
  SpecInt Extent(size_t dim) const { return dim == inner_dim() ? spec_.inner : spec_.reduce[dim - outer_count()]; }

  void Analyse();
  Level LevelOfLeaf(const ScalarNode& node) const;  // of others the lowest
  Level LevelOfDim(size_t dim) const;
  std::string Leaf(const ScalarNode& node) const;
  std::string PlaceOf(const ScalarNode& node) const;
  // The nodes that `roots` need up to a level.
  std::vector<bool> Needed(std::span<const int32_t> roots, Level level) const;
  std::vector<bool> NeededBy(const Stage& stage, Level level) const { return Needed(ir::RootsOf(spec_, stage), level); }
  std::vector<bool> NeededByAll(Level level) const;
  void WritePoint(const Stage& stage) { code_.Write(NeededBy(stage, Level::kPoint)); }

  // --- a thread per (outer, inner) point ---
  CudaSource EmitPoints();
  int64_t ItemsPerBlock() const;
  void Point();
  void ForReduce(size_t dim, const std::function<void()>& body);
  void PointStage(size_t index);
  void Scan(size_t index);
  void Scatter(const Stage& stage);

  // --- a team per outer point ---
  CudaSource EmitRows();
  bool InOrder() const;
  void RowStage(size_t index);
  void ForRow(size_t first_dim, const std::function<void()>& body);
  void Reduce(size_t index);
  void TeamBarrier() { out_.Put(warp_team_ ? "__syncwarp();" : "__syncthreads();"); }

  // Positions of the dims from the first reduce dim to `end`, where they are known.
  std::optional<int64_t> Positions(size_t end) const;
  // A reduction's running value.
  bool IsLongSum(const Stage& stage, std::optional<int64_t> terms) const;
  void BeginSum(const std::string& name, const Stage& stage, bool is_long);
  void AddTo(const std::string& name, const Stage& stage, bool is_long);

  KernelText& text_;
  SourceWriter& out_;
  const LoopNestSpec& spec_;
  ScalarCode code_;
  std::vector<Level> levels_;  // per node
  std::vector<std::string> coordinates_;
  bool warp_team_ = false;
};

// --- what varies with what ---

Level NestEmitter::LevelOfDim(size_t dim) const {
  if (dim < outer_count()) return Level::kItem;
  return dim == inner_dim() && !spec_.reduce_inner ? Level::kItem : Level::kPoint;
}

Level NestEmitter::LevelOfLeaf(const ScalarNode& node) const {
  const auto index = static_cast<size_t>(node.index);
  if (node.op == ScalarOp::kCoordinate) return LevelOfDim(index);
  if (node.op == ScalarOp::kStageResult)
    return spec_.stages[index].kind == Stage::Kind::kScan ? Level::kPoint : Level::kStage;
  if (node.op == ScalarOp::kLoadAt) return Level::kPoint;  // where nothing runs, there may be no element
  if (node.op != ScalarOp::kLoad) return Level::kItem;
  const Access& access = spec_.accesses[index];
  for (const Stage& stage : spec_.stages)
    for (const ir::Store& store : stage.stores)
      if (spec_.accesses[static_cast<size_t>(store.access)].pointer == access.pointer) return Level::kPoint;
  Level level = Level::kItem;
  for (size_t dim = 0; dim < access.strides.size(); ++dim)
    if (access.strides[dim] != SpecInt::Const(0)) level = std::max(level, LevelOfDim(dim));
  return level;
}

void NestEmitter::Analyse() {
  for (const ScalarNode& node : spec_.body) {
    Level level = LevelOfLeaf(node);
    for (int32_t operand : {node.a, node.b, node.c})
      if (operand >= 0) level = std::max(level, levels_[static_cast<size_t>(operand)]);
    levels_.push_back(level);
  }
}

std::vector<bool> NestEmitter::Needed(std::span<const int32_t> roots, Level level) const {
  std::vector<bool> needed = ir::ReachableNodes(spec_.body, roots);
  for (size_t i = 0; i < needed.size(); ++i)
    if (levels_[i] > level) needed[i] = false;
  return needed;
}

std::vector<bool> NestEmitter::NeededByAll(Level level) const {
  std::vector<int32_t> roots;
  for (const Stage& stage : spec_.stages)
    for (int32_t root : ir::RootsOf(spec_, stage)) roots.push_back(root);
  return Needed(roots, level);
}

// Elements behind the access's pointer.
std::string NestEmitter::PlaceOf(const ScalarNode& node) const {
  const Access& access = spec_.accesses[static_cast<size_t>(node.index)];
  return fmt::format("{} + kiln_position({}, {}) * {}", KernelText::Offset(access, coordinates_), code_.Value(node.a),
                     code_.Value(node.b), code_.Value(node.c));
}

std::string NestEmitter::Leaf(const ScalarNode& node) const {
  const auto index = static_cast<size_t>(node.index);
  if (node.op == ScalarOp::kStageResult) return ResultOf(index);
  if (node.op == ScalarOp::kArgument) return fmt::format("args.dims[{}]", node.index);
  if (node.op == ScalarOp::kCoordinate) return coordinates_[index].empty() ? "0ll" : coordinates_[index];
  if (node.op == ScalarOp::kLoad) return KernelText::Load(spec_.accesses, node, coordinates_);
  const Access& access = spec_.accesses[index];
  return Loaded(fmt::format("a{}[{}]", node.index, PlaceOf(node)), access.storage, node.type);
}

// --- running values ---

std::optional<int64_t> NestEmitter::Positions(size_t end) const {
  constexpr int64_t kMany = 1 << 20;
  int64_t positions = 1;
  for (size_t dim = outer_count(); dim < end; ++dim) {
    if (Extent(dim).is_argument) return std::nullopt;
    positions = std::min(positions * std::min(Extent(dim).value, kMany), kMany);
  }
  return positions;
}

// What is combined in f32 by addition, of more terms than a short sum has, or of who knows how many.
bool NestEmitter::IsLongSum(const Stage& stage, std::optional<int64_t> terms) const {
  return stage.combine == ir::Combine::kSum && TypeOf(stage) == DType::kF32 && (!terms || *terms > kShortSum);
}

void NestEmitter::BeginSum(const std::string& name, const Stage& stage, bool is_long) {
  if (is_long) {
    out_.Line("kiln_long_sum {};", name);
  } else {
    out_.Line("{} {} = {};", TypeName(TypeOf(stage)), name, IdentityOf(stage.combine, TypeOf(stage)));
  }
}

void NestEmitter::AddTo(const std::string& name, const Stage& stage, bool is_long) {
  WritePoint(stage);
  if (is_long) {
    out_.Line("{}.add({});", name, code_.Value(stage.node));
  } else {
    out_.Line("{0} = {1}::of({0}, {2});", name, CombineName(stage.combine), code_.Value(stage.node));
  }
}

// --- a thread per point ---

void NestEmitter::ForReduce(size_t dim, const std::function<void()>& body) {
  if (dim == inner_dim()) {
    out_.Block("", [&] { code_.Scope(body); });
    return;
  }
  if (Extent(dim) == SpecInt::Const(1)) {
    ForReduce(dim + 1, body);
    return;
  }
  const std::string name = "c" + std::to_string(dim);
  coordinates_[dim] = name;
  out_.Block(fmt::format("for (long long {0} = 0; {0} < {1}; ++{0})", name, KernelText::Int(Extent(dim))),
             [&] { ForReduce(dim + 1, body); });
  coordinates_[dim].clear();
}

// The running value is carried from one reduce position to the next.
void NestEmitter::Scan(size_t index) {
  const Stage& stage = spec_.stages[index];
  const DType type = TypeOf(stage);
  out_.Line("{} {} = {};", TypeName(type), ResultOf(index), IdentityOf(stage.combine, type));
  ForReduce(outer_count(), [&] {
    WritePoint(stage);
    text_.Stores(spec_.body, stage.stores, spec_.accesses, coordinates_);
    out_.Line("{} = {};", ResultOf(index), code_.Value(stage.node));
  });
}

void NestEmitter::Scatter(const Stage& stage) {
  const ir::Store& store = stage.stores.front();
  const ScalarNode& place = spec_.body[static_cast<size_t>(stage.node)];
  const std::vector<int32_t> operands = {place.a, place.b, place.c, store.node};
  ForReduce(outer_count(), [&] {
    code_.Write(Needed(operands, Level::kPoint));
    const DType type = spec_.body[static_cast<size_t>(store.node)].type;
    out_.Line("a{}[{}] = {};", store.access, PlaceOf(place),
              Stored(code_.Value(store.node), type, spec_.accesses[static_cast<size_t>(store.access)].storage));
  });
}

void NestEmitter::PointStage(size_t index) {
  const Stage& stage = spec_.stages[index];
  const auto store = [&] {
    WritePoint(stage);
    text_.Stores(spec_.body, stage.stores, spec_.accesses, coordinates_);
  };
  switch (stage.kind) {
    case Stage::Kind::kReduce: {
      const bool is_long = IsLongSum(stage, Positions(inner_dim()));
      const std::string name = is_long ? "sum" + std::to_string(index) : ResultOf(index);
      BeginSum(name, stage, is_long);
      ForReduce(outer_count(), [&] { AddTo(name, stage, is_long); });
      if (is_long) out_.Line("const float {} = {}.total();", ResultOf(index), name);
      return;
    }
    case Stage::Kind::kStore:
      if (stage.domain == Stage::Domain::kFull) {
        ForReduce(outer_count(), store);
      } else {
        out_.Block("", [&] { code_.Scope(store); });
      }
      return;
    case Stage::Kind::kScatter:
      Scatter(stage);
      return;
    case Stage::Kind::kScan:
      Scan(index);
      return;
  }
}

// All stages at one (outer, inner) point.
void NestEmitter::Point() {
  code_.Scope([&] {
    code_.Write(NeededByAll(Level::kItem));
    for (size_t index = 0; index < spec_.stages.size(); ++index) {
      code_.Write(NeededBy(spec_.stages[index], Level::kStage));
      PointStage(index);
    }
  });
}

int64_t NestEmitter::ItemsPerBlock() const {
  const bool elementwise = spec_.reduce.empty();
  const int64_t points = kBlockThreads * (elementwise ? kElementsPerThread : 1);
  if (is_flat()) return points;
  return spec_.inner.is_argument ? 1 : std::clamp<int64_t>(points / std::max<int64_t>(spec_.inner.value, 1), 1, points);
}

CudaSource NestEmitter::EmitPoints() {
  const int64_t items = ItemsPerBlock();
  const size_t inner = inner_dim();
  return text_.Function(kBlockThreads, static_cast<uint32_t>(items), [&] {
    text_.Pointers(spec_.accesses);
    out_.Line("const long long first = begin + blockIdx.x * {}ll;", items);
    if (is_flat()) {
      coordinates_[inner] = "c0";
      out_.Line("const long long last = kiln_least(first + {}ll, end);", items);
      out_.Block(fmt::format("for (long long c0 = first + threadIdx.x; c0 < last; c0 += {})", kBlockThreads),
                 [&] { Point(); });
      return;
    }
    const std::string name = "c" + std::to_string(inner), extent = KernelText::Int(spec_.inner);
    out_.Line("const long long points = kiln_least(end - first, {}ll) * {};", items, extent);
    out_.Block(fmt::format("for (long long point = threadIdx.x; point < points; point += {})", kBlockThreads), [&] {
      if (spec_.inner == SpecInt::Const(1)) {
        out_.Put("long long rest = first + point;");
      } else if (items == 1) {
        out_.Line("const long long {} = point;", name);
        out_.Put("long long rest = first;");
        coordinates_[inner] = name;
      } else {
        out_.Line("const long long {} = point % {};", name, extent);
        out_.Line("long long rest = first + point / {};", extent);
        coordinates_[inner] = name;
      }
      const std::vector<std::string> outer = text_.Decode("c", "rest", spec_.outer);
      std::ranges::copy(outer, coordinates_.begin());
      Point();
    });
  });
}

// --- a team per outer point ---

// Whether reduce positions store to one element in turn, of which the last one's value stays.
bool NestEmitter::InOrder() const {
  for (const Stage& stage : spec_.stages) {
    if (stage.domain != Stage::Domain::kFull) continue;
    for (const ir::Store& store : stage.stores) {
      const Access& access = spec_.accesses[static_cast<size_t>(store.access)];
      for (size_t dim = outer_count(); dim < inner_dim(); ++dim)
        if (access.strides[dim] == SpecInt::Const(0) && Extent(dim) != SpecInt::Const(1)) return true;
    }
  }
  return false;
}

// The row's positions over the dims from `first_dim` on, one thread each: the same thread for the same position
// whatever the stage, so that it alone touches an element that is read and stored in place.
void NestEmitter::ForRow(size_t first_dim, const std::function<void()>& body) {
  const int64_t team = warp_team_ ? kWarp : kBlockThreads;
  std::vector<size_t> dims;  // in one index
  for (size_t dim = InOrder() ? inner_dim() : first_dim; dim <= inner_dim(); ++dim)
    if (Extent(dim) != SpecInt::Const(1)) dims.push_back(dim);
  std::string length = dims.empty() ? "1ll" : "";
  for (size_t dim : dims) length += (length.empty() ? "" : " * ") + KernelText::Int(Extent(dim));
  out_.Block(fmt::format("for (long long at = lane; at < {}; at += {})", length, team), [&] {
    if (dims.size() > 1) out_.Put("long long rest = at;");
    for (size_t i = dims.size(); i-- > 0;) {
      const std::string name = "c" + std::to_string(dims[i]), extent = KernelText::Int(Extent(dims[i]));
      coordinates_[dims[i]] = name;
      if (i == 0) {
        out_.Line("const long long {} = {};", name, dims.size() > 1 ? "rest" : "at");
      } else {
        out_.Line("const long long {} = rest % {};", name, extent);
        out_.Line("rest /= {};", extent);
      }
    }
    if (InOrder() && first_dim < inner_dim()) {
      ForReduce(first_dim, body);
    } else {
      code_.Scope(body);
    }
  });
  for (size_t dim : dims) coordinates_[dim].clear();
}

// What the threads have of a row, combined into s0, s1, …
void NestEmitter::Reduce(size_t index) {
  const Stage& stage = spec_.stages[index];
  const DType type = TypeOf(stage);
  const int64_t team = warp_team_ ? kWarp : kBlockThreads;
  const std::optional<int64_t> length = Positions(inner_dim() + 1);
  const bool is_long = IsLongSum(stage, length ? std::optional((*length + team - 1) / team) : std::nullopt);
  const std::string own = "own" + std::to_string(index), combined = ResultOf(index);
  BeginSum(own, stage, is_long);
  ForRow(outer_count(), [&] { AddTo(own, stage, is_long); });
  const std::string name(CombineName(stage.combine));
  out_.Line("{} {} = kiln_warp_combined<{}>({}{});", TypeName(type), combined, name, own, is_long ? ".total()" : "");
  if (warp_team_) return;
  const std::string shared = fmt::format("parts_{}", DTypeName(type));
  out_.Line("if (lane % 32 == 0) KILN_PUT({}, lane / 32, {});", shared, combined);
  out_.Put("__syncthreads();");
  out_.Line("{} = KILN_GET({}, 0);", combined, shared);
  out_.Line("for (int part = 1; part < {}; ++part) {} = {}::of({}, KILN_GET({}, part));", kBlockThreads / kWarp,
            combined, name, combined, shared);
  out_.Put("__syncthreads();");
}

void NestEmitter::RowStage(size_t index) {
  const Stage& stage = spec_.stages[index];
  if (stage.kind == Stage::Kind::kReduce) {
    Reduce(index);
    return;
  }
  const auto store = [&] {
    WritePoint(stage);
    text_.Stores(spec_.body, stage.stores, spec_.accesses, coordinates_);
  };
  switch (stage.domain) {
    case Stage::Domain::kRow:
      out_.Block("if (lane == 0)", [&] { code_.Scope(store); });
      break;
    case Stage::Domain::kInner:
      ForRow(inner_dim(), store);
      break;
    case Stage::Domain::kFull:
      ForRow(outer_count(), store);
      break;
  }
  if (index + 1 < spec_.stages.size()) TeamBarrier();  // what was stored may be read by other threads
}

CudaSource NestEmitter::EmitRows() {
  const std::optional<int64_t> length = Positions(inner_dim() + 1);
  warp_team_ = length && *length <= kWarpRowMax;
  const int64_t items = warp_team_ ? kBlockThreads / kWarp : 1;
  return text_.Function(kBlockThreads, static_cast<uint32_t>(items), [&] {
    text_.Pointers(spec_.accesses);
    if (!warp_team_) {
      for (const DType type : {DType::kF32, DType::kF64, DType::kI32, DType::kI64}) {
        const bool used = std::ranges::any_of(spec_.stages, [&](const Stage& stage) {
          return stage.kind == Stage::Kind::kReduce && TypeOf(stage) == type;
        });
        if (used) out_.Line("KILN_SHARED({}, parts_{}, {});", TypeName(type), DTypeName(type), kBlockThreads / kWarp);
      }
    }
    out_.Line("const int lane = threadIdx.x{};", warp_team_ ? " % 32" : "");
    out_.Line("const long long item = begin + blockIdx.x * {}ll{};", items, warp_team_ ? " + threadIdx.x / 32" : "");
    out_.Block("if (item < end)", [&] {
      out_.Put("long long rest = item;");
      const std::vector<std::string> outer = text_.Decode("c", "rest", spec_.outer);
      std::ranges::copy(outer, coordinates_.begin());
      code_.Scope([&] {
        code_.Write(NeededByAll(Level::kItem));
        for (size_t index = 0; index < spec_.stages.size(); ++index) {
          code_.Write(NeededBy(spec_.stages[index], Level::kStage));
          RowStage(index);
        }
      });
    });
  });
}

}  // namespace

CudaSource EmitLoopNest(KernelText& text, const LoopNestSpec& spec) {
  return NestEmitter(text, spec).Emit();
}

}  // namespace kiln::codegen::cuda
