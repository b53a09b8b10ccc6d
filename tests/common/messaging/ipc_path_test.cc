// What lies at the path of an ipc endpoint when a listener comes.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>

#include "common/messaging/hints.h"
#include "tests/common/messaging/fixture.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

class IpcPathTest : public MessagingTest {
 protected:
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  Status Listen(const std::string& name) {
    RETURN_IF_ERROR(RpcServer::Listen(*server_loop_, {.endpoints = {Ipc(name)}, .security = {.insecure = true}}));
    return {};
  }
  // A socket file whose listener has ended without removing it.
  void MakeStaleSocket(const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    Path(name).copy(address.sun_path, sizeof address.sun_path - 1);
    const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ::close(listener);
    ASSERT_TRUE(fs::is_socket(Path(name)));
  }
};

TEST_F(IpcPathTest, WhateverIsNoSocketIsRefusedAndStaysAsItIs) {
  std::ofstream(Path("plain")) << "somebody's data";
  fs::create_directory(Path("folder"));
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  fs::create_symlink(Path("plain"), Path("link"));
  fs::create_symlink(Path("nowhere"), Path("dangling"));
  MakeStaleSocket("stale");
  fs::create_symlink(Path("stale"), Path("link_to_socket"));
  for (const char* name : {"plain", "folder", "pipe", "link", "dangling", "link_to_socket"}) {
    const auto before = fs::symlink_status(Path(name)).type();
    const Status listening = Listen(name);
    ASSERT_FALSE(listening.has_value()) << name;
    EXPECT_EQ(listening.error().code, ErrorCode::kAlreadyExists) << name;
    EXPECT_NE(listening.error().message.find(Path(name) + " is a"), std::string::npos) << listening.error().message;
    EXPECT_NE(listening.error().message.find("choose another path"), std::string::npos) << listening.error().message;
    EXPECT_EQ(fs::symlink_status(Path(name)).type(), before) << name;
  }
  EXPECT_EQ(fs::file_size(Path("plain")), std::string_view("somebody's data").size());
  // Of hints as well.
  EXPECT_EQ(HintPublisher::Listen(*server_loop_, Ipc("plain"), {.insecure = true}).error().code,
            ErrorCode::kAlreadyExists);
}

TEST_F(IpcPathTest, AStaleSocketIsReplacedAndALiveOneRefused) {
  MakeStaleSocket("socket");
  auto server = RpcServer::Listen(*server_loop_, {.endpoints = {Ipc("socket")}, .security = {.insecure = true}});
  ASSERT_TRUE(server.has_value()) << ToString(server.error());
  EXPECT_EQ(Listen("socket").error().code, ErrorCode::kBusy);
  server->reset();
  EXPECT_FALSE(fs::exists(Path("socket")));
}

TEST_F(IpcPathTest, TheEndOfAListenerRemovesOnlyASocket) {
  auto server = RpcServer::Listen(*server_loop_, {.endpoints = {Ipc("socket")}, .security = {.insecure = true}});
  ASSERT_TRUE(server.has_value()) << ToString(server.error());
  fs::remove(Path("socket"));
  std::ofstream(Path("socket")) << "somebody's data";
  server->reset();
  EXPECT_TRUE(fs::is_regular_file(Path("socket")));
}

TEST_F(IpcPathTest, PathsThatFitNoSocketAreInvalid) {
  const size_t longest = sizeof(sockaddr_un{}.sun_path) - 1 - directory_.size() - 1;
  EXPECT_TRUE(Listen(std::string(longest, 'a')));
  const std::string name(longest + 1, 'a');
  EXPECT_EQ(Listen(name).error().code, ErrorCode::kInvalidArgument);
  const auto client = RpcClient::Connect(*client_loop_, {.endpoint = Ipc(name), .security = {.insecure = true}});
  ASSERT_FALSE(client.has_value());
  EXPECT_EQ(client.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace kiln
