// Whole recordings through models with state: a minute of speech detection, and speech enhancement frame by frame.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numbers>

#include "tests/models/shared_model.h"
#include "tests/models/wave_file.h"
#include "tests/support/shared_material.h"

namespace kiln::testing {
namespace {

namespace fs = std::filesystem;

fs::path Models() {
  return SharedDirectory() / "models";
}

Tensor Zeros(const Dims& dims) {
  return Tensor::Zeros(DType::kF32, dims);
}

// --- speech detection: chunks of 512 samples with the 64 before them ---
std::vector<float> SpeechProbabilities(SharedModel& model, const std::vector<float>& samples) {
  constexpr size_t kChunk = 512, kContext = 64;
  Tensor state = Zeros({2, 1, 128});
  Tensor window = Zeros({1, static_cast<int64_t>(kChunk + kContext)});
  const int64_t rate = 16000;
  const Tensor sr = Tensor::Of<int64_t>(DType::kI64, Dims{}, std::span<const int64_t>(&rate, 1));
  std::vector<float> probabilities;
  for (size_t at = 0; at + kChunk <= samples.size(); at += kChunk) {
    float* to = window.ref.as<float>();
    std::copy_n(to + kChunk, kContext, to);
    std::copy_n(samples.begin() + static_cast<std::ptrdiff_t>(at), kChunk, to + kContext);
    auto outputs = model.Run({{"input", window}, {"state", state}, {"sr", sr}});
    EXPECT_TRUE(outputs.has_value()) << ToString(outputs.error());
    if (!outputs) break;
    probabilities.push_back(outputs->at(model.outputs()[0].name).ref.as<float>()[0]);
    state = outputs->at(model.outputs()[1].name);
  }
  return probabilities;
}

class SpeechDetection : public SharedModelTest {};

TEST_P(SpeechDetection, AMinuteGivesTheStoredProbabilities) {
  KILN_NEEDS_SHARED(SharedDirectory() / "models");
  const auto model = SharedModel::Load(Models() / "silero-vad" / Name(), Mode());
  ASSERT_TRUE(model.has_value()) << ToString(model.error());
  const auto samples = ReadWave(Models() / "silero-vad" / "test.wav");
  ASSERT_TRUE(samples.has_value()) << ToString(samples.error());
  std::ifstream stored(Models() / "silero-vad" / "test_wav_probs_ort1.30.json");
  const std::vector<float> wanted = nlohmann::json::parse(stored).get<std::vector<float>>();
  ASSERT_EQ(wanted.size(), 1875u);
  const std::vector<float> got = SpeechProbabilities(**model, *samples);
  ASSERT_EQ(got.size(), wanted.size());
  size_t speech = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], wanted[i], 1e-3) << "chunk " << i;
    speech += got[i] > 0.5f;
  }
  EXPECT_EQ(speech, 1452u);
}

INSTANTIATE_TEST_SUITE_P(Shared, SpeechDetection,
                         ::testing::Combine(::testing::Values("silero_vad.onnx", "silero_vad_16k_op15.onnx",
                                                              "silero_vad_op18_ifless.onnx"),
                                            ::testing::Bool()),
                         TestName);

// --- speech enhancement: short-time spectra, 512 samples every 256 ---
constexpr int64_t kFrame = 512, kHop = 256, kBins = kFrame / 2 + 1;
using Spectrum = std::vector<std::complex<double>>;

// e^(-2 pi i k / kFrame)
const std::vector<std::complex<double>>& Roots() {
  static const auto roots = [] {
    std::vector<std::complex<double>> table;
    for (int64_t k = 0; k < kFrame; ++k) table.push_back(std::polar(1.0, -2 * std::numbers::pi * double(k) / kFrame));
    return table;
  }();
  return roots;
}

// Square roots of Hann windows: periodic for analysis, symmetric for synthesis, as the authors' script has them.
double Window(int64_t i, int64_t period) {
  return std::sqrt(0.5 - 0.5 * std::cos(2 * std::numbers::pi * double(i) / double(period)));
}

// The recording, mirrored by half a frame at both ends.
std::vector<double> Mirrored(const std::vector<float>& samples) {
  const int64_t n = static_cast<int64_t>(samples.size()), half = kFrame / 2;
  std::vector<double> padded;
  for (int64_t i = -half; i < n + half; ++i) {
    const int64_t at = i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
    padded.push_back(samples[static_cast<size_t>(at)]);
  }
  return padded;
}

