// Test support: programs from text, tensors from lists.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "common/bytecode/program_text.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln {

inline std::shared_ptr<const LoadedProgram> LoadText(std::string_view text) {
  auto program = ParseProgram(text);
  if (!program) {
    ADD_FAILURE() << ToString(program.error());
    return nullptr;
  }
  auto loaded = LoadedProgram::Load(std::move(*program), {.verify_code = true});
  if (!loaded) {
    ADD_FAILURE() << ToString(loaded.error());
    return nullptr;
  }
  return *loaded;
}

inline Tensor Floats(const Dims& dims, const std::vector<float>& values) {
  return Tensor::Of<float>(DType::kF32, dims, std::span<const float>(values));
}
inline Tensor Ints(const Dims& dims, const std::vector<int64_t>& values) {
  return Tensor::Of<int64_t>(DType::kI64, dims, std::span<const int64_t>(values));
}
// 0, step, 2*step, ...
inline Tensor Iota(const Dims& dims, float step = 1.0f) {
  Tensor tensor = Tensor::Allocate(DType::kF32, dims);
  for (int64_t i = 0; i < NumElements(dims); ++i) tensor.ref.as<float>()[i] = step * static_cast<float>(i);
  return tensor;
}
template <class T = float>
std::vector<T> Values(const TensorRef& ref) {
  const Tensor flat = MakeContiguous(ref);
  return std::vector<T>(flat.values<T>().begin(), flat.values<T>().end());
}

// Runs twice in static form and once in variant form: all three must agree bit for bit. Returns the outputs.
inline Result<std::vector<Tensor>> RunEveryWay(VmContext& context, const LoadedProgram& program,
                                               std::span<const TensorRef> inputs,
                                               std::span<const int64_t> symbols = {}) {
  auto variant = context.Run(program, inputs, {.static_forms = false, .symbols = symbols});
  auto first = context.Run(program, inputs, {.symbols = symbols});
  auto again = context.Run(program, inputs, {.symbols = symbols});
  EXPECT_EQ(variant.has_value(), first.has_value());
  EXPECT_EQ(first.has_value(), again.has_value());
  if (!variant || !first || !again) return variant;
  for (size_t i = 0; i < variant->size(); ++i) {
    for (const Tensor* other : {&(*first)[i], &(*again)[i]}) {
      EXPECT_EQ((*variant)[i].dtype(), other->dtype());
      EXPECT_EQ((*variant)[i].dims(), other->dims());
      if ((*variant)[i].dims() == other->dims()) {
        EXPECT_EQ(0, std::memcmp((*variant)[i].ref.data, other->ref.data, static_cast<size_t>(other->ref.bytes())));
      }
    }
  }
  return variant;
}

}  // namespace kiln
