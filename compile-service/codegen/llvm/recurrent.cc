#include "compile-service/codegen/llvm/recurrent.h"

#include <algorithm>
#include <span>

#include "compile-service/codegen/llvm/contraction_kernel.h"
#include "compile-service/codegen/llvm/contraction_rows.h"
#include "compile-service/codegen/llvm/scalar_emitter.h"

namespace kiln::codegen {
namespace {

using llvm::Value;

class RecurrentEmitter {
 public:
  RecurrentEmitter(KernelFrame& frame, const ir::RecurrentSpec& spec)
      : frame_(frame), e_(frame.emitter()), b_(frame.emitter().ir()), spec_(spec) {}

  void Emit() {
    e_.Loop(frame_.begin(), frame_.end(), 1, {}, [&](Value* item, const Values&) {
      first_row_ = b_.CreateMul(item, e_.I64(spec_.tile_rows));
      rows_ = Smaller(b_.CreateSub(frame_.Int(spec_.rows), first_row_), e_.I64(spec_.tile_rows));
      EmitTile();
      return Values{};
    });
  }

 private:
  void EmitTile() {
    Value* zero = e_.I64(0);
    Value* time = frame_.Int(spec_.time);
    for (const ir::RecurrentStage& stage : spec_.before) EmitStage(stage, zero);
    Value* length = LengthOf(time);
    e_.Loop(zero, length, 1, {}, [&](Value* turn, const Values&) {
      Value* at = spec_.reversed ? b_.CreateSub(b_.CreateSub(length, e_.I64(1)), turn) : turn;
      for (const ir::RecurrentStage& stage : spec_.steps) EmitStage(stage, at);
      return Values{};
    });
    if (spec_.after.empty() || length == time) return;
    e_.Loop(length, time, 1, {}, [&](Value* turn, const Values&) {
      for (const ir::RecurrentStage& stage : spec_.after) EmitStage(stage, turn);
      return Values{};
    });
  }

  Value* LengthOf(Value* time) {
    if (spec_.lengths < 0) return time;
    Value* address = e_.Address(frame_.Pointer(spec_.lengths), DType::kI32, first_row_);
    Value* length = b_.CreateSExt(b_.CreateLoad(b_.getInt32Ty(), address), b_.getInt64Ty());
    length = b_.CreateSelect(b_.CreateICmpSLT(length, e_.I64(0)), e_.I64(0), length);
    return Smaller(length, time);
  }

  // Per access, the place of the tile's first row at `time`.
  Values RowsAt(const ir::RecurrentStage& stage, Value* time) {
    std::vector<bool> used(spec_.accesses.size(), false);
    for (const ir::ScalarNode& node : stage.body)
      if (node.op == ir::ScalarOp::kLoad) used[static_cast<size_t>(node.index)] = true;
    for (const ir::Store& store : stage.stores) used[static_cast<size_t>(store.access)] = true;
    if (stage.gates > 0) used[static_cast<size_t>(stage.input)] = true;
    Values pointers(spec_.accesses.size(), nullptr);
    for (size_t i = 0; i < used.size(); ++i) {
      if (!used[i]) continue;
      const ir::Access& access = spec_.accesses[i];
      Value* offset = b_.CreateAdd(b_.CreateMul(time, frame_.Int(access.strides[0])),
                                   b_.CreateMul(first_row_, frame_.Int(access.strides[1])));
      pointers[i] = b_.CreateFreeze(e_.Address(frame_.Pointer(access.pointer), access.storage, offset));
    }
    return pointers;
  }

  void EmitStage(const ir::RecurrentStage& stage, Value* time) {
    const Values rows = RowsAt(stage, time);
    const int64_t width = int64_t{stage.vectors} * e_.lanes();
    e_.Loop(e_.I64(0), e_.I64((spec_.units + width - 1) / width), 1, {}, [&](Value* block, const Values&) {
      Value* unit = b_.CreateMul(block, e_.I64(width));
      const Values sums = stage.gates > 0 ? Products(stage, rows, block) : Values{};
      if (spec_.tile_rows == 1) {
        EmitRow(stage, rows, time, first_row_, unit, sums);
      } else {
        EmitRows(stage, rows, time, unit, sums);
      }
      return Values{};
    });
  }

  // The sums of a block: rows x (gate, vector).
  Values Products(const ir::RecurrentStage& stage, const Values& rows, Value* block) {
    const ir::Access& input = spec_.accesses[static_cast<size_t>(stage.input)];
    const ir::Tile tile{spec_.tile_rows, stage.gates * stage.vectors};
    const int64_t row = int64_t{tile.nv} * e_.lanes();
    MicroKernel kernel(e_, {.tile = tile,
                            .a_storage = DType::kF32,
                            .b_storage = DType::kF32,
                            .a_step = frame_.Int(input.strides[2]),
                            .b_step = nullptr,
                            .prefetches = {}});
    const TileRows tile_rows = StridedRows(e_, DType::kF32, rows[static_cast<size_t>(stage.input)],
                                           frame_.Int(input.strides[1]), rows_, spec_.tile_rows);
    Value* panel =
        e_.Address(frame_.Pointer(stage.panels), DType::kF32, b_.CreateMul(block, e_.I64(row * spec_.units)));
    Values sums = kernel.Zero();
    kernel.Accumulate(tile_rows, e_.I64(spec_.units), std::vector<Active>(static_cast<size_t>(tile.nv), e_.Full()),
                      panel, sums);
    return kernel.Finish(sums);
  }

