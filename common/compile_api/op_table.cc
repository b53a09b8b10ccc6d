#include "common/compile_api/op_table.h"

#include "common/ops/tensor_op.h"

namespace kiln {
namespace {

TablePrefix PrefixOf(int rows) {
  TablePrefix prefix{static_cast<uint32_t>(rows), 0};
  const Digest hash = TensorOpTablePrefix(rows);
  for (int i = 0; i < 8; ++i) prefix.hash |= static_cast<uint64_t>(hash.bytes[static_cast<size_t>(i)]) << (8 * i);
  return prefix;
}

}  // namespace

TablePrefix OwnOpTable() {
  return PrefixOf(TensorOpCount());
}

bool IsOpTableCompatible(TablePrefix peer) {
  const auto rows = static_cast<uint32_t>(TensorOpCount());
  return peer.rows > rows || PrefixOf(static_cast<int>(peer.rows)).hash == peer.hash;
}

}  // namespace kiln
