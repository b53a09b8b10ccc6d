// write_corpus DIRECTORY: the seeds of tests/fuzz/corpus, from random programs, small models and the frozen version-1
// bytes.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "cache-store/records/entry.h"
#include "common/base/check.h"
#include "common/bytecode/attribute_bytes.h"
#include "common/bytecode/program_codec.h"
#include "common/bytecode/program_text.h"
#include "common/cache_api/codec.h"
#include "common/signature/signature.h"
#include "common/worker_api/explain.h"
#include "common/worker_api/worker_api.h"
#include "compile-service/jobs/job_codec.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/message_bytes.h"
#include "tests/support/random_program.h"
#include "tests/vm-worker/onnx/model_builder.h"

namespace kiln::fuzz {
namespace {

namespace fs = std::filesystem;
using onnx::FloatTensor;
using onnx::IntTensor;
using onnx::Tensor32;
using onnx::TestModel;

class CorpusWriter {
 public:
  explicit CorpusWriter(fs::path root) : root_(std::move(root)) {}

  void Write(const std::string& target, const std::string& name, std::span<const uint8_t> bytes) {
    fs::create_directories(root_ / target);
    std::ofstream file(root_ / target / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    KILN_CHECK(file.good());
  }
  void Write(const std::string& target, const std::string& name, const std::string& text) {
    Write(target, name, std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
  }
  void WriteRow(const std::string& target, const std::string& row, const std::string& name, Bytes bytes) {
    const int number = target == "messages" ? MessageRowNumber(row) : RecordRowNumber(row);
    KILN_CHECK(number >= 0);
    bytes.insert(bytes.begin(), static_cast<uint8_t>(number));
    Write(target, name, bytes);
  }

 private:
  fs::path root_;
};

Bytes FrozenBytes(const std::string& name) {
  std::ifstream file(KILN_SOURCE_DIR "/tests/compat/v1/" + name + ".bin", std::ios::binary);
  KILN_CHECK(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

void WritePrograms(CorpusWriter& corpus) {
  corpus.Write("program_bytes", "sample", FrozenBytes("program"));
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const Program program = testing::RandomProgram(seed, {.nodes = 1 + static_cast<int>(seed)});
    const std::string name = "random_" + std::to_string(seed);
    corpus.Write("program_bytes", name, EncodeProgram(program).value());
    corpus.Write("program_text", name, PrintProgram(program));
    Bytes choices(9);
    choices[7] = static_cast<uint8_t>(seed);
    choices[8] = static_cast<uint8_t>(0x10 * seed + seed);
    corpus.Write("random_programs", name, choices);
    for (uint8_t edit = 0; edit < 12; ++edit)
      choices.insert(choices.end(), {edit, static_cast<uint8_t>(seed), 0, 3, 0, 1, 0});
    corpus.Write("random_programs", name + "_edited", choices);
  }
}

std::vector<TestModel> Models() {
  std::vector<TestModel> models;
  models.push_back(TestModel(17)
                       .Input(Tensor32("x", {"n", 4}))
                       .Initializer(FloatTensor("w", {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}))
                       .Node("MatMul", {"x", "w"}, {"y"})
                       .Node("Softmax", {"y"}, {"z"}, {onnx::IntAttribute("axis", -1)})
                       .Output("z"));
  models.push_back(
      TestModel(13)
          .Input(Tensor32("x", {1, 2, "h", "w"}))
          .Initializer(FloatTensor("k", {2, 1, 1, 1}, {1, 2}))
          .Node("Conv", {"x", "k"}, {"c"}, {onnx::IntAttribute("group", 2), onnx::IntsAttribute("strides", {2, 1})})
          .Node("Relu", {"c"}, {"r"})
          .Node("MaxPool", {"r"}, {"p"}, {onnx::IntsAttribute("kernel_shape", {2, 2})})
          .Output("p"));
  models.push_back(TestModel(13)
                       .Input(Tensor32("x", {"n", "m", 6}))
                       .Initializer(IntTensor("zero", {}, {0}))
                       .Initializer(IntTensor("axes", {1}, {0}))
                       .Initializer(IntTensor("last", {1}, {-1}))
                       .Node("Shape", {"x"}, {"s"})
                       .Node("Gather", {"s", "zero"}, {"n"}, {onnx::IntAttribute("axis", 0)})
                       .Node("Unsqueeze", {"n", "axes"}, {"n1"})
                       .Node("Concat", {"n1", "last"}, {"t"}, {onnx::IntAttribute("axis", 0)})
                       .Node("Reshape", {"x", "t"}, {"y"})
                       .Output("y"));
  models.push_back(TestModel(11)
                       .Input(Tensor32("x", {2, 8}))
                       .Initializer(IntTensor("from", {1}, {1}))
                       .Initializer(IntTensor("to", {1}, {7}))
                       .Initializer(IntTensor("axis", {1}, {1}))
                       .Node("Slice", {"x", "from", "to", "axis"}, {"a"})
                       .Node("Transpose", {"a"}, {"b"}, {onnx::IntsAttribute("perm", {1, 0})})
                       .Node("ReduceMean", {"b"}, {"c"}, {onnx::IntsAttribute("axes", {0})})
                       .Node("Cast", {"c"}, {"d"}, {onnx::IntAttribute("to", 7)})
                       .Output("d"));
  onnx::GraphProto then_graph, else_graph;
  then_graph.set_name("then");
  onnx::AddNode(*then_graph.mutable_node(), "Neg", {"x"}, {"t"});
  then_graph.add_output()->set_name("t");
  else_graph.set_name("else");
  onnx::AddNode(*else_graph.mutable_node(), "Abs", {"x"}, {"e"});
  else_graph.add_output()->set_name("e");
  models.push_back(
      TestModel(16)
          .Input(Tensor32("x", {"n"}))
          .Input(Tensor32("c", {}, 9))
          .Node("If", {"c"}, {"y"},
                {onnx::GraphAttribute("then_branch", then_graph), onnx::GraphAttribute("else_branch", else_graph)})
          .Output("y"));
  return models;
}

void WriteOnnx(CorpusWriter& corpus) {
  int number = 0;
  for (const TestModel& model : Models()) {
    KILN_CHECK(model.Import().has_value());
    corpus.Write("onnx_bytes", "model_" + std::to_string(number++), model.Bytes());
  }
  onnx::TensorProto raw = FloatTensor("raw", {2}, {});
  raw.clear_float_data();
  raw.set_raw_data(std::string(8, '\1'));
  onnx::TensorProto halves;
  halves.set_data_type(10);
  halves.add_dims(3);
  for (int value : {0, 1, 0x3c00}) halves.add_int32_data(value);
  onnx::SparseTensorProto sparse;
  *sparse.mutable_values() = FloatTensor("v", {2}, {1, 2});
  *sparse.mutable_indices() = IntTensor("i", {2}, {1, 3});
  sparse.add_dims(5);
  const onnx::TensorProto dense[] = {FloatTensor("f", {2, 2}, {1, 2, 3, 4}), IntTensor("i", {3}, {1, -2, 3}),
                                     onnx::BoolTensor("b", {2}, {true, false}), raw, halves};
  for (size_t i = 0; i < std::size(dense); ++i)
    corpus.Write("tensor_file", "dense_" + std::to_string(i), dense[i].SerializeAsString());
  corpus.Write("tensor_file", "sparse", sparse.SerializeAsString());
}

template <class T>
void WriteCacheMessage(CorpusWriter& corpus, const std::string& row) {
  corpus.WriteRow("messages", row, row, testing::Flat(cache::Encode(T{})));
}

void WriteMessages(CorpusWriter& corpus) {
#define KILN_CACHE_METHOD(value, name, roles, admission, doc)                \
  WriteCacheMessage<cache::name##Request>(corpus, "cache." #name "Request"); \
  WriteCacheMessage<cache::name##Reply>(corpus, "cache." #name "Reply");
#include "common/cache_api/methods.def"
#undef KILN_CACHE_METHOD
  const Bytes envelope = FrozenBytes("envelope");
  corpus.WriteRow("messages", "envelope", "envelope", testing::Flat({envelope, {}}));
  const std::pair<const char*, const char*> frozen[] = {{"cache.ChangeLogReply", "change_log_reply"},
                                                        {"cache.PublishPlanRequest", "publish_plan_request"},
                                                        {"cache.ReportRequest", "report_request"},
                                                        {"cache.VariantsReply", "variants_reply"},
                                                        {"CompileRequest", "compile_request"},
                                                        {"CompileReply", "compile_reply"},
                                                        {"LoadReply", "load_reply"},
                                                        {"RunRequest", "run_request"}};
  for (const auto& [row, file] : frozen) corpus.WriteRow("messages", row, file, FrozenBytes(file));
  const std::vector<float> values = {1, 2, 3, 4};
  const Tensor tensor = Tensor::Of<float>(DType::kF32, {1, 4}, values);
  corpus.WriteRow("messages", "LoadRequest", "LoadRequest", testing::Flat(Encode(LoadRequest{"model", "/m.onnx"})));
  corpus.WriteRow("messages", "ListReply", "ListReply", testing::Flat(Encode(ListReply{{"a", "b"}})));
  RunReply reply;
  reply.outputs = {{"y", tensor}, {"z", tensor}};
  corpus.WriteRow("messages", "RunReply", "RunReply", testing::Flat(Encode(reply)));
  WorkerStatsReply stats;
  stats.stats = {{"runs", 7}};
  corpus.WriteRow("messages", "WorkerStatsReply", "WorkerStatsReply", testing::Flat(Encode(stats)));
  corpus.WriteRow("messages", "ExplainReply", "ExplainReply", testing::Flat(Encode(ExplainReply{})));
}

Bytes FrameBytes(const Frame& frame) {
  Bytes bytes = frame.payload;
  bytes.insert(bytes.begin(), frame.kind);
  return bytes;
}

void WriteRecords(CorpusWriter& corpus) {
  for (const char* name : {"guard", "plan", "record", "kernel_frame", "kernel_blob", "kernel_spec", "segment"})
    corpus.WriteRow("records", name, name, FrozenBytes(name));
  const Bytes record = FrozenBytes("record");
  corpus.WriteRow("records", "record_body", "record_body", Bytes(record.begin() + 16, record.end() - 32 - 64 - 32));
  SymbolTable symbols;
  KILN_CHECK(symbols.AddSymbol("n", {0, 4096}, 1).has_value());
  Attributes attributes;
  attributes.Set("axis", int64_t{1});
  attributes.Set("alpha", 0.5);
  attributes.Set("mode", std::string("linear"));
  attributes.Set("pads", std::vector<int64_t>{1, 1});
  attributes.Set("shape", std::vector<Dim>{symbols.SymbolDim(0), Dim::Const(2)});
  corpus.WriteRow("records", "attributes", "attributes", EncodeAttributes(attributes, symbols));
  Signature signature;
  const Tensor tensor = Tensor::Zeros(DType::kF32, {2, 3});
  const int64_t parameter = 5;
  BuildSignature({&tensor.ref, 1}, {&parameter, 1}, &signature);
  Bytes words(signature.words.size() * 8);
  std::memcpy(words.data(), signature.words.data(), words.size());
  corpus.WriteRow("records", "signature", "signature", words);
  corpus.WriteRow("records", "info", "info",
                  store::EncodeInfo({.target = "x86-64-v4", .guard = {1, 2}, .kernels = {{}, {}}}));
  corpus.WriteRow("records", "state", "state", store::EncodeState({2.5, 3, 4, true}));
  corpus.WriteRow("records", "lease", "lease", store::EncodeLease({"holder", 99}));
  corpus.WriteRow("records", "change", "change",
                  store::EncodeChange({5, cache::ChangeKind::kPublish, {}, {}, "x86-64-v3"}));
  corpus.WriteRow("records", "witnesses", "witnesses", store::EncodeWitnesses({{"a", "b"}, {{"c", 5}}}));
  const Bytes spec = FrozenBytes("kernel_spec"), blob = FrozenBytes("kernel_blob");
  LowerAnswer lowered;
  lowered.plan = FrozenBytes("plan");
  lowered.kernels = {{{}, spec, {{1, 2}, {3, 4}}}};
  corpus.WriteRow("records", "lower_answer", "lower_answer", FrameBytes(ToFrame(lowered)));
  corpus.WriteRow("records", "compile_kernel_job", "compile_kernel_job",
                  FrameBytes(ToFrame(CompileKernelJob{Target::kX86V3, spec})));
  corpus.WriteRow("records", "compile_kernel_answer", "compile_kernel_answer",
                  FrameBytes(ToFrame(CompileKernelAnswer{blob})));
  corpus.WriteRow("records", "validate_job", "validate_job",
                  FrameBytes(ToFrame(ValidateJob{Target::kX86V3, spec, blob, {{1, 2}}, 7})));
  corpus.WriteRow("records", "validate_answer", "validate_answer", FrameBytes(ToFrame(ValidateAnswer{3})));
  const std::string texts = "# keys\n" + std::string(64, 'a') + " worker name\n";
  corpus.WriteRow("records", "key_texts", "key_texts", Bytes(texts.begin(), texts.end()));
}

}  // namespace
}  // namespace kiln::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_corpus DIRECTORY\n");
    return 2;
  }
  kiln::fuzz::CorpusWriter corpus(argv[1]);
  kiln::fuzz::WritePrograms(corpus);
  kiln::fuzz::WriteOnnx(corpus);
  kiln::fuzz::WriteMessages(corpus);
  kiln::fuzz::WriteRecords(corpus);
  return 0;
}
