// The matrix product for one instruction set; the flags are in this folder's CMakeLists.txt.
#define KILN_VECTOR_BYTES 32
#define KILN_TILE_ROWS 6
#define KILN_TILE_VECTORS 2
#include "common/ops/kernels/gemm_blocked.h"

namespace kiln::kernels {

extern const GemmRoutines kGemmV3;
const GemmRoutines kGemmV3 = kRoutines;

}  // namespace kiln::kernels
