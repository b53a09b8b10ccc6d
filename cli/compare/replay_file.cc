#include "cli/compare/replay_file.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "cli/run_inputs.h"
#include "common/artifact/target_text.h"
#include "common/base/limits.h"
#include "vm-worker/dispatch/segment_call.h"

namespace kiln::cli {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "kiln-replay-1";

std::string Hex(std::span<const uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Result<std::vector<uint8_t>> FromHex(const std::string& text) {
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  std::vector<uint8_t> bytes;
  if (text.size() % 2 != 0) return Fail(ErrorCode::kMalformed, "a hex field has an odd number of digits");
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = digit(text[i]), low = digit(text[i + 1]);
    if (high < 0 || low < 0) return Fail(ErrorCode::kMalformed, "a hex field has other characters than 0-9 and a-f");
    bytes.push_back(static_cast<uint8_t>(high * 16 + low));
  }
  return bytes;
}

json TensorJson(const TensorRef& tensor, bool keep) {
  json entry{{"dtype", std::string(DTypeName(tensor.dtype))},
             {"dims", std::vector<int64_t>(tensor.dims.begin(), tensor.dims.end())}};
  if (keep) entry["values"] = Hex({tensor.as<const uint8_t>(), static_cast<size_t>(tensor.bytes())});
  return entry;
}

Result<Tensor> TensorFrom(const json& entry, std::mt19937_64& random) {
  const auto dtype = DTypeFromName(entry.at("dtype").get<std::string>());
  const auto list = entry.at("dims").get<std::vector<int64_t>>();
  if (!dtype || list.size() > static_cast<size_t>(limits::kRankMax))
    return Fail(ErrorCode::kMalformed, "a tensor has an unknown dtype or rank");
  const Dims dims{std::span<const int64_t>(list)};
  ASSIGN_OR_RETURN([[maybe_unused]] int64_t elements, CheckedElements(dims, *dtype));
  if (!entry.contains("values")) return RandomTensor(*dtype, dims, random);
  ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, FromHex(entry.at("values").get<std::string>()));
  Tensor tensor = Tensor::Allocate(*dtype, dims);
  if (static_cast<int64_t>(bytes.size()) != tensor.ref.bytes())
    return Fail(ErrorCode::kMalformed, "a tensor's values do not fill its shape");
  std::copy(bytes.begin(), bytes.end(), tensor.ref.as<uint8_t>());
  return tensor;
}

Result<std::unique_ptr<Replay>> FromJson(const json& file) {
  if (file.at("format") != kFormat) return Fail(ErrorCode::kUnsupported, "its format is not " + std::string(kFormat));
  auto replay = std::make_unique<Replay>();
  replay->text = {file.at("model").get<std::string>(), file.at("segment_index").get<int>(),
                  file.at("difference").get<std::string>(), file.at("seed").get<uint64_t>(),
                  file.at("keeps_tensors").get<bool>()};
  ASSIGN_OR_RETURN(const std::vector<uint8_t> segment_bytes, FromHex(file.at("segment").get<std::string>()));
  ASSIGN_OR_RETURN(Segment segment, DecodeSegment(segment_bytes));
  replay->segment = std::make_unique<Segment>(std::move(segment));
  ASSIGN_OR_RETURN(const std::vector<uint8_t> plan_bytes, FromHex(file.at("plan").get<std::string>()));
  ASSIGN_OR_RETURN(Plan plan, DecodePlan(plan_bytes));
  std::vector<std::vector<uint8_t>> kernels;
  for (const json& kernel : file.at("kernels")) {
    ASSIGN_OR_RETURN(kernels.emplace_back(), FromHex(kernel.get<std::string>()));
  }
  RETURN_IF_ERROR(CheckTargetLimit());
  const std::vector<Target> targets = HostTargets();
  if (targets.empty())
    return Fail(ErrorCode::kTargetMismatch, "this host is of no target that kernels can be made for");
  const std::vector<std::span<const uint8_t>> blobs(kernels.begin(), kernels.end());
  ASSIGN_OR_RETURN(std::shared_ptr<const CodeMapping> code, CodeMapping::Map(plan.kernels, blobs, targets.front()));
  std::mt19937_64 random(replay->text.seed);
  for (const json& entry : file.at("inputs")) {
    ASSIGN_OR_RETURN(replay->call.inputs.emplace_back(), TensorFrom(entry, random));
  }
  std::vector<TensorRef> weights;
  for (const json& entry : file.at("weights")) {
    ASSIGN_OR_RETURN(replay->weights.emplace_back(), TensorFrom(entry, random));
    weights.push_back(replay->weights.back().ref);
  }
  replay->call.parameters = file.at("parameters").get<std::vector<int64_t>>();
  PackedWeights packer(InterpretRecipe);
  const PlanKey key = ComputePlanKey(plan);
  ASSIGN_OR_RETURN(replay->call.plan, LinkedPlan::Link(std::make_shared<const Plan>(std::move(plan)), key,
                                                       *replay->segment, code, weights, packer));
  return replay;
}

}  // namespace

Status WriteReplay(const std::string& path, const ReplayText& text, const SegmentCase& call) {
  const LinkedPlan& linked = *call.plan;
  ASSIGN_OR_RETURN(const std::vector<uint8_t> segment, EncodeSegment(linked.segment()));
  json file{{"format", kFormat},
            {"model", text.model},
            {"segment_index", text.segment_index},
            {"difference", text.difference},
            {"seed", text.seed},
            {"keeps_tensors", text.keep_tensors},
            {"segment_id", linked.segment().id.Hex()},
            {"plan_key", linked.key().Hex()},
            {"target", linked.plan().target},
            {"parameters", call.parameters}};
  file["inputs"] = file["weights"] = file["kernels"] = json::array();
  for (const Tensor& input : call.inputs) file["inputs"].push_back(TensorJson(input.ref, text.keep_tensors));
  for (const TensorRef& weight : linked.weights()) file["weights"].push_back(TensorJson(weight, text.keep_tensors));
  file["segment"] = Hex(segment);
  file["plan"] = Hex(EncodePlan(linked.plan()));
  for (size_t i = 0; i < linked.code().kernels(); ++i) file["kernels"].push_back(Hex(linked.code().blob(i)));
  std::ofstream stream(path);
  stream << file.dump(1) << "\n";
  stream.close();
  if (!stream) return Fail(ErrorCode::kIoError, "cannot write replay file " + path);
  return {};
}

Result<std::unique_ptr<Replay>> ReadReplay(const std::string& path) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) return Fail(ErrorCode::kNotFound, "cannot read replay file " + path + ": " + error.message());
  if (bytes > limits::kComparisonFileBytesMax)
    return Fail(ErrorCode::kLimitExceeded,
                "replay file " + path + " has more than " + std::to_string(limits::kComparisonFileBytesMax) + " bytes");
  std::ifstream stream(path);
  try {
    auto replay = FromJson(json::parse(stream));
    if (!replay.has_value()) return FailIn("replay file " + path, replay.error());
    return replay;
  } catch (const json::exception& problem) {
    return Fail(ErrorCode::kMalformed,
                path + " is no replay file of `kiln run --compare`, or a damaged one: " + problem.what());
  }
}

}  // namespace kiln::cli
