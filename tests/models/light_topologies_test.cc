// The backend tests' nine real topologies with constant weights (light/), on the suite's input: a ramp from 0 to 1.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/models/shared_model.h"
#include "tests/support/shared_material.h"
#include "vm-worker/onnx/tensor_proto.h"

namespace kiln::testing {
namespace {

namespace fs = std::filesystem;

Tensor Ramp(const Dims& dims) {
  Tensor tensor = Tensor::Allocate(DType::kF32, dims);
  const int64_t count = tensor.ref.elements();
  for (int64_t i = 0; i < count; ++i) tensor.ref.as<float>()[i] = static_cast<float>(double(i) / double(count));
  return tensor;
}

class LightTopology : public SharedModelTest {
 protected:
  static void SetUpTestSuite() {
    SharedModelTest::SetUpTestSuite();
    const fs::path archive = SharedDirectory() / "conformance" / "onnx-backend-tests.tgz";
    if (!fs::exists(archive)) return;
    fs::create_directories(KILN_LIGHT_DIR);
    const std::string command = "tar -xzf '" + archive.string() + "' -C '" + KILN_LIGHT_DIR + "' ./light";
    ASSERT_EQ(std::system(command.c_str()), 0);
  }
};

TEST_P(LightTopology, MatchesTheStoredOutput) {
  KILN_NEEDS_SHARED(SharedDirectory() / "conformance");
  const fs::path folder = fs::path(KILN_LIGHT_DIR) / "light";
  const auto model = SharedModel::Load(folder / (std::string("light_") + Name() + ".onnx"), Mode());
  ASSERT_TRUE(model.has_value()) << ToString(model.error());
  const auto wanted = onnx::ReadTensorFile(folder / (std::string("light_") + Name() + "_output_0.pb"));
  ASSERT_TRUE(wanted.has_value()) << ToString(wanted.error());
  ASSERT_EQ((*model)->inputs().size(), 1u);
  const auto outputs = (*model)->Run({{(*model)->inputs()[0].name, Ramp({1, 3, 224, 224})}});
  ASSERT_TRUE(outputs.has_value()) << ToString(outputs.error());
  const Tensor& got = outputs->at((*model)->outputs()[0].name);
  const TensorRef& want = wanted->tensor.ref;
  ASSERT_EQ(got.dims(), want.dims);
  for (int64_t i = 0; i < want.elements(); ++i) {
    const float w = want.as<float>()[i];
    ASSERT_NEAR(got.ref.as<float>()[i], w, 1e-3 * std::abs(w) + 1e-5) << "element " << i;
  }
}

const auto kNames = ::testing::Values("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50",
                                      "shufflenet", "squeezenet", "vgg19", "zfnet512");
INSTANTIATE_TEST_SUITE_P(Shared, LightTopology, ::testing::Combine(kNames, ::testing::Bool()), TestName);

}  // namespace
}  // namespace kiln::testing
