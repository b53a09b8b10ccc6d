// Attention: a block per batch and tile of queries, eight threads per query. Keys and values come in chunks through
// shared memory; the softmax runs along (online), so that no more scores exist than one chunk's.
//
// With the largest score M so far, a query has the sum L of exp(score - M) and the sums O of exp(score - M) * V. A
// chunk with a larger score scales both by exp(M - M'). While every score is -infinity, M is taken as 0: the weights
// are 0 then, and where it stays so, 0 / 0 gives the NaN that a softmax over nothing has.
#include <algorithm>

#include "compile-service/codegen/cuda/emitters.h"
#include "compile-service/ir/nest_stages.h"

namespace kiln::codegen::cuda {

using ir::AttentionSpec;

namespace {

constexpr int64_t kQueries = 32;                     // at a time
constexpr int64_t kTeam = kBlockThreads / kQueries;  // threads per query
constexpr int64_t kKeysMax = 32;                     // of a chunk

class AttentionEmitter {
 public:
  AttentionEmitter(KernelText& text, const AttentionSpec& spec) : text_(text), out_(text.out()), spec_(spec) {
    while (SharedWords(keys_) * 4 > kStaticSharedBytes && keys_ > kTeam) keys_ /= 2;
    while (SharedWords(keys_) * 4 > kStaticSharedBytes && keys_ > 1) keys_ /= 2;
  }

  CudaSource Emit();

 private:
  // A pitch of words that threads of a team, or of different queries, find in different banks.
  static int64_t Pitch(int64_t elements) { return elements | 1; }
  int64_t query_words() const { return kQueries * Pitch(spec_.key_elements); }
  int64_t SharedWords(int64_t keys) const {
    return query_words() + keys * (Pitch(spec_.key_elements) + spec_.value_elements) + kQueries * Pitch(keys);
  }
  int64_t keys_at() const { return query_words(); }
  int64_t values_at() const { return keys_at() + keys_ * Pitch(spec_.key_elements); }
  int64_t weights_at() const { return values_at() + keys_ * spec_.value_elements; }
  // Of a thread: elements of the result, scores of a chunk.
  int64_t results() const { return (spec_.value_elements + kTeam - 1) / kTeam; }
  int64_t scores() const { return (keys_ + kTeam - 1) / kTeam; }

  void Fetch(const std::string& name, const ir::Access& access, const std::string& rows, const std::string& first,
             int64_t elements, int64_t place, int64_t pitch);
  void Pass();
  void Scores();
  void Weights();
  void Accumulate();
  void Finish();
  std::vector<std::string> At(const std::string& row, const std::string& element) const {
    std::vector<std::string> coordinates = batch_;
    coordinates.insert(coordinates.end(), {row, element});
    return coordinates;
  }

