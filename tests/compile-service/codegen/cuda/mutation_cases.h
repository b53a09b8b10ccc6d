// One kernel of every class, of odd sizes, for mutations of its text.
#pragma once

#include "tests/compile-service/codegen/cuda/shim_case.h"

namespace kiln::testing {

ShimCase FlatChain();           // adds to what is there, in place
ShimCase BlockSoftmax();        // rows of a length known at run time: a block each
ShimCase WarpNormalisation();   // rows of a known, short length: a warp each
ShimCase BlockNormalisation();  // the same rows, of a length known at run time: two reductions in turn
ShimCase RowBroadcast();        // a row's result is stored, and read by every thread of the next stage
ShimCase ColumnSums();          // a thread per column, over two reduce dims
ShimCase Product();             // A and B in rows, both with edges, several slices of k
ShimCase PackedProduct();       // B in panels, rows of A along m
ShimCase ByteConvolution();     // with padding, k no multiple of four
ShimCase Convolution();         // strides, dilations, padding, two images
ShimCase DepthwiseWindow();
ShimCase AverageWindow();
ShimCase MaximumWindow();    // with NaN
ShimCase MaskedAttention();  // several chunks of keys and passes of queries; the first chunk is masked
ShimCase Recurrence();       // reversed, rows of different lengths

}  // namespace kiln::testing
