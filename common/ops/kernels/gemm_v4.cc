// The matrix product for one instruction set; the flags are in this folder's CMakeLists.txt.
#define KILN_VECTOR_BYTES 64
#define KILN_TILE_ROWS 12
#define KILN_TILE_VECTORS 2
#include "common/ops/kernels/gemm_blocked.h"

namespace kiln::kernels {

extern const GemmRoutines kGemmV4;
const GemmRoutines kGemmV4 = kRoutines;

}  // namespace kiln::kernels
