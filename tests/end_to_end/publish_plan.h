// Puts a plan into a fleet's store, signed as its compile service signs.
#pragma once

#include <gtest/gtest.h>

#include "cli/fleet/embedded_fleet.h"
#include "common/artifact/plan.h"
#include "common/artifact/record.h"
#include "common/cache_api/client.h"
#include "common/security/key_directory.h"

namespace kiln::testing {

// `code`: the bytes of plan.kernels, in order.
inline void PublishPlan(cache::CacheClient& store, const SigningKey& signer, const Plan& plan,
                        const std::vector<Bytes>& code) {
  ASSERT_TRUE(store.PublishBlobsSync(code, 5'000).has_value());
  PlanRecord record;
  record.plan_key = ComputePlanKey(plan);
  record.segment = plan.segment;
  record.target = plan.target;
  record.abi = plan.abi;
  record.numeric_mode = static_cast<uint8_t>(plan.numeric_mode);
  record.guard = EncodeGuard(plan.guard, plan.symbols);
  record.plan = EncodePlan(plan);
  cache::PublishPlanRequest publish;
  for (size_t i = 0; i < code.size(); ++i) {
    record.kernels.push_back({plan.kernels[i], code[i].size()});
    publish.kernels.push_back(BindKernel(plan.kernels[i], plan.kernels[i], ValidationKind::kExecuted, signer));
  }
  publish.record = EncodeAndSign(record, signer);
  const auto reply = store.CallSync(publish, 5'000);
  ASSERT_TRUE(reply.has_value()) << ToString(reply.error());
}

inline void PublishPlan(Loop& loop, const cli::EmbeddedFleet& fleet, const Plan& plan, const std::vector<Bytes>& code) {
  const auto keys = KeyDirectory::Open(fleet.directory() + "/keys");
  const auto signer = keys->LoadSigning("compile");
  ASSERT_TRUE(signer.has_value()) << ToString(signer.error());
  cache::CacheClientOptions options;
  options.endpoint = fleet.StoreEndpoint();
  options.blob_endpoint = fleet.BlobEndpoint();
  options.security.insecure = true;
  auto store = cache::CacheClient::Connect(loop, std::move(options));
  ASSERT_TRUE(store.has_value());
  PublishPlan(**store, *signer, plan, code);
}

}  // namespace kiln::testing