Spectrum Analyse(const double* samples) {
  Spectrum spectrum(kBins);
  std::vector<double> windowed;
  for (int64_t i = 0; i < kFrame; ++i) windowed.push_back(samples[i] * Window(i, kFrame));
  for (int64_t k = 0; k < kBins; ++k) {
    std::complex<double> sum = 0;
    for (int64_t i = 0; i < kFrame; ++i) {
      sum += windowed[static_cast<size_t>(i)] * Roots()[static_cast<size_t>(k * i % kFrame)];
    }
    spectrum[static_cast<size_t>(k)] = sum;
  }
  return spectrum;
}

// Adds one frame and its squared window.
void Synthesise(const Spectrum& spectrum, double* samples, double* weights) {
  for (int64_t i = 0; i < kFrame; ++i) {
    double sum = 0;
    for (int64_t k = 0; k < kBins; ++k) {
      const double twice = k == 0 || k == kBins - 1 ? 1.0 : 2.0;
      sum +=
          twice * (spectrum[static_cast<size_t>(k)] * std::conj(Roots()[static_cast<size_t>(k * i % kFrame)])).real();
    }
    const double window = Window(i, kFrame - 1);
    samples[i] += sum / kFrame * window;
    weights[i] += window * window;
  }
}

// One frame through the model; `caches` hold its state.
Spectrum Enhanced(SharedModel& model, const Spectrum& noisy, std::map<std::string, Tensor>& caches) {
  Tensor mix = Zeros({1, kBins, 1, 2});
  for (size_t k = 0; k < noisy.size(); ++k) {
    mix.ref.as<float>()[2 * k] = static_cast<float>(noisy[k].real());
    mix.ref.as<float>()[2 * k + 1] = static_cast<float>(noisy[k].imag());
  }
  std::map<std::string, Tensor> inputs = caches;
  inputs.emplace("mix", mix);
  const auto outputs = model.Run(inputs);
  EXPECT_TRUE(outputs.has_value()) << ToString(outputs.error());
  Spectrum clean(kBins);
  if (!outputs) return clean;
  for (auto& [name, cache] : caches) cache = outputs->at(name + "_out");
  const float* enhanced = outputs->at("enh").ref.as<float>();
  for (size_t k = 0; k < clean.size(); ++k) clean[k] = {enhanced[2 * k], enhanced[2 * k + 1]};
  return clean;
}

class SpeechEnhancement : public SharedModelTest {};

TEST_P(SpeechEnhancement, ARecordingIsWhatItsAuthorsMadeOfIt) {
  KILN_NEEDS_SHARED(SharedDirectory() / "models");
  const fs::path folder = Models() / "gtcrn";
  const auto model = SharedModel::Load(folder / Name(), Mode());
  ASSERT_TRUE(model.has_value()) << ToString(model.error());
  const auto noisy = ReadWave(folder / "mix.wav"), wanted = ReadWave(folder / "enh_stream.wav");
  ASSERT_TRUE(noisy.has_value() && wanted.has_value());
  std::map<std::string, Tensor> caches;
  for (const ImportedValue& input : (*model)->inputs()) {
    if (input.name == "mix") continue;
    Dims dims;
    for (Dim dim : *input.desc.dims) dims.push_back(dim.value());
    caches.emplace(input.name, Zeros(dims));
  }
  const std::vector<double> padded = Mirrored(*noisy);
  const int64_t frames = 1 + (static_cast<int64_t>(padded.size()) - kFrame) / kHop;
  std::vector<double> samples(static_cast<size_t>((frames - 1) * kHop + kFrame), 0.0), weights(samples);
  for (int64_t t = 0; t < frames; ++t) {
    const Spectrum clean = Enhanced(**model, Analyse(padded.data() + t * kHop), caches);
    Synthesise(clean, samples.data() + t * kHop, weights.data() + t * kHop);
  }
  ASSERT_EQ(samples.size() - kFrame, wanted->size());
  double worst = 0;
  for (size_t i = 0; i < wanted->size(); ++i) {
    const size_t at = i + kFrame / 2;
    worst = std::max(worst, std::abs(samples[at] / std::max(weights[at], 1e-10) - double((*wanted)[i])));
  }
  EXPECT_LE(worst, 2.5 / 32768) << "the stored samples have 16 bits";
}

INSTANTIATE_TEST_SUITE_P(Shared, SpeechEnhancement,
                         ::testing::Combine(::testing::Values("gtcrn.onnx", "gtcrn_simple.onnx"), ::testing::Bool()),
                         TestName);

}  // namespace
}  // namespace kiln::testing
