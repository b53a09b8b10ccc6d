// Memory that is not there when a message comes: costs that message, never the loop.
#include "tests/common/messaging/failing_new.h"
#include "tests/common/messaging/fixture.h"

namespace kiln {
namespace {

class OutOfMemoryTest : public MessagingTest {
 protected:
  static void Mark(Loop& loop, bool fail) {
    loop.RunSync([fail] { FailLargeAllocations(fail); });
  }
};

TEST_F(OutOfMemoryTest, ATaskThatThrowsEndsAlone) {
  const int before = FailedAllocations();
  Mark(*server_loop_, true);
  server_loop_->Post([] { Bytes bytes(kFailingBytes); });
  server_loop_->Post([] { throw std::runtime_error("a defect"); });
  std::atomic<bool> ran{false};
  server_loop_->Post([&] { ran = true; });
  EXPECT_TRUE(Eventually([&] { return ran.load(); }));
  EXPECT_GT(FailedAllocations(), before);
  EXPECT_THROW(server_loop_->RunSync([] { Bytes bytes(kFailingBytes); }), std::bad_alloc);
}

TEST_F(OutOfMemoryTest, AServerWithoutMemoryForAMessageAnswersTheNext) {
  const auto server = StartServer(Ipc("s"));
  const auto client = StartClient(Ipc("s"));
  ASSERT_TRUE(client->CallSync(kEcho, {ToBytes("hello"), {}}, 10'000).has_value());
  const int before = FailedAllocations();
  Mark(*server_loop_, true);
  for (const bool as_blob : {false, true}) {
    Message large;
    (as_blob ? large.blobs.emplace_back() : large.payload) = Bytes(2 * kFailingBytes);
    EXPECT_FALSE(client->CallSync(kEcho, std::move(large), 300).has_value());
    EXPECT_TRUE(client->CallSync(kEcho, {ToBytes("still here"), {}}, 10'000).has_value());
  }
  EXPECT_GE(FailedAllocations(), before + 2);
}

TEST_F(OutOfMemoryTest, AClientWithoutMemoryForAReplyGoesOn) {
  const auto server = StartServer(Ipc("s"));
  const auto client = StartClient(Ipc("s"));
  Mark(*client_loop_, true);
  const int before = FailedAllocations();
  // The answer alone is large.
  server_loop_->RunSync([] {});
  Message large;
  large.blobs.emplace_back(2 * kFailingBytes);
  EXPECT_FALSE(client->CallSync(kEcho, std::move(large), 300).has_value());
  EXPECT_GT(FailedAllocations(), before);
  EXPECT_TRUE(client->CallSync(kEcho, {ToBytes("still here"), {}}, 10'000).has_value());
}

}  // namespace
}  // namespace kiln
