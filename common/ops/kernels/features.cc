// MelWeightMatrix and TfIdfVectorizer.
#include <algorithm>
#include <cmath>
#include <map>

#include "common/ops/kernels/kernel.h"
#include "common/ops/kernels/table.h"
#include "common/ops/list.h"

namespace kiln::kernels {
namespace {

double MelOfHertz(double hertz) {
  return 2595.0 * std::log10(1.0 + hertz / 700.0);
}
double HertzOfMel(double mel) {
  return 700.0 * (std::pow(10.0, mel / 2595.0) - 1.0);
}

// First, middle and last spectrogram bin of every triangle: entry i, i + 1 and i + 2 belong to mel bin i.
Result<List<int64_t>> MelEdges(const KernelCall& call, int64_t mel_bins, int64_t spectrogram_bins) {
  const double dft_length = static_cast<double>(ReadInt(call.inputs[1]));
  const double sample_rate = static_cast<double>(ReadInt(call.inputs[2]));
  if (!(dft_length >= 1)) return Fail(ErrorCode::kInvalidArgument, "the DFT length of MelWeightMatrix is not positive");
  if (!(sample_rate > 0))
    return Fail(ErrorCode::kInvalidArgument, "the sample rate of MelWeightMatrix is not positive");
  const double low = MelOfHertz(ReadFloat(call.inputs[3]));
  const double high = MelOfHertz(ReadFloat(call.inputs[4]));
  const double step = (high - low) / static_cast<double>(mel_bins + 2);
  List<int64_t> edges;
  for (int64_t i = 0; i < mel_bins + 2; ++i) {
    const double hertz = HertzOfMel(static_cast<double>(i) * step + low);
    const double bin = std::floor((dft_length + 1) * hertz / sample_rate);
    if (!(bin >= 0 && bin <= static_cast<double>(spectrogram_bins))) {
      return Fail(ErrorCode::kOutOfRange,
                  "the edges of MelWeightMatrix pass the " + std::to_string(spectrogram_bins) +
                      " bins of the spectrogram; the upper edge is at most half the sample rate");
    }
    edges.push_back(static_cast<int64_t>(bin));
  }
  return edges;
}

template <class T>
Status FillMel(KernelCall& call) {
  const int64_t rows = call.outputs[0].dims[0];
  const int64_t columns = call.outputs[0].dims[1];
  T* out = call.outputs[0].as<T>();
  std::fill_n(out, rows * columns, T{});
  ASSIGN_OR_RETURN(const List<int64_t> edges, MelEdges(call, columns, rows));
  const auto set = [&](int64_t row, int64_t column, double value) {
    if (row < rows) out[row * columns + column] = Convert<T>(value);
  };
  for (int64_t i = 0; i < columns; ++i) {
    const int64_t first = edges[static_cast<size_t>(i)];
    const int64_t centre = edges[static_cast<size_t>(i + 1)];
    const int64_t last = edges[static_cast<size_t>(i + 2)];
    const double rise = static_cast<double>(centre - first);
    const double fall = static_cast<double>(last - centre);
    if (centre == first) set(centre, i, 1.0);
    for (int64_t j = first; j <= centre && centre > first; ++j) set(j, i, static_cast<double>(j - first) / rise);
    for (int64_t j = centre; j < last; ++j) set(j, i, static_cast<double>(last - j) / fall);
  }
  return {};
}

Status RunMelWeightMatrix(KernelCall& call) {
  return DispatchDType(call.outputs[0].dtype, [&]<class T>() -> Status {
    if constexpr (kIsNumeric<T>) {
      return FillMel<T>(call);
    } else {
      return UnsupportedType(call.outputs[0].dtype);
    }
  });
}

// --- TfIdfVectorizer ---
// Orders n-grams by their items, however they are held.
struct ByItems {
  using is_transparent = void;
  bool operator()(std::span<const int64_t> a, std::span<const int64_t> b) const {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
  }
};

struct NGrams {
  std::string error;  // what is wrong with the attributes; empty: nothing
  int64_t shortest = 1, longest = 1, skips = 0;
  bool counts = true;    // an entry's value is its count (TF, TFIDF), or 1 (IDF)
  bool weighted = true;  // …times its weight (IDF, TFIDF)
  // Column and weight of every n-gram of a length in [shortest, longest].
  struct Entry {
    int64_t column;
    double weight;
  };
  std::map<std::vector<int64_t>, Entry, ByItems> pool;
};

void ReadPool(const Attributes& attributes, NGrams& grams) {
  const std::span<const int64_t> pool = attributes.Ints("pool_int64s");
  const std::span<const int64_t> starts = attributes.Ints("ngram_counts");
  const std::span<const int64_t> columns = attributes.Ints("ngram_indexes");
  const std::span<const double> weights = attributes.Floats("weights");
  if (!weights.empty() && weights.size() != columns.size()) {
    grams.error = "`weights` and `ngram_indexes` of TfIdfVectorizer differ in length";
    return;
  }
  size_t entry = 0;
  for (size_t length = 1; length <= starts.size(); ++length) {
    const int64_t begin = starts[length - 1];
    const int64_t end = length < starts.size() ? starts[length] : static_cast<int64_t>(pool.size());
    if (begin < 0 || end < begin || end > static_cast<int64_t>(pool.size()) ||
        (end - begin) % static_cast<int64_t>(length) != 0) {
      grams.error = "`ngram_counts` of TfIdfVectorizer does not divide the pool into n-grams";
      return;
    }
    for (int64_t at = begin; at < end; at += static_cast<int64_t>(length), ++entry) {
      if (entry >= columns.size()) {
        grams.error = "`ngram_indexes` of TfIdfVectorizer has fewer entries than the pool has n-grams";
        return;
      }
      if (static_cast<int64_t>(length) < grams.shortest || static_cast<int64_t>(length) > grams.longest) continue;
      const auto first = pool.begin() + at;
      grams.pool[std::vector<int64_t>(first, first + static_cast<int64_t>(length))] = {
          columns[entry], weights.empty() ? 1.0 : weights[entry]};
    }
  }
}

std::shared_ptr<const void> PrepareNGrams(const Attributes& attributes) {
  auto grams = std::make_shared<NGrams>();
  grams->shortest = attributes.Int("min_gram_length", 1);
  grams->longest = attributes.Int("max_gram_length", 1);
  grams->skips = attributes.Int("max_skip_count", 0);
  const std::string_view mode = attributes.Text("mode", "TF");
  grams->counts = mode != "IDF";
  grams->weighted = mode != "TF";
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF") {
    grams->error = "mode '" + std::string(mode) + "' of TfIdfVectorizer is unknown";
  } else if (grams->shortest < 1 || grams->longest < grams->shortest || grams->longest > 1024 || grams->skips < 0 ||
             grams->skips > (int64_t{1} << 31)) {
    grams->error = "gram lengths or skips of TfIdfVectorizer are out of order";
  } else {
    ReadPool(attributes, *grams);
  }
  return grams;
}

// Counts the n-grams of one row: items one, two… up to skips + 1 apart. Single items do not depend on the distance and
// count once.
void CountRow(const NGrams& grams, const List<int64_t>& row, float* out) {
  List<int64_t> gram;
  const int64_t size = static_cast<int64_t>(row.size());
  for (int64_t distance = 1; distance <= grams.skips + 1 && (distance == 1 || distance < size); ++distance) {
    for (int64_t length = distance == 1 ? grams.shortest : std::max<int64_t>(grams.shortest, 2);
         length <= grams.longest && (length - 1) * distance < size; ++length) {
      for (int64_t start = 0; start + (length - 1) * distance < size; ++start) {
        gram.clear();
        for (int64_t i = 0; i < length; ++i) gram.push_back(row[static_cast<size_t>(start + i * distance)]);
        const auto found = grams.pool.find(std::span<const int64_t>(gram));
        if (found == grams.pool.end()) continue;
        float& value = out[found->second.column];
        const float weight = grams.weighted ? static_cast<float>(found->second.weight) : 1.0f;
        value = grams.counts ? value + weight : weight;
      }
    }
  }
}

Status RunTfIdfVectorizer(KernelCall& call) {
  const std::shared_ptr<const void> own = call.prepared == nullptr ? PrepareNGrams(*call.attributes) : nullptr;
  const NGrams& grams = *static_cast<const NGrams*>(own ? own.get() : call.prepared);
  if (!grams.error.empty()) return Fail(ErrorCode::kInvalidArgument, grams.error);
  const TensorRef& in = call.inputs[0];
  const int64_t rows = in.rank() == 1 ? 1 : in.dims[0];
  const int64_t items = in.dims.back();
  const int64_t columns = call.outputs[0].dims.back();
  float* out = call.outputs[0].as<float>();
  std::fill_n(out, rows * columns, 0.0f);
  for (int64_t r = 0; r < rows; ++r) {
    List<int64_t> row(static_cast<size_t>(items));
    for (int64_t i = 0; i < items; ++i) {
      row[static_cast<size_t>(i)] =
          in.dtype == DType::kI64 ? in.as<int64_t>()[r * items + i] : int64_t{in.as<int32_t>()[r * items + i]};
    }
    CountRow(grams, row, out + r * columns);
  }
  return {};
}

}  // namespace

ReferenceKernel MelWeightMatrix(DType) {
  return {&RunMelWeightMatrix, false};
}
ReferenceKernel TfIdfVectorizer(DType) {
  return {&RunTfIdfVectorizer, false, &PrepareNGrams};
}

}  // namespace kiln::kernels
