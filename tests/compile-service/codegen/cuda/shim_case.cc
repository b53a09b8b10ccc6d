#include "tests/compile-service/codegen/cuda/shim_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/support/guarded_buffer.h"

namespace kiln::testing {
namespace {

// In front of a buffer lie bytes that are no number, and that nobody may change; behind it a page that nobody may
// touch.
constexpr size_t kFrontBytes = 4096;
constexpr uint8_t kMark = 0xff;

// The memory of a case.
struct Memory {
  std::vector<GuardedBuffer> buffers;
  std::vector<void*> pointers;
  explicit Memory(const ShimCase& test) {
    for (const PointerMemory& memory : test.memory) {
      GuardedBuffer& buffer = buffers.emplace_back(kFrontBytes + memory.bytes.size());
      std::memset(buffer.data(), kMark, kFrontBytes);
      uint8_t* const first = buffer.as<uint8_t>() + kFrontBytes;
      if (!memory.bytes.empty()) std::memcpy(first, memory.bytes.data(), memory.bytes.size());
      pointers.push_back(first + memory.origin * DTypeBytes(memory.storage));
    }
  }
  const uint8_t* elements(size_t pointer) const { return buffers[pointer].as<uint8_t>() + kFrontBytes; }
  bool HasItsMarks(size_t pointer) const {
    const uint8_t* front = buffers[pointer].as<uint8_t>();
    return std::all_of(front, front + kFrontBytes, [](uint8_t byte) { return byte == kMark; });
  }
};

template <class T>
double Number(T value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

std::optional<std::string> FirstDifference(const ShimCase& test, const Memory& got, const Memory& expected) {
  for (size_t i = 0; i < test.memory.size(); ++i) {
    const DType storage = test.memory[i].storage;
    std::optional<std::string> wrong;
    if (!got.HasItsMarks(i)) return "pointer " + std::to_string(i) + ": stores in front of it";
    DispatchDType(storage, [&]<class T>() {
      for (size_t j = 0; j < test.memory[i].bytes.size() / sizeof(T) && !wrong; ++j) {
        T a, b;
        std::memcpy(&a, got.elements(i) + j * sizeof(T), sizeof(T));
        std::memcpy(&b, expected.elements(i) + j * sizeof(T), sizeof(T));
        if (std::memcmp(&a, &b, sizeof(T)) == 0) continue;
        const double x = Number(a), y = Number(b);
        if (std::isnan(x) && std::isnan(y)) continue;
        if (std::abs(x - y) <= test.tolerance(storage) * (1 + std::abs(y))) continue;
        wrong = "pointer " + std::to_string(i) + " element " + std::to_string(j) + " is " + std::to_string(x) +
                ", expected " + std::to_string(y);
      }
    });
    if (wrong) return wrong;
  }
  return std::nullopt;
}

bool SameBits(const Memory& a, const Memory& b) {
  for (size_t i = 0; i < a.buffers.size(); ++i)
    if (std::memcmp(a.buffers[i].data(), b.buffers[i].data(), a.buffers[i].size()) != 0) return false;
  return true;
}

}  // namespace

ShimCase ShimCaseOf(const SpecCase& test) {
  ShimCase result{test.spec, test.dims, {}, {}, test.name};
  for (const SpecBuffer& source : test.buffers) {
    PointerMemory memory;
    memory.storage = source.dtype;
    memory.bytes.resize(source.values.size() * static_cast<size_t>(DTypeBytes(source.dtype)));
    DispatchDType(source.dtype, [&]<class T>() {
      for (size_t i = 0; i < source.values.size(); ++i) {
        const T value = static_cast<T>(source.values[i]);
        std::memcpy(memory.bytes.data() + i * sizeof(T), &value, sizeof(T));
      }
    });
    result.memory.push_back(std::move(memory));
  }
  result.tolerance = [tolerance = test.tolerance](DType storage) {
    if (storage == DType::kF16) return tolerance + 1e-3;
    if (storage == DType::kBF16) return tolerance + 8e-3;
    return IsFloat(storage) ? tolerance : 0.0;
  };
  return result;
}

ShimCase ShimCaseOf(RandomKernel kernel, std::string name) {
  const auto tolerance = [](DType storage) {
    if (storage == DType::kF16) return 4e-3;
    if (storage == DType::kBF16) return 3e-2;
    return IsFloat(storage) ? 1e-4 : 0.0;
  };
  return {std::move(kernel.spec), std::move(kernel.dims), std::move(kernel.memory), tolerance, std::move(name)};
}

std::optional<std::string> WrongInShim(const ShimKernels& kernels, size_t kernel, const ShimCase& test,
                                       std::mt19937_64& random) {
  const int64_t range = ir::RangeOf(test.spec, test.dims, kShimLanes);
  Memory expected(test);
  const Status evaluated = ir::EvaluateSpec(test.spec, expected.pointers, test.dims, kShimLanes, 0, range);
  if (!evaluated.has_value()) return ToString(evaluated.error());
  std::optional<Memory> first;
  for (const ShimSchedule schedule : kShimSchedules) {
    Memory got(test);
    // Another cut for every schedule; the first one has none.
    const bool whole = schedule == ShimSchedule::kForward;
    const int64_t a = whole ? 0 : Pick(random, 0, range), b = whole ? 0 : Pick(random, a, range);
    for (const auto& [begin, end] : {std::pair{b, range}, {int64_t{0}, a}, {a, b}})
      if (auto fault = kernels.Run(kernel, got.pointers, test.dims, begin, end, schedule, random())) return fault;
    if (auto wrong = FirstDifference(test, got, expected)) return wrong;
    if (first && !SameBits(*first, got)) return "the bits depend on the schedule, or on how the range is cut";
    if (!first) first = std::move(got);
  }
  // A part alone: its own items and no others.
  const int64_t begin = Pick(random, 0, range), end = Pick(random, begin, range);
  Memory part(test), part_expected(test);
  const Status made = ir::EvaluateSpec(test.spec, part_expected.pointers, test.dims, kShimLanes, begin, end);
  if (!made.has_value()) return ToString(made.error());
  if (auto fault = kernels.Run(kernel, part.pointers, test.dims, begin, end, ShimSchedule::kRandom, random()))
    return fault;
  return FirstDifference(test, part, part_expected);
}

void ExpectShimAgrees(const std::vector<ShimCase>& cases, std::mt19937_64& random) {
  ShimKernels kernels;
  for (const ShimCase& test : cases) {
    auto source = codegen::cuda::EmitCuda(test.spec);
    ASSERT_TRUE(source.has_value()) << ToString(source.error()) << "\n" << ir::PrintSpec(test.spec);
    kernels.Add(*std::move(source));
  }
  const auto failure = kernels.Build();
  ASSERT_FALSE(failure.has_value()) << *failure;
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto wrong = WrongInShim(kernels, i, cases[i], random);
    ASSERT_FALSE(wrong.has_value()) << cases[i].name << ", kernel " << i << ": " << *wrong << "\n"
                                    << ir::PrintSpec(cases[i].spec) << kernels.source(i).text;
  }
}

}  // namespace kiln::testing
