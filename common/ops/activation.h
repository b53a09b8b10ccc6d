// The activation functions of LSTM, GRU and RNN nodes, as kernels and code generation both read them.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "common/base/result.h"
#include "common/bytecode/program.h"

namespace kiln {

enum class Activation : uint8_t {
#define KILN_ACTIVATION(name, takes_alpha, alpha, takes_beta, beta) k##name,
#include "common/ops/activations.def"
#undef KILN_ACTIVATION
};

struct ActivationSpec {
  Activation kind = Activation::kTanh;
  double alpha = 0, beta = 0;
};

// Up to three activations for each of up to two directions.
inline constexpr size_t kActivationsMax = 6;
struct ActivationList {
  std::array<ActivationSpec, kActivationsMax> items{};
  size_t count = 0;
  const ActivationSpec& operator[](size_t i) const { return items[i]; }
};

// `defaults` for each direction, where attribute `activations` names no others; alphas and betas are handed out in
// order to those that take them. InvalidArgument for a wrong number of activations or directions, Unsupported for an
// unknown name. Allocates nothing.
Result<ActivationList> ReadActivations(const Attributes& attributes, int64_t directions,
                                       std::span<const Activation> defaults);

}  // namespace kiln
