// CompileService on the wire, with a real store and real children.
#pragma once

#include <gtest/gtest.h>

#include <future>

#include "common/messaging/rpc_client.h"
#include "compile-service/service/compile_service.h"
#include "tests/compile-service/jobs/workshop_fixture.h"

namespace kiln {

class CompileServiceFixture : public WorkshopTest {
 protected:
  void Serve(int job_threads) { Serve(Workshop(), job_threads); }
  void Serve(CompileWorkshop workshop, int job_threads) {
    CompileServiceOptions options;
    options.job_threads = job_threads;
    Serve(std::move(workshop), options);
  }
  void Serve(const CompileServiceOptions& options) { Serve(Workshop(), options); }
  void Serve(CompileWorkshop workshop, const CompileServiceOptions& options) {
    compile_service_ = std::make_unique<CompileService>(std::move(workshop), options);
    server_loop_ = Loop::Start("server").value();
    const std::string endpoint = "ipc://" + directory_ + "/compile";
    server_ = RpcServer::Listen(*server_loop_,
                                {.endpoints = {endpoint}, .security = {.insecure = true}, .pending_max = kSlots})
                  .value();
    compile_service_->RegisterOn(*server_);
    server_->Serve();
    for (auto* client : {&first_, &second_})
      *client = RpcClient::Connect(*loop_, {.endpoint = endpoint, .security = {.insecure = true}}).value();
  }
  void TearDown() override {
    first_.reset();
    second_.reset();
    server_.reset();
    compile_service_.reset();
    server_loop_.reset();
    WorkshopTest::TearDown();
  }
  static std::future<Result<CompileReply>> Ask(RpcClient& client, const CompileRequest& request,
                                               int64_t deadline_ms = kWaitMs) {
    auto answer = std::make_shared<std::promise<Result<CompileReply>>>();
    RequestCompile(client, request, deadline_ms, [answer](Result<CompileReply> reply) { answer->set_value(reply); });
    return answer->get_future();
  }

  // Different requests for one plan.
  static CompileRequest Seen(int64_t width) {
    CompileRequest request = Request();
    request.hints = {width};
    return request;
  }
  Result<RpcReply> Call(CompileMethod method) { return second_->CallSync(static_cast<uint16_t>(method), {}, kWaitMs); }

  static constexpr size_t kSlots = 64;
  std::unique_ptr<Loop> server_loop_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<CompileService> compile_service_;
  std::unique_ptr<RpcClient> first_, second_;
};

}  // namespace kiln