  // Row by row, in a loop; the sums wait in memory.
  void EmitRows(const ir::RecurrentStage& stage, const Values& rows, Value* time, Value* unit, const Values& sums) {
    llvm::Type* vector = e_.VectorType(DType::kF32);
    const auto per_row = static_cast<size_t>(stage.gates * stage.vectors);
    Value* buffer = sums.empty() ? nullptr : Buffer();
    for (size_t i = 0; i < sums.size(); ++i) b_.CreateStore(sums[i], b_.CreateConstGEP1_64(vector, buffer, i));
    e_.Loop(e_.I64(0), rows_, 1, {}, [&](Value* i, const Values&) {
      Values moved = rows, row_sums;
      for (size_t a = 0; a < rows.size(); ++a) {
        if (!rows[a]) continue;
        const ir::Access& access = spec_.accesses[a];
        moved[a] = e_.Address(rows[a], access.storage, b_.CreateMul(i, frame_.Int(access.strides[1])));
      }
      if (buffer) {
        Value* first = b_.CreateGEP(vector, buffer, b_.CreateMul(i, e_.I64(static_cast<int64_t>(per_row))));
        for (size_t s = 0; s < per_row; ++s)
          row_sums.push_back(b_.CreateLoad(vector, b_.CreateConstGEP1_64(vector, first, s)));
      }
      EmitRow(stage, moved, time, b_.CreateAdd(first_row_, i), unit, row_sums);
      return Values{};
    });
  }

  // Memory for the sums of any stage's tile, made once.
  Value* Buffer() {
    if (buffer_) return buffer_;
    int64_t vectors = 0;
    for (const auto* stages : {&spec_.before, &spec_.steps, &spec_.after})
      for (const ir::RecurrentStage& stage : *stages)
        vectors = std::max(vectors, int64_t{spec_.tile_rows} * stage.gates * stage.vectors);
    llvm::IRBuilder<>::InsertPointGuard guard(b_);
    llvm::BasicBlock& entry = b_.GetInsertBlock()->getParent()->getEntryBlock();
    b_.SetInsertPoint(&entry, entry.begin());
    buffer_ = b_.CreateAlloca(e_.VectorType(DType::kF32), e_.I64(vectors));
    return buffer_;
  }

  // The arithmetic and stores of one row's block of units.
  void EmitRow(const ir::RecurrentStage& stage, const Values& row, Value* time, Value* row_index, Value* unit,
               const Values& sums) {
    const bool whole = spec_.units % (stage.vectors * e_.lanes()) == 0;
    for (int j = 0; j < stage.vectors; ++j) {
      Value* first = b_.CreateAdd(unit, e_.I64(int64_t{j} * e_.lanes()));
      Active active = e_.Full();
      if (!whole) {
        Value* left = Smaller(b_.CreateSub(e_.I64(spec_.units), first), e_.I64(e_.lanes()));
        active = e_.First(b_.CreateSelect(b_.CreateICmpSGT(left, e_.I64(0)), left, e_.I64(0)));
      }
      const auto address = [&](int32_t index) {
        const ir::Access& access = spec_.accesses[static_cast<size_t>(index)];
        return e_.Address(row[static_cast<size_t>(index)], access.storage,
                          b_.CreateMul(first, frame_.Int(access.strides[2])));
      };
      const auto leaf = [&](const ir::ScalarNode& node) -> Value* {
        if (node.op == ir::ScalarOp::kAccumulator) return sums[static_cast<size_t>(node.index * stage.vectors + j)];
        if (node.op == ir::ScalarOp::kArgument) return e_.Splat(frame_.Dim(node.index));
        if (node.op == ir::ScalarOp::kLoad) return Load(node, address(node.index), active);
        if (node.index == 2) return b_.CreateAdd(e_.Splat(first), e_.LaneIndices());
        return e_.Splat(node.index == 0 ? time : row_index);
      };
      const Values values = EmitScalarProgram(e_, stage.body, StoredNodes(stage.stores), leaf);
      for (const ir::Store& store : stage.stores) {
        const ir::Access& access = spec_.accesses[static_cast<size_t>(store.access)];
        const DType type = stage.body[static_cast<size_t>(store.node)].type;
        Value* value = values[static_cast<size_t>(store.node)];
        if (access.strides[2] == ir::SpecInt::Const(1)) {
          e_.Store(value, type, access.storage, address(store.access), active);
        } else {
          e_.StoreStrided(value, type, access.storage, address(store.access), frame_.Int(access.strides[2]), active);
        }
      }
    }
  }

  Value* Load(const ir::ScalarNode& node, Value* address, const Active& active) {
    const ir::Access& access = spec_.accesses[static_cast<size_t>(node.index)];
    const ir::SpecInt& stride = access.strides[2];
    if (stride == ir::SpecInt::Const(0)) return e_.LoadBroadcast(access.storage, node.type, address);
    if (stride == ir::SpecInt::Const(1)) return e_.Load(access.storage, node.type, address, active);
    return e_.LoadStrided(access.storage, node.type, address, frame_.Int(stride), active);
  }

  Value* Smaller(Value* a, Value* b) { return b_.CreateSelect(b_.CreateICmpSLT(a, b), a, b); }

  KernelFrame& frame_;
  VectorEmitter& e_;
  llvm::IRBuilder<>& b_;
  const ir::RecurrentSpec& spec_;
  Value* first_row_ = nullptr;  // of the tile
  Value* rows_ = nullptr;       // that exist, 1..tile_rows
  Value* buffer_ = nullptr;
};

}  // namespace

void EmitRecurrent(KernelFrame& frame, const ir::RecurrentSpec& spec) {
  RecurrentEmitter(frame, spec).Emit();
}

}  // namespace kiln::codegen
