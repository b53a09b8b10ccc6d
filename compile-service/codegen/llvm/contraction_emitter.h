// ContractionEmitter: the parts of a contraction that share their state. contraction.cc goes over the range and makes
// sums, contraction_blocks.cc makes long sums block by block, contraction_transposed.cc reads a transposed B,
// contraction_winograd.cc makes convolutions by fewer products, contraction_stores.cc stores finished tiles.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "compile-service/codegen/llvm/contraction_epilogue.h"
#include "compile-service/codegen/llvm/contraction_kernel.h"
#include "compile-service/codegen/llvm/contraction_rows.h"

namespace kiln::codegen {

class ContractionEmitter {
 public:
  ContractionEmitter(KernelFrame& frame, const ir::ContractionSpec& spec)
      : frame_(frame),
        e_(frame.emitter()),
        b_(frame.emitter().ir()),
        spec_(spec),
        epilogue_(frame, spec.accesses, spec.epilogue, spec.stores),
        width_(int64_t{spec.tile.nv} * frame.emitter().lanes()) {}

  void Emit();

 private:
  // One item of the range.
  struct Item {
    Values batch;
    llvm::Value* panel;
    llvm::Value* tile;
    llvm::Value* first;  // tile of its block
  };
  // Its place in the matrices.
  struct Place {
    Values batch;
    llvm::Value* panel;
    llvm::Value* tile;
    llvm::Value* row;      // first of m
    llvm::Value* rows;     // that exist, 1..mr
    llvm::Value* column;   // first of n
    llvm::Value* columns;  // that exist, 1..width
  };
  // What is known of a panel while building its code.
  enum class Panel { kWhole, kPartial, kEither };

  int64_t BlockOf(int64_t bytes) const;
  int64_t LongestBlock() const;
  void EmitBlocked(int64_t longest);
  // One block of k, of `count` tiles whose sums so far lie at `waiting`.
  struct Block {
    llvm::Value *begin, *steps, *length;
    llvm::Value *is_first, *is_last;
  };
  void EmitBlock(const Item& first, llvm::Value* count, const Block& block, llvm::Value* waiting);
  Values BlockSums(const Place& place, const Block& block, const Values& before);
  llvm::Value* TilesTogether(const Item& item, llvm::Value* at, llvm::Value* most);
  void TransposeBlock(const Item& item, const Block& block);
  Values DotSums(const Place& place);
  Values DotProducts(const TileRows& a, const Values& columns);
  int64_t tile_vectors() const { return int64_t{spec_.tile.mr} * spec_.tile.nv; }

  Item Decode(llvm::Value* begin);
  Values Next(const Item& item);
  llvm::Value* BlockEnd(llvm::Value* first);
  Place PlaceOf(const Item& item);
  void EmitItem(const Item& item);
  void EmitPlace(const Place& place, Panel panel) { StoreTile(place, panel, Sums(place, panel)); }

  llvm::Value* Base(const ir::Access& access, const Values& batch);
  using Prefetches = std::vector<MicroKernel::Prefetch>;
  Prefetches NextPanel(const Place& place);
  bool IsLarge() const;  // of B
  int Streams() const;
  Prefetches StreamingPrefetches();
  MicroKernel::Prefetch LineAhead(const Place& place, llvm::Value* distance);
  MicroKernel KernelWith(Prefetches prefetches, int streams = 1);
  // `before` (or zeros) + the products of `count` steps. `many`: what to ask for meanwhile when rows are many.
  Values SumsOver(const TileRows& rows, llvm::Value* count, const std::vector<Active>& columns, llvm::Value* b,
                  const Prefetches& many, const Values& before = {});
  std::vector<Active> BColumns(const Place& place, Panel panel);
  Values Sums(const Place& place, Panel panel);
  Values ConvSums(MicroKernel& kernel, const Place& place, const std::vector<Active>& columns, llvm::Value* b);
  bool MergesKernelColumns() const;
  // The whole window inside the image, or anywhere.
  Values ConvSumsByRow(MicroKernel& kernel, const std::vector<Active>& columns, llvm::Value* b);
  Values ConvSumsByPosition(MicroKernel& kernel, const std::vector<Active>& columns, llvm::Value* b);
  // `state`: sums, then the place in B.
  Values Accumulated(MicroKernel& kernel, const TileRows& rows, llvm::Value* count, const std::vector<Active>& columns,
                     Values state);

