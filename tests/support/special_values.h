// Tensors of the values that arithmetic treats apart: NaN, infinities, zeros of both signs, denormals, the largest
// numbers, halves that rounding ties at, bounds of integers; sprinkled among ordinary ones, from a seed.
#pragma once

#include <cstdint>
#include <random>
#include <string_view>

#include "common/tensor/tensor.h"

namespace kiln::testing {

// How finite values are chosen. Ops that add and square many elements are given ordinary ones, and products of many no
// small ones: where their intermediate results leave f32 is another matter (error_classes.def).
enum class Magnitudes : uint8_t { kAll, kOrdinary, kNearOne };

class SpecialValues {
 public:
  // Rounds alternate between all kinds of values side by side, few special ones among ordinary ones, one value for a
  // whole tensor, magnitudes from the smallest to the largest, and whole tensors of one magnitude.
  SpecialValues(uint64_t seed, int round, Magnitudes magnitudes);

  void Fill(Tensor& tensor, bool with_zero = true);

 private:
  double Special();
  double Ordinary();
  double AnyMagnitude(double largest);
  template <class T>
  T Float();
  template <class T>
  T Integer(bool with_zero);

  std::mt19937_64 random_;
  const int round_;
  const Magnitudes magnitudes_;
};

}  // namespace kiln::testing