  KernelText& text_;
  SourceWriter& out_;
  const AttentionSpec& spec_;
  int64_t keys_ = kKeysMax;  // of a chunk
  std::vector<std::string> batch_;
};

// `rows` rows of a tensor from row `first` on, into shared memory at word `place`.
void AttentionEmitter::Fetch(const std::string& name, const ir::Access& access, const std::string& rows,
                             const std::string& first, int64_t elements, int64_t place, int64_t pitch) {
  out_.Block(fmt::format("for (int at = threadIdx.x; at < {} * {}; at += {})", rows, elements, kBlockThreads), [&] {
    out_.Line("const int row = at / {0}, element = at % {0};", elements);
    out_.Line("const long long whole_row = {} + row;", first);
    const std::string loaded =
        Loaded(fmt::format("{}[{}]", name, KernelText::Offset(access, At("whole_row", "element"))), access.storage,
               DType::kF32);
    out_.Line("KILN_PUT(words, {} + row * {} + element, {});", place, pitch, loaded);
  });
}

// This thread's scores of the chunk, `score`; of keys behind the last one, and of queries that are none, -infinity.
void AttentionEmitter::Scores() {
  out_.Line("float score[{}];", scores());
  out_.Put("#pragma unroll");
  out_.Block(fmt::format("for (int j = 0; j < {}; ++j)", scores()), [&] {
    out_.Line("const int key = place + j * {};", kTeam);
    out_.Line("score[j] = {};", FloatLiteral(-std::numeric_limits<double>::infinity()));
    out_.Block("if (key < keys && query < queries)", [&] {
      out_.Put("float sum = 0.0f;");
      out_.Line(
          "for (int i = 0; i < {0}; ++i) sum = fmaf(KILN_GET(words, query * {1} + i), KILN_GET(words, {2} + key * "
          "{1} + i), sum);",
          spec_.key_elements, Pitch(spec_.key_elements), keys_at());
      out_.Put("const long long n = first_key + key, m = first_query + query;");
      ScalarCode code(out_, spec_.scores,
                      text_.EpilogueLeaf(spec_.accesses, At("n", "m"), [](int32_t) { return "sum"; }));
      const std::vector<int32_t> roots = {spec_.score};
      code.Write(ir::ReachableNodes(spec_.scores, roots));
      out_.Line("score[j] = {};", code.Value(spec_.score));
    });
  });
}

// The chunk's weights into shared memory; `largest`, `total` and the results so far follow.
void AttentionEmitter::Weights() {
  const std::string lowest = FloatLiteral(-std::numeric_limits<double>::infinity());
  out_.Line("float chunk_largest = {};", lowest);
  out_.Line("for (int j = 0; j < {}; ++j) chunk_largest = kiln_max(chunk_largest, score[j]);", scores());
  out_.Line(
      "for (int distance = {}; distance > 0; distance >>= 1) chunk_largest = kiln_max(chunk_largest, "
      "__shfl_xor_sync(0xffffffffu, chunk_largest, distance));",
      kTeam / 2);
  out_.Put("const float before = largest;");
  out_.Put("largest = kiln_max(largest, chunk_largest);");
  out_.Line("const float reference = largest == {} ? 0.0f : largest;", lowest);
  out_.Put("const float scale = expf(before - reference);");  // 0 behind nothing but -infinity
  out_.Put("float chunk_total = 0.0f;");
  out_.Put("#pragma unroll");
  out_.Block(fmt::format("for (int j = 0; j < {}; ++j)", scores()), [&] {
    out_.Line("const int key = place + j * {};", kTeam);
    out_.Put("const float weight = expf(score[j] - reference);");
    out_.Put("if (key < keys) chunk_total += weight;");
    out_.Line("if (key < keys) KILN_PUT(words, {} + query * {} + key, weight);", weights_at(), Pitch(keys_));
  });
  out_.Line(
      "for (int distance = {}; distance > 0; distance >>= 1) chunk_total += __shfl_xor_sync(0xffffffffu, "
      "chunk_total, distance);",
      kTeam / 2);
  out_.Put("total = total * scale + chunk_total;");
}

void AttentionEmitter::Accumulate() {
  out_.Put("#pragma unroll");
  out_.Block(fmt::format("for (int j = 0; j < {}; ++j)", results()), [&] {
    out_.Line("const int element = place + j * {};", kTeam);
    out_.Block(fmt::format("if (element < {})", spec_.value_elements), [&] {
      out_.Put("float part = 0.0f;");
      out_.Line(
          "for (int key = 0; key < keys; ++key) part = fmaf(KILN_GET(words, {} + query * {} + key), "
          "KILN_GET(words, {} + key * {} + element), part);",
          weights_at(), Pitch(keys_), values_at(), spec_.value_elements);
      out_.Put("result[j] = result[j] * scale + part;");
    });
  });
}

void AttentionEmitter::Finish() {
  out_.Block("if (query < queries)", [&] {
    out_.Put("#pragma unroll");
    out_.Block(fmt::format("for (int j = 0; j < {}; ++j)", results()), [&] {
      out_.Line("const int element = place + j * {};", kTeam);
      out_.Line("const long long m = first_query + query;");
      out_.Put("const float value = n_extent == 0 ? 0.0f : result[j] / total;");
      out_.Line("if (element < {}) out[{}] = {};", spec_.value_elements,
                KernelText::Offset(spec_.out, At("m", "element")), Stored("value", DType::kF32, spec_.out.storage));
    });
  });
}

// The queries from `pass` on that a block has threads for.
void AttentionEmitter::Pass() {
  out_.Put("const long long first_query = tile_query + pass;");
  out_.Line("const int queries = static_cast<int>(kiln_least(m_extent - first_query, {}));", kQueries);
  out_.Line("const int query = threadIdx.x / {0}, place = threadIdx.x % {0};", kTeam);
  Fetch("q", spec_.q, "queries", "first_query", spec_.key_elements, 0, Pitch(spec_.key_elements));
  out_.Line("float largest = {}, total = 0.0f, result[{}] = {{}};",
            FloatLiteral(-std::numeric_limits<double>::infinity()), results());
  out_.Block(fmt::format("for (long long first_key = 0; first_key < n_extent; first_key += {})", keys_), [&] {
    out_.Line("const int keys = static_cast<int>(kiln_least(n_extent - first_key, {}));", keys_);
    Fetch("k", spec_.k, "keys", "first_key", spec_.key_elements, keys_at(), Pitch(spec_.key_elements));
    Fetch("v", spec_.v, "keys", "first_key", spec_.value_elements, values_at(), spec_.value_elements);
    out_.Put("__syncthreads();");
    Scores();
    Weights();
    out_.Put("__syncthreads();");
    Accumulate();
    out_.Put("__syncthreads();");  // before the next chunk takes this one's place
  });
  Finish();
}

CudaSource AttentionEmitter::Emit() {
  return text_.Function(kBlockThreads, 1, [&] {
    text_.Pointers(spec_.accesses);
    text_.Pointer("q", spec_.q.pointer, spec_.q.storage);
    text_.Pointer("k", spec_.k.pointer, spec_.k.storage);
    text_.Pointer("v", spec_.v.pointer, spec_.v.storage);
    text_.Pointer("out", spec_.out.pointer, spec_.out.storage);
    out_.Line("KILN_SHARED(float, words, {});", SharedWords(keys_));
    const int64_t tile = spec_.tile.nv * kQueries;
    out_.Line("const long long m_extent = {}, n_extent = {};", KernelText::Int(spec_.m), KernelText::Int(spec_.n));
    out_.Line("const long long tiles = (m_extent + {}) / {}, item = begin + blockIdx.x;", tile - 1, tile);
    out_.Line("const long long tile_query = item % tiles * {};", tile);
    if (!spec_.batch.empty()) out_.Put("long long rest = item / tiles;");
    batch_ = text_.Decode("b", "rest", spec_.batch);
    out_.Block(fmt::format("for (int pass = 0; pass < {} && tile_query + pass < m_extent; pass += {})", tile, kQueries),
               [&] { Pass(); });
  });
}

}  // namespace

CudaSource EmitAttention(KernelText& text, const AttentionSpec& spec) {
  return AttentionEmitter(text, spec).Emit();
}

}  // namespace kiln::codegen::cuda
