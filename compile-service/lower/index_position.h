// Which entry of some axes of a tensor run-time indices name, as scalars of a kernel: what lookups load from, and
// scatters store to.
#pragma once

#include "compile-service/lower/group_body.h"

namespace kiln::lower {

inline constexpr int64_t kIndexTupleMax = 8;  // indices of one position

// Which axes of the data (input 0 of the node) its indices (input 1) name.
struct IndexAxes {
  size_t first = 0;    // axis of the data
  size_t count = 1;    // consecutive axes, one index of a tuple each
  bool tuple = false;  // the last dim of the indices are tuples
};

// The data as a tuple of indices finds it: where it lies, or a copy, so that the tuple is one number.
Result<Place> IndexedPlace(PlanBuilder& builder, const ir::GraphNode& node, const IndexAxes& axes);

// Operands of a LoadAt: the entry that the indices name, counted from the front, of how many, how far apart.
struct IndexPosition {
  int32_t position = -1, extent = -1, stride = -1;
};
// `data` is the IndexedPlace; the dims of the indices, but that of tuples, are dims [before, …) of the body's space of
// `rank` dims.
Result<IndexPosition> AddIndexPosition(PlanBuilder& builder, GroupBody& body, KernelArguments& arguments,
                                       const ir::GraphNode& node, const IndexAxes& axes, const Place& data,
                                       size_t before, size_t rank);

// Whether every position along the dims of the indices is one of the data, but along `axis`.
bool FitsBesideAxis(const ir::Graph& graph, const ir::GraphNode& node, size_t axis);

}  // namespace kiln::lower
