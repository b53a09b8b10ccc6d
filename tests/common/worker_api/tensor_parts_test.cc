// Tensors in messages of peers that lie about them.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/limits.h"
#include "common/worker_api/worker_api.h"
#include "schemas/worker_generated.h"

namespace kiln {
namespace {

using ::testing::HasSubstr;

struct Part {
  std::vector<int64_t> dims;
  int32_t part = -1;
  std::string shared;
  uint64_t offset = 0;
};

// A run request with these f32 tensors and `blobs`.
Message RequestOf(const std::vector<Part>& parts, std::vector<Bytes> blobs) {
  flatbuffers::FlatBufferBuilder builder;
  std::vector<flatbuffers::Offset<fbs::TensorPart>> list;
  for (const Part& part : parts)
    list.push_back(fbs::CreateTensorPart(builder, builder.CreateString("x"), static_cast<uint8_t>(DType::kF32),
                                         builder.CreateVector(part.dims), part.part,
                                         part.shared.empty() ? 0 : builder.CreateString(part.shared), part.offset));
  builder.Finish(fbs::CreateRunRequest(builder, builder.CreateString("m"), builder.CreateVector(list)));
  return {{builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize()}, std::move(blobs)};
}

// The decoder's error, or "".
std::string ErrorFor(const std::vector<Part>& parts, std::vector<Bytes> blobs) {
  RunRequest request;
  const Status status = Decode(RequestOf(parts, std::move(blobs)), request);
  return status.has_value() ? "" : ToString(status.error());
}

TEST(TensorParts, EveryPartBelongsToOneTensor) {
  EXPECT_EQ(ErrorFor({{{2}, 0, "", 0}, {{1}, 1, "", 0}}, {Bytes(8), Bytes(4)}), "");
  EXPECT_THAT(ErrorFor({{{2}, 0, "", 0}, {{2}, 0, "", 0}}, {Bytes(8)}), HasSubstr("which another tensor has"));
  EXPECT_THAT(ErrorFor({{{2}, 1, "", 0}}, {Bytes(8)}), HasSubstr("refers to message part 1 of 1"));
  EXPECT_THAT(ErrorFor({{{2}, -1, "", 0}}, {Bytes(8)}), HasSubstr("refers to message part -1"));
  EXPECT_THAT(ErrorFor({{{3}, 0, "", 0}}, {Bytes(8)}), HasSubstr("needs 12 bytes"));
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

TEST(TensorParts, CountsAndSizesAreBoundedBeforeAnythingIsAllocated) {
  EXPECT_THAT(ErrorFor(std::vector<Part>(limits::kMessagePartsMax + 1, Part{{0}, 0, "", 0}), {Bytes()}),
              HasSubstr("1025 tensors; the limit is 1024"));
  EXPECT_THAT(ErrorFor({{std::vector<int64_t>(9, 1), 0, "", 0}}, {Bytes(4)}), HasSubstr("rank 9"));
  EXPECT_THAT(ErrorFor({{{int64_t{1} << 62, 4}, 0, "", 0}}, {Bytes(4)}), HasSubstr("tensor \"x\""));
  const std::string name = "/kiln-1-" + std::string(32, '0');
  EXPECT_THAT(ErrorFor({{{int64_t{1} << 32}, -1, name, 0}, {{int64_t{1} << 33}, -1, name, 0}}, {}),
              HasSubstr("shared memory"));
}

// A sparse object costs its maker nothing, and whoever reads it all that it says.
class SparseObject {
 public:
  explicit SparseObject(int64_t bytes) : file_(shm_open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600)) {
    EXPECT_GE(file_, 0);
    EXPECT_EQ(ftruncate(file_, bytes), 0);
  }
  ~SparseObject() {
    close(file_);
    shm_unlink(name_.c_str());
  }
  const std::string& name() const { return name_; }

 private:
  const std::string name_ = "/kiln-" + std::to_string(getpid()) + "-" + std::string(32, 'd');
  int file_;
};

TEST(TensorParts, TensorsAreBookedBeforeTheyAreMade) {
  const SparseObject object(int64_t{1} << 36);
  const auto decode = [&](const std::vector<Part>& parts, std::vector<Bytes> blobs, TensorRoom& room) {
    RunRequest request;
    return Decode(RequestOf(parts, std::move(blobs)), request, &room);
  };
  const Part large{{int64_t{1} << 26}, -1, object.name(), 0};  // 256 MiB
  MemoryBudget budget(int64_t{64} << 20);
  TensorRoom room{&budget, INT64_MAX, {}};
  Status decoded = decode({large}, {}, room);
  ASSERT_FALSE(decoded.has_value());
  EXPECT_EQ(decoded.error().code, ErrorCode::kLimitExceeded);
  EXPECT_THAT(decoded.error().message, HasSubstr("--memory-bytes"));
  room.shared_bytes_max = 1000;
  decoded = decode({{{251}, -1, object.name(), 0}}, {}, room);
  ASSERT_FALSE(decoded.has_value());
  EXPECT_EQ(decoded.error().code, ErrorCode::kLimitExceeded);
  EXPECT_THAT(decoded.error().message, HasSubstr("1004 bytes; the limit is 1000"));

  const std::vector<Part> small = {{{250}, -1, object.name(), 0}, {{2}, 0, "", 0}};
  ASSERT_TRUE(decode(small, {Bytes(8)}, room).has_value());
  EXPECT_EQ(budget.used(MemoryUse::kRequests), 1008);
  auto others = MemoryCharge::Take(&budget, MemoryUse::kRequests, (int64_t{32} << 20) - 1500);
  ASSERT_TRUE(others.has_value());
  TensorRoom second{&budget, INT64_MAX, {}};
  decoded = decode(small, {Bytes(8)}, second);
  ASSERT_FALSE(decoded.has_value());
  EXPECT_EQ(decoded.error().code, ErrorCode::kBusy);
  EXPECT_FALSE(budget.IsTight()) << "no plan has to leave for a request that can wait";
  room = {};
  others = MemoryCharge();
  EXPECT_EQ(budget.used(), 0);
  EXPECT_TRUE(decode(small, {Bytes(8)}, second).has_value());
}

TEST(TensorParts, OnlySharedMemoryThatAClientMadeForTheMessageIsRead) {
  const std::string named = "/someones-" + std::to_string(getpid());
  const int file = shm_open(named.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  ASSERT_GE(file, 0);
  ASSERT_EQ(ftruncate(file, 64), 0);
  for (const std::string& name :
       {named, std::string("/kiln-1-abc"), std::string("/kiln-x-") + std::string(32, 'a'),
        std::string("/kiln-1-") + std::string(32, 'g'), std::string("/kiln-1-") + std::string(31, 'a') + "/",
        std::string("kiln-1-") + std::string(32, 'a')})
    EXPECT_THAT(ErrorFor({{{4}, -1, name, 0}}, {}), HasSubstr("send the tensor as a message part")) << name;
  close(file);
  shm_unlink(named.c_str());
  EXPECT_THAT(ErrorFor({{{4}, -1, "/kiln-1-" + std::string(32, 'a'), 0}}, {}), HasSubstr("cannot open shared memory"));
}

TEST(TensorParts, SharedMemoryThatIsShorterThanItsTensorIsAnError) {
  const std::string name = "/kiln-" + std::to_string(getpid()) + "-" + std::string(32, 'b');
  const int file = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  ASSERT_GE(file, 0);
  ASSERT_EQ(ftruncate(file, 16), 0);
  EXPECT_EQ(ErrorFor({{{4}, -1, name, 0}}, {}), "");
  EXPECT_THAT(ErrorFor({{{5}, -1, name, 0}}, {}), HasSubstr("has no 20 bytes at offset 0"));
  EXPECT_THAT(ErrorFor({{{4}, -1, name, 8}}, {}), HasSubstr("has no 16 bytes at offset 8"));
  EXPECT_THAT(ErrorFor({{{4}, -1, name, ~uint64_t{0}}}, {}), HasSubstr("has no 16 bytes"));
  close(file);
  shm_unlink(name.c_str());
}

TEST(LoadReply, ARankBeyondTheLimitIsAnError) {
  LoadReply reply;
  reply.inputs = {{"x", DType::kF32, true, std::vector<int64_t>(9, 1), ""}};
  LoadReply back;
  const Status status = Decode(Encode(reply), back);
  ASSERT_FALSE(status.has_value());
  EXPECT_THAT(ToString(status.error()), HasSubstr("rank 9"));
}

}  // namespace
}  // namespace kiln
