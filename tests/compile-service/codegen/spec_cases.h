// Random kernel specs with their data, for whoever compares generated code with the evaluator.
#pragma once

#include "tests/compile-service/codegen/spec_case.h"

namespace kiln::testing {

SpecCase RandomMatmul(std::mt19937_64& random, Target target);
// Sums so long, of so many tiles, that a processor makes them block by block of k.
SpecCase LongMatmul(std::mt19937_64& random, Target target);
// Few rows beside weights that come from memory.
SpecCase StreamedMatmul(std::mt19937_64& random, Target target);
SpecCase RandomConvolution(std::mt19937_64& random, Target target);
// Of more rows than a block has that panels pass over (ContractionOrder).
SpecCase MatmulInRowBlocks(std::mt19937_64& random, Target target);
SpecCase ConvolutionInRowBlocks(std::mt19937_64& random, Target target);
// In Winograd's form; also with infinities, NaN and numbers that are too large for it.
SpecCase FiniteWinogradConvolution(std::mt19937_64& random, Target target);
SpecCase WinogradConvolutionOfSpecialValues(std::mt19937_64& random, Target target);
// Of u8 or i8 by i8.
SpecCase RandomByteProduct(std::mt19937_64& random, Target target);
SpecCase RandomByteConvolution(std::mt19937_64& random, Target target);
SpecCase RandomWindow(std::mt19937_64& random, Target target);
SpecCase RandomAttention(std::mt19937_64& random, Target target);
SpecCase RandomRecurrence(std::mt19937_64& random, Target target);

}  // namespace kiln::testing
