// Random programs survive text and binary form; damaged bytes are refused and never crash.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <random>

#include "common/bytecode/program_codec.h"
#include "common/bytecode/program_text.h"
#include "tests/support/random_program.h"

namespace kiln {
namespace {

using testing::DifferenceOf;
using testing::RandomProgram;

constexpr uint64_t kSeed = 4242;

TEST(RandomPrograms, SurviveTextAndBinary) {
  size_t nodes = 0;
  std::vector<int> seen(1000, 0);
  for (uint64_t seed = kSeed; seed < kSeed + 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Program program = RandomProgram(seed, {.nodes = 4 + static_cast<int>(seed % 24)});
    for (const Region& region : program.entry().regions) {
      nodes += region.nodes.size();
      for (const Node& node : region.nodes) ++seen[static_cast<size_t>(node.op)];
    }
    const std::string text = PrintProgram(program);
    const auto parsed = ParseProgram(text);
    ASSERT_TRUE(parsed.has_value()) << parsed.error().message << "\n" << text;
    ASSERT_EQ(DifferenceOf(program, *parsed), "") << text;
    ASSERT_EQ(PrintProgram(*parsed), text);

    const auto bytes = EncodeProgram(program);
    ASSERT_TRUE(bytes.has_value()) << bytes.error().message;
    const auto decoded = DecodeProgram(*bytes);
    ASSERT_TRUE(decoded.has_value()) << decoded.error().message << "\n" << text;
    ASSERT_EQ(DifferenceOf(program, *decoded), "") << text;
    ASSERT_EQ(EncodeProgram(*decoded).value(), *bytes);
    ASSERT_EQ(PrintProgram(*decoded), text);
  }
  EXPECT_GT(nodes, 4000u);
  // The generator reaches what it claims to.
  for (TensorOp op :
       {TensorOp::kIf, TensorOp::kLoop, TensorOp::kScan, TensorOp::kNonZero, TensorOp::kMatMul, TensorOp::kSplit,
        TensorOp::kGather, TensorOp::kReduceMax, TensorOp::kArgMax, TensorOp::kWhere, TensorOp::kSlice}) {
    EXPECT_GT(seen[static_cast<size_t>(op)], 10) << OpInfo(op).name;
  }
}

TEST(RandomPrograms, AreTheSameForTheSameSeed) {
  EXPECT_EQ(DifferenceOf(RandomProgram(7), RandomProgram(7)), "");
  EXPECT_NE(DifferenceOf(RandomProgram(7), RandomProgram(8)), "");
}

TEST(RandomPrograms, InputsFollowTheSymbols) {
  for (uint64_t seed = kSeed; seed < kSeed + 50; ++seed) {
    const Program program = RandomProgram(seed);
    for (const auto& values : {testing::SymbolValuesNear(program, 0), testing::SymbolValuesNear(program, 1),
                               testing::RandomSymbolValues(program, seed)}) {
      ASSERT_TRUE(program.symbols.Check(values).has_value());
      const auto inputs = testing::RandomInputs(program, values, seed);
      ASSERT_EQ(inputs.size(), program.entry().regions[0].inputs.size());
      for (size_t i = 0; i < inputs.size(); ++i) {
        const TensorDesc& desc = program.entry().values[static_cast<size_t>(program.entry().regions[0].inputs[i])].desc;
        EXPECT_EQ(inputs[i].dtype(), desc.dtype);
        EXPECT_EQ(inputs[i].dims(), testing::ConcreteDims(desc, program.symbols, values));
      }
    }
  }
}

TEST(ProgramCodec, DamagedBytesNeverCrash) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  int accepted = 0, rejected = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const std::vector<uint8_t> good = EncodeProgram(RandomProgram(kSeed + seed)).value();
    for (int round = 0; round < 250; ++round) {
      std::vector<uint8_t> bytes = good;
      if (round % 10 == 0) {
        bytes.resize(random() % bytes.size());
      } else {
        for (int i = 1 + static_cast<int>(random() % 4); i > 0; --i) {
          uint8_t& byte = bytes[random() % bytes.size()];
          const uint8_t values[] = {0,
                                    1,
                                    0x7f,
                                    0x80,
                                    0xff,
                                    static_cast<uint8_t>(byte + 1),
                                    static_cast<uint8_t>(byte ^ (1u << random() % 8))};
          byte = values[random() % 7];
        }
      }
      const auto program = DecodeProgram(bytes);
      ++(program ? accepted : rejected);
      // What is accepted is a program like any other.
      if (program) {
        ASSERT_TRUE(ParseProgram(PrintProgram(*program)).has_value());
      }
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(rejected, 1000);
  EXPECT_EQ(DecodeProgram({}).error().code, ErrorCode::kMalformed);
}

TEST(ProgramCodec, WeightsStayInTheirFile) {
  auto file = Buffer::Allocate(4096);
  for (int i = 0; i < 1024; ++i) static_cast<float*>(file->data())[i] = static_cast<float>(i);
  BufferWeights weights(file);
  const auto program = ParseProgram(R"(program "w" {
  constant w : f32[8, 8] = ref 1024
  func f(%x: f32[4, 8]) -> (%y) {
    %w : f32[8, 8] = Constant() {value = @w}
    %y : f32[4, 8] = MatMul(%x, %w)
  }
})",
                                    &weights);
  ASSERT_TRUE(program.has_value()) << program.error().message;
  const auto inlined = EncodeProgram(*program).value();
  const auto external =
      EncodeProgram(*program, {.placement = [](int32_t) { return std::optional<uint64_t>(1024); }}).value();
  EXPECT_LT(external.size() + 250, inlined.size());
  const auto mapped = DecodeProgram(external, {.weights = &weights, .owner = nullptr});
  ASSERT_TRUE(mapped.has_value()) << mapped.error().message;
  EXPECT_EQ(mapped->constants[0].tensor.ref.data, static_cast<uint8_t*>(file->data()) + 1024);
  EXPECT_EQ(DifferenceOf(*program, *mapped), "");
  EXPECT_EQ(DecodeProgram(external).error().code, ErrorCode::kInvalidArgument);

  // With an owner, inline weights stay where they are.
  auto owned = Buffer::Allocate(inlined.size());
  std::copy(inlined.begin(), inlined.end(), static_cast<uint8_t*>(owned->data()));
  const std::span<const uint8_t> bytes(static_cast<const uint8_t*>(owned->data()), owned->size());
  const auto in_place = DecodeProgram(bytes, {.weights = nullptr, .owner = owned});
  ASSERT_TRUE(in_place.has_value());
  const auto* data = in_place->constants[0].tensor.ref.as<const uint8_t>();
  EXPECT_TRUE(data >= bytes.data() && data < bytes.data() + bytes.size());
  EXPECT_EQ(DifferenceOf(*program, *in_place), "");
  // Bytes at an odd address are read as well.
  std::vector<uint8_t> shifted(inlined.size() + 1);
  std::copy(inlined.begin(), inlined.end(), shifted.begin() + 1);
  const auto odd = DecodeProgram(std::span(shifted).subspan(1));
  ASSERT_TRUE(odd.has_value()) << odd.error().message;
  EXPECT_EQ(DifferenceOf(*program, *odd), "");
}
}  // namespace
}  // namespace kiln
