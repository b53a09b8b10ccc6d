// RandomNormal, RandomUniform, Multinomial. What is drawn does not depend on the element type: it is drawn in f64 and
// rounded to it.
#include <algorithm>
#include <numbers>

#include "common/ops/kernels/kernel.h"
#include "common/ops/kernels/table.h"

namespace kiln::kernels {
namespace {

Status RequireRandom(const KernelCall& call) {
  if (call.random != nullptr) return {};
  return Fail(ErrorCode::kInternal, std::string(OpInfo(call.op).name) + " runs where no random numbers are given");
}

// Two independent numbers of mean 0 and deviation 1 (Box and Muller, "A note on the generation of random normal
// deviates", 1958). Their magnitude is at most 8.6: sqrt(-2 ln 2^-53).
std::array<double, 2> Normals(const RandomDraw& random, uint64_t block) {
  const auto [radius, angle] = random.Uniforms(block);
  const double length = std::sqrt(-2 * std::log(radius + 0x1p-53));  // of (0, 1]
  const double turn = 2 * std::numbers::pi * angle;
  return {length * std::cos(turn), length * std::sin(turn)};
}

// Fills `out`, two elements a block, with `map` of what `draw` gives.
template <class T, class Draw, class Map>
void Fill(const TensorRef& out, Draw draw, Map map) {
  T* to = out.as<T>();
  const int64_t count = out.elements();
  for (int64_t i = 0; i < count; i += 2) {
    const std::array<double, 2> pair = draw(static_cast<uint64_t>(i) / 2);
    to[i] = map(pair[0]);
    if (i + 1 < count) to[i + 1] = map(pair[1]);
  }
}

Status RunRandomNormal(KernelCall& call) {
  RETURN_IF_ERROR(RequireRandom(call));
  const double mean = call.attributes->Float("mean", 0), scale = call.attributes->Float("scale", 1);
  const TensorRef& out = call.outputs[0];
  DispatchDType(out.dtype, [&]<class T>() {
    if constexpr (kIsFloat<T>) {
      Fill<T>(
          out, [&](uint64_t block) { return Normals(*call.random, block); },
          [&](double normal) { return Convert<T>(mean + scale * normal); });
    }
  });
  return {};
}

// The next value of a float type above `value` (kUp), or below it; not of the infinity on that side.
template <bool kUp, class T>
T Next(T value) {
  if constexpr (kIsHalf<T>) {
    const float wide = Load(value);
    if (wide == 0) {
      value.bits = kUp ? 0x0001 : 0x8001;  // the smallest denormals
    } else if ((wide > 0) == kUp) {
      ++value.bits;
    } else {
      --value.bits;
    }
    return value;
  } else {
    return std::nextafter(value, (kUp ? 1 : -1) * std::numeric_limits<T>::infinity());
  }
}

// Numbers that round to `high` or beyond become the largest one below, since logarithms of 1 - x depend on it; those
// that round to less than `low` the smallest one that is not.
template <class T>
void FillUniform(const TensorRef& out, const RandomDraw& random, double low, double high) {
  T smallest = Convert<T>(low), largest = Convert<T>(high);
  if (Convert<double>(smallest) < low) smallest = Next<true>(smallest);
  if (low < high && Convert<double>(largest) >= high) largest = Next<false>(largest);
  if (Load(largest) < Load(smallest)) smallest = largest = Convert<T>(low);  // nothing of the type lies between the two
  const double half = high / 2 - low / 2;                                    // high - low may be beyond f64
  Fill<T>(
      out, [&](uint64_t block) { return random.Uniforms(block); },
      [&](double part) {
        const T drawn = Convert<T>(low + half * part + half * part);
        if (Load(drawn) < Load(smallest)) return smallest;
        return Load(drawn) < Load(largest) ? drawn : largest;
      });
}

Status RunRandomUniform(KernelCall& call) {
  RETURN_IF_ERROR(RequireRandom(call));
  const double low = call.attributes->Float("low", 0), high = call.attributes->Float("high", 1);
  DispatchDType(call.outputs[0].dtype, [&]<class T>() {
    if constexpr (kIsFloat<T>) FillUniform<T>(call.outputs[0], *call.random, low, high);
  });
  return {};
}

// Sums of the weights e^(x - largest x) of a row's classes up to and with each of them.
template <class T>
Status SumWeights(const T* row, int64_t classes, int64_t index, double* sums) {
  double largest = -std::numeric_limits<double>::infinity();
  for (int64_t c = 0; c < classes; ++c) {
    const double value = Convert<double>(row[c]);
    if (std::isnan(value) || value == std::numeric_limits<double>::infinity()) {
      return Fail(ErrorCode::kInvalidArgument, "row " + std::to_string(index) + " of Multinomial has " +
                                                   std::to_string(value) + " for class " + std::to_string(c) +
                                                   "; a log-probability is a number or -inf");
    }
    largest = std::max(largest, value);
  }
  if (std::isinf(largest)) {
    return Fail(ErrorCode::kInvalidArgument,
                "row " + std::to_string(index) + " of Multinomial has no class to draw: " +
                    (classes == 0 ? "it is empty" : "all of its log-probabilities are -inf"));
  }
  double sum = 0;
  for (int64_t c = 0; c < classes; ++c) sums[c] = sum += std::exp(Convert<double>(row[c]) - largest);
  return {};
}

template <class T>
Status RunMultinomial(KernelCall& call) {
  RETURN_IF_ERROR(RequireRandom(call));
  const TensorRef& in = call.inputs[0];
  const TensorRef& out = call.outputs[0];
  const int64_t classes = in.dims[1], samples = out.dims[1];
  if (out.dtype == DType::kI32 && classes > std::numeric_limits<int32_t>::max()) {
    return Fail(ErrorCode::kLimitExceeded, "Multinomial draws from " + std::to_string(classes) +
                                               " classes, which i32 cannot number; `dtype` i64 can");
  }
  ASSIGN_OR_RETURN(double* sums, Scratch<double>(call, classes));
  for (int64_t row = 0; row < in.dims[0]; ++row) {
    RETURN_IF_ERROR(SumWeights(in.as<T>() + row * classes, classes, row, sums));
    for (int64_t s = 0; s < samples; ++s) {
      const int64_t i = row * samples + s;
      const double part = call.random->Uniforms(static_cast<uint64_t>(i) / 2)[static_cast<size_t>(i % 2)];
      // The first sum beyond what is drawn: never that of a class without weight, and below the last one.
      const int64_t drawn = std::upper_bound(sums, sums + classes, part * sums[classes - 1]) - sums;
      if (out.dtype == DType::kI32) {
        out.as<int32_t>()[i] = static_cast<int32_t>(drawn);
      } else {
        out.as<int64_t>()[i] = drawn;
      }
    }
  }
  return {};
}

// Their first input is the shape.
ReferenceKernel OfShape(DType dtype, KernelFunction run) {
  return dtype == DType::kI64 || dtype == DType::kI32 ? ReferenceKernel{run, true} : ReferenceKernel{};
}

}  // namespace

ReferenceKernel RandomNormal(DType dtype) {
  return OfShape(dtype, &RunRandomNormal);
}
ReferenceKernel RandomUniform(DType dtype) {
  return OfShape(dtype, &RunRandomUniform);
}
ReferenceKernel Multinomial(DType dtype) {
  return {DispatchDType(dtype,
                        []<class T>() -> KernelFunction {
                          if constexpr (kIsFloat<T>) return &RunMultinomial<T>;
                          return nullptr;
                        }),
          false};
}

}  // namespace kiln::kernels
