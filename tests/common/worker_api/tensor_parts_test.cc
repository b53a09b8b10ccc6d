// Tensors in a worker's messages: what a client may send, and what is refused.
#include <gtest/gtest.h>

#include "common/worker_api/worker_api.h"
#include "schemas/worker_generated.h"

namespace kiln {
namespace {

Bytes FinishedBytes(const flatbuffers::FlatBufferBuilder& builder) {
  return {builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize()};
}

// A run request whose inputs lie in the message parts of these numbers, all u8[4].
Message RequestOf(const std::vector<int32_t>& parts, const std::vector<Bytes>& blobs) {
  flatbuffers::FlatBufferBuilder builder;
  std::vector<flatbuffers::Offset<fbs::TensorPart>> inputs;
  for (const int32_t part : parts)
    inputs.push_back(fbs::CreateTensorPart(builder, builder.CreateString("x"), static_cast<uint8_t>(DType::kU8),
                                           builder.CreateVector<int64_t>({4}), part));
  const auto list = builder.CreateVector(inputs);
  builder.Finish(fbs::CreateRunRequest(builder, builder.CreateString("model"), list));
  return {FinishedBytes(builder), blobs};
}

TEST(TensorParts, AnyByteOfABoolIsFalseOrTrue) {
  RunRequest request{"model", {{"flags", Tensor::Allocate(DType::kBool, Dims{5})}}, 0};
  const uint8_t sent[] = {0, 1, 2, 128, 255};
  std::copy(std::begin(sent), std::end(sent), request.inputs[0].tensor.ref.as<uint8_t>());
  RunRequest received;
  ASSERT_TRUE(Decode(Encode(request), received));
  ASSERT_EQ(received.inputs.size(), 1u);
  const auto* bytes = received.inputs[0].tensor.ref.as<const uint8_t>();
  EXPECT_EQ(std::vector<uint8_t>(bytes, bytes + 5), (std::vector<uint8_t>{0, 1, 1, 1, 1}));
}

TEST(TensorParts, EachTensorHasAPartOfItsOwn) {
  const std::vector<Bytes> blobs = {{1, 2, 3, 4}, {5, 6, 7, 8}};
  RunRequest received;
  ASSERT_TRUE(Decode(RequestOf({1, 0}, blobs), received));
  EXPECT_EQ(received.inputs[0].tensor.ref.as<uint8_t>()[0], 5);
  for (const std::vector<int32_t>& parts : {std::vector{0, 0}, {0, 1, 0}, {2}, {-1}}) {
    const Status status = Decode(RequestOf(parts, blobs), received);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kMalformed) << status.error().message;
  }
}

}  // namespace
}  // namespace kiln
