// CUDA C++ of random specs, run by the processor (tests/support/cuda), against the naive evaluator.
#include <gtest/gtest.h>

#include "tests/compile-service/codegen/cuda/shim_case.h"
#include "tests/compile-service/codegen/spec_cases.h"

namespace kiln::testing {
namespace {

void ExpectAgreement(int cases, MakeCase make) {
  std::mt19937_64 random(Seed());
  std::vector<ShimCase> list;
  for (int i = 0; i < cases; ++i) list.push_back(ShimCaseOf(make(random, kShimTarget)));
  ExpectShimAgrees(list, random);
}

TEST(CudaText, LoopNestsAgreeWithTheEvaluator) {
  const uint64_t seed = Seed();
  std::mt19937_64 random(seed);
  std::vector<ShimCase> list;
  for (uint64_t round = 0; round < 80; ++round)
    list.push_back(ShimCaseOf(RandomLoopNest(seed * 1000003 + round, kShimLanes).Make(), "nest"));
  ExpectShimAgrees(list, random);
}

TEST(CudaText, ProductsAgreeWithTheEvaluator) {
  ExpectAgreement(30, RandomMatmul);
}

TEST(CudaText, RowsInBlocksAgreeWithTheEvaluator) {
  ExpectAgreement(2, MatmulInRowBlocks);
  ExpectAgreement(1, ConvolutionInRowBlocks);
}

TEST(CudaText, ConvolutionsAgreeWithTheEvaluator) {
  ExpectAgreement(20, RandomConvolution);
}

TEST(CudaText, ConvolutionsOfSpecialValuesAgreeWithTheEvaluator) {
  ExpectAgreement(6, WinogradConvolutionOfSpecialValues);
}

TEST(CudaText, ProductsOfBytesAgreeWithTheEvaluator) {
  ExpectAgreement(12, RandomByteProduct);
  ExpectAgreement(12, RandomByteConvolution);
}

TEST(CudaText, WindowsAgreeWithTheEvaluator) {
  ExpectAgreement(30, RandomWindow);
}

TEST(CudaText, AttentionsAgreeWithTheEvaluator) {
  ExpectAgreement(25, RandomAttention);
}

TEST(CudaText, RecurrencesAgreeWithTheEvaluator) {
  ExpectAgreement(25, RandomRecurrence);
}

}  // namespace
}  // namespace kiln::testing
