// A kernel spec with data, and the check that generated code agrees with the naive evaluator on it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "common/artifact/target.h"
#include "compile-service/ir/kernel_spec.h"

namespace kiln::testing {

struct SpecBuffer {
  DType dtype = DType::kF32;
  std::vector<float> values;  // converted to dtype
};

struct SpecCase {
  ir::KernelSpec spec;
  std::vector<SpecBuffer> buffers;  // one per pointer
  std::vector<int64_t> dims;
  double tolerance = 1e-5;  // of 1 + |expected|
  std::string name;         // for messages
};

// Values in [-1, 1].
std::vector<float> RandomValues(std::mt19937_64& random, int64_t count);

// Uniform in [low, high].
int64_t Pick(std::mt19937_64& random, int64_t low, int64_t high);

// The seed of this run, printed; KILN_TEST_SEED in the environment repeats one.
uint64_t Seed();

ir::ScalarNode Node(ir::ScalarOp op, int32_t a = -1, int32_t b = -1, int32_t index = 0, double number = 0);

// Builds a spec and its data together, so that any size or stride may become a constant or an argument.
class SpecBuilder {
 public:
  SpecBuilder(std::mt19937_64& random, Target target) : random_(random), lanes_(InfoOf(target).f32_lanes()) {}

  ir::SpecInt Size(int64_t value);  // a constant or an argument, by chance
  int32_t Buffer(DType dtype, std::vector<float> values);
  int32_t RandomBuffer(int64_t count, DType dtype = DType::kF32) { return Buffer(dtype, RandomValues(random_, count)); }

  // Plain numbers of a geometry.
  struct Image {
    int64_t in_height, in_width, out_height, out_width;
  };
  // A small random geometry over images of `channels` contiguous channels: strides 1..3, dilations 1..2, padding, 1-D
  // at times.
  ir::WindowGeometry Geometry(int64_t channels, Image* image);

  SpecCase Finish(decltype(ir::KernelSpec::kernel) kernel, std::string name);

  bool Coin() { return Pick(random_, 0, 1) == 1; }
  std::mt19937_64& random() { return random_; }
  int lanes() const { return lanes_; }

 private:
  void Side(bool flat, int32_t* kernel, int32_t* stride, int32_t* dilation, int32_t* pad, int64_t* in, int64_t* out);

  std::mt19937_64& random_;
  int lanes_;
  SpecCase test_;
};

// Compiles for `target` (which the host must run) and runs the range in a few parts, each buffer ending at a guard
// page; every element of every buffer must then be what the evaluator leaves there.
void ExpectAgreesWithEvaluator(const SpecCase& test, Target target, std::mt19937_64& random);

// The same under an emulator of exactly the target (tests/support/emulated_kernel.h), which must be there.
void ExpectEmulatedAgreesWithEvaluator(const SpecCase& test, Target target, std::mt19937_64& random);

std::string TargetTestName(Target target);  // as a test name may contain

using MakeCase = SpecCase (*)(std::mt19937_64& random, Target target);

// Code for a target that this host runs.
class SpecTest : public ::testing::TestWithParam<Target> {
 protected:
  void ExpectAgreement(int cases, MakeCase make);
};

// Code for a target that an emulator runs; skipped where there is none.
class EmulatedSpecTest : public ::testing::TestWithParam<Target> {
 protected:
  void SetUp() override;
  void ExpectAgreement(int cases, MakeCase make);
};

}  // namespace kiln::testing
