#include "common/messaging/hints.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/common/messaging/fixture.h"

namespace kiln {
namespace {

TEST_F(MessagingTest, HintsReachEverySubscriber) {
  auto publisher = HintPublisher::Listen(*server_loop_, Ipc("hints"), {.insecure = true}).value();
  std::atomic<int> first{0}, second{0};
  auto one = HintSubscriber::Connect(*client_loop_, Ipc("hints"), {.insecure = true}, [&](Bytes hint) {
               first += ToText(hint) == "7";
             }).value();
  auto two = HintSubscriber::Connect(*client_loop_, Ipc("hints"), {.insecure = true}, [&](Bytes hint) {
               second += ToText(hint) == "7";
             }).value();
  EXPECT_TRUE(Eventually([&] {
    publisher->Publish(ToBytes("7"));
    return first.load() > 0 && second.load() > 0;
  }));
}

TEST_F(MessagingTest, HintsOverOpenTcpNeedKeys) {
  EXPECT_EQ(HintPublisher::Listen(*server_loop_, "tcp://*:*", {.insecure = true}).error().code,
            ErrorCode::kPermissionDenied);
}

}  // namespace
}  // namespace kiln
