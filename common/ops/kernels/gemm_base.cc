// The matrix product for one instruction set; the flags are in this folder's CMakeLists.txt.
#define KILN_VECTOR_BYTES 16
#define KILN_TILE_ROWS 4
#define KILN_TILE_VECTORS 2
#include "common/ops/kernels/gemm_blocked.h"

namespace kiln::kernels {

extern const GemmRoutines kGemmBase;
const GemmRoutines kGemmBase = kRoutines;

}  // namespace kiln::kernels
