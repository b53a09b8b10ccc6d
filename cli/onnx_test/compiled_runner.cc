#include "cli/onnx_test/compiled_runner.h"

#include <filesystem>

#include "cli/fleet/embedded_fleet.h"
#include "common/artifact/target_text.h"
#include "common/security/key_directory.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln::onnx_test {
struct CompiledServices::Parts {
  std::unique_ptr<cli::EmbeddedFleet> fleet;
  std::unique_ptr<Loop> loop;
  std::unique_ptr<cache::CacheClient> store;
  std::unique_ptr<RpcClient> compile;
  std::unique_ptr<PlanSource> source;
  PackedWeights packer{InterpretRecipe};
  Target target{};
};

// One program: interpreted control flow around compiled segments.
class CompiledRunner final : public ProgramRunner {
 public:
  CompiledRunner(CompiledServices& services, std::shared_ptr<const LoadedProgram> program, cli::StrictTier tier)
      : services_(services), program_(std::move(program)), hook_(services.plan_services(), tier) {}

  ~CompiledRunner() override {
    services_.coverage_.Add(hook_.coverage());
    for (const SegmentSite& site : program_->sites()) ++services_.coverage_.ends[site.end_reason];
  }

  Result<std::vector<Tensor>> Run(std::span<const TensorRef> inputs) override {
    RunOptions options;
    options.hook = &hook_;
    ASSIGN_OR_RETURN(std::vector<Tensor> outputs, context_.Run(*program_, inputs, options));
    if (!hook_.failure().empty()) return Fail(ErrorCode::kCompileFailed, "not compiled: " + hook_.failure());
    return outputs;
  }

 private:
  CompiledServices& services_;
  std::shared_ptr<const LoadedProgram> program_;
  VmContext context_;
  cli::StrictHook hook_;
};

Result<std::unique_ptr<CompiledServices>> CompiledServices::Start(const std::string& directory,
                                                                  const std::string& binaries) {
  std::unique_ptr<CompiledServices> services(new CompiledServices());
  services->parts_ = std::make_unique<Parts>();
  Parts& parts = *services->parts_;
  RETURN_IF_ERROR(CheckTargetLimit());
  const std::vector<Target> targets = HostTargets();
  if (targets.empty())
    return Fail(ErrorCode::kTargetMismatch, "this host is of no target that kernels can be made for");
  parts.target = targets.front();
  ASSIGN_OR_RETURN(parts.fleet, cli::EmbeddedFleet::Start({directory, "memory", 2, binaries}));
  ASSIGN_OR_RETURN(parts.loop, Loop::Start("strict"));
  ASSIGN_OR_RETURN(KeyDirectory keys, KeyDirectory::Open(parts.fleet->directory() + "/keys"));
  ASSIGN_OR_RETURN(TrustedSigners trusted, keys.LoadTrustedSigners());
  cache::CacheClientOptions store_options;
  store_options.endpoint = parts.fleet->StoreEndpoint();
  store_options.blob_endpoint = parts.fleet->BlobEndpoint();
  store_options.security.insecure = true;
  ASSIGN_OR_RETURN(parts.store, cache::CacheClient::Connect(*parts.loop, std::move(store_options)));
  ASSIGN_OR_RETURN(parts.compile, cli::ConnectTool(*parts.loop, parts.fleet->CompileEndpoint(), "", "compile"));
  parts.source = std::make_unique<PlanSource>(*parts.store, nullptr, trusted, parts.target);
  return services;
}

CompiledServices::~CompiledServices() {
  if (parts_ == nullptr || parts_->fleet == nullptr) return;
  const std::string directory = parts_->fleet->directory();
  parts_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
}

cli::PlanServices CompiledServices::plan_services() {
  return {*parts_->compile, *parts_->source, parts_->packer, parts_->target};
}

RunnerMode CompiledServices::Mode(cli::StrictTier tier) {
  RunnerMode mode;
  mode.name = tier == cli::StrictTier::kGeneric ? "compiled" : "compiled exact";
  mode.same_bits_when_dynamic = false;
  mode.load = [this, tier](Program program) -> Result<std::unique_ptr<ProgramRunner>> {
    ASSIGN_OR_RETURN(auto loaded, LoadedProgram::Load(std::move(program)));
    return std::make_unique<CompiledRunner>(*this, std::move(loaded), tier);
  };
  return mode;
}

}  // namespace kiln::onnx_test