  // Pixels [begin, end) of one panel.
  struct Strip {
    Place place;
    llvm::Value *begin, *end;
  };
  // `lines` lines of one image from `line` (of all images) on, which is `row` of `image`; and `tiles` tiles of columns
  // of each.
  struct WinogradBlock {
    llvm::Value *image, *row, *line, *lines, *tile, *tiles;
  };
  void EmitWinograd();
  void TransformWeights(const Place& place);
  void EmitStrip(const Strip& strip);
  void TransformImage(const WinogradBlock& block);
  void MultiplyPositions(const WinogradBlock& block);
  void StoreColumns(const Strip& strip, const WinogradBlock& block);
  void StoreFinite(const Place& pixels, llvm::Value* before, llvm::Value* sums);
  llvm::Value* LeavesRange(llvm::Value* sums);
  int64_t WinogradLines() const;
  int64_t WinogradTiles() const;
  int64_t WinogradRows() const { return WinogradLines() * WinogradTiles() + spec_.tile.mr; }
  int64_t channels() const { return spec_.k.value / (int64_t{spec_.conv->kernel_h} * spec_.conv->kernel_w); }
  llvm::Value* PositionSums(llvm::Value* row, int position);

  void StoreTile(const Place& place, Panel panel, const Values& sums);
  void StoreFromRegisters(const Place& place, Panel panel, const Values& sums);
  void StoreFromBuffer(const Place& place, Panel panel, const Values& sums);
  void StoreRow(const Place& place, Panel panel, const Epilogue::Position& row, llvm::Value* buffer_row);
  // Calls `body` once or twice, with code for a vector of the columns of a panel that exist.
  void EmitColumns(const Place& place, Panel panel,
                   const std::function<void(llvm::Value* vector, const Active& active)>& body);

  Epilogue::Position Origin(const Place& place);
  size_t row_dim() const { return spec_.batch.size(); }
  size_t column_dim() const { return spec_.batch.size() + 1; }
  bool in_panels() const { return spec_.b_layout == ir::BLayout::kPanels; }
  // With at most this many rows the panels are read once, and streaming them is the work.
  static constexpr int64_t kStreamingRows = 8;
  bool is_streaming() const { return !spec_.m.is_argument && spec_.m.value <= kStreamingRows; }
  bool is_transposed() const { return spec_.b_layout == ir::BLayout::kTransposed; }
  // Rows so few that transposing B would cost more than their products; wider tiles are made for many of them.
  static constexpr int32_t kDotVectorsMax = 2;
  bool takes_dots() const {
    return is_transposed() && spec_.tile.mr <= ir::kDotRowsMax && spec_.tile.nv <= kDotVectorsMax &&
           spec_.a.strides.back() == ir::SpecInt::Const(1);
  }
  Panel KnownPanel() const;
  bool is_bytes() const { return !IsFloat(spec_.a.storage); }
  DType sum_type() const { return is_bytes() ? DType::kI32 : DType::kF32; }
  // Elements of a panel in one of its columns.
  llvm::Value* PanelDepth() { return is_bytes() ? e_.I64(ir::PanelDepth(spec_, spec_.k.value)) : frame_.Int(spec_.k); }
  llvm::Value* Ceil(llvm::Value* value, int64_t divisor) {
    return b_.CreateUDiv(b_.CreateAdd(value, e_.I64(divisor - 1)), e_.I64(divisor));
  }
  llvm::Value* Smaller(llvm::Value* a, int64_t b) {
    return b_.CreateSelect(b_.CreateICmpSLT(a, e_.I64(b)), a, e_.I64(b));
  }
  llvm::Value* Larger(llvm::Value* a, int64_t b) {
    return b_.CreateSelect(b_.CreateICmpSGT(a, e_.I64(b)), a, e_.I64(b));
  }
  llvm::Value* Lanes(int64_t vectors) { return e_.I64(vectors * e_.lanes()); }

  KernelFrame& frame_;
  VectorEmitter& e_;
  llvm::IRBuilder<>& b_;
  const ir::ContractionSpec& spec_;
  Epilogue epilogue_;
  int64_t width_;  // of a panel
  llvm::Value* panels_ = nullptr;
  llvm::Value* tiles_ = nullptr;
  llvm::Value* block_tiles_ = nullptr;  // null: all in one block
  Values batch_extents_;
  std::optional<PixelRows> pixels_;  // of a convolution
  llvm::Value* channels_ = nullptr;
  llvm::Value* transposed_ = nullptr;  // a block of a panel, [k][nv] vectors
  llvm::Value* buffer_ = nullptr;      // a tile of sums in memory; null until needed
  // Of Winograd's form, all in memory: a panel's weights [position][kernel row, channel][nv vectors], a block of the
  // image [position][line, tile][channel], its sums [position][line, tile][nv vectors], finished columns.
  llvm::Value *weights_ = nullptr, *image_ = nullptr, *sums_ = nullptr, *finished_ = nullptr;
};

}  // namespace kiln::codegen
