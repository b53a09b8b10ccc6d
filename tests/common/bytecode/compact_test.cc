#include <gmock/gmock.h>

#include <random>
#include <set>

#include "common/bytecode/emit.h"
#include "common/bytecode/program_text.h"
#include "common/bytecode/verify_compact.h"
#include "common/segment/segment.h"
#include "tests/support/random_program.h"

namespace kiln {
namespace {

using ::testing::HasSubstr;

CompactProgram Emit(const Program& program) {
  const SymbolDefinitions definitions = FindSymbolDefinitions(program);
  const SegmentedProgram segmented = SegmentProgram(program, definitions);
  std::vector<SegmentRange> ranges;
  for (const SegmentSite& site : segmented.sites)
    ranges.push_back({site.function, site.region, site.first_node, site.end_node, site.inputs, site.outputs});
  return EmitCompact(program, definitions, ranges, ShapeFactsOf(segmented));
}

Program Parse(std::string_view text) {
  auto program = ParseProgram(text);
  EXPECT_TRUE(program.has_value()) << ToString(program.error());
  return program ? *std::move(program) : Program{};
}

constexpr std::string_view kProgram = R"(program "p" {
  symbol n in [0, 64]
  constant w : f32[2, 32] = splat 0.5
  func main(%go: bool[], %x: f32[n, 2]) -> (%z) {
    %c : f32[2, 32] = Constant() {value = @w}
    %y : f32[n, 32] = MatMul(%x, %c) "first layer"
    %z : f32[n, 32] = If(%go) then() -> (%a) { %a : f32[n, 32] = Relu(%y) } else() -> (%b) { %b : f32[n, 32] = Neg(%y) }
  }
})";

TEST(OpcodeTable, IsOrderedAndSaysHowToReadItself) {
  std::set<std::string_view> mnemonics;
  for (int i = 0; i < OpcodeCount(); ++i) {
    const OpcodeInfo& row = OpcodeRow(i);
    if (i > 0) {
      EXPECT_GT(row.opcode, OpcodeRow(i - 1).opcode);
    }
    EXPECT_TRUE(mnemonics.insert(row.mnemonic).second) << row.mnemonic;
    EXPECT_EQ(row.format.find_first_not_of("rwxRWYtncbsi."), std::string_view::npos) << row.mnemonic;
    EXPECT_FALSE(row.doc.empty());
    EXPECT_EQ(&InfoOf(row.opcode), &row);
    EXPECT_EQ(OpcodeFromNumber(static_cast<uint32_t>(row.opcode)), row.opcode);
  }
  EXPECT_EQ(OpcodeFromNumber(0), std::nullopt);
  EXPECT_EQ(OpcodeFromNumber(255), std::nullopt);
  EXPECT_EQ(OpcodeFromNumber(300), std::nullopt);
}

TEST(Compact, EncoderAndDecoderAgreeForEveryOpcode) {
  for (int i = 0; i < OpcodeCount(); ++i) {
    CompactProgram compact;
    CompactWriter writer(&compact);
    writer.Begin(OpcodeRow(i).opcode);
    std::vector<std::vector<uint32_t>> written;
    for (char format : OpcodeRow(i).format) {
      if (format == '.') continue;
      const uint32_t number = static_cast<uint32_t>(written.size());
      if (format == 'R' || format == 'W' || format == 'Y') {
        written.push_back({number, kNoRegister, 7});
        writer.List(written.back());
      } else {
        written.push_back({number + 100});
        writer.Word(number + 100);
      }
    }
    writer.End();
    CompactInstruction instruction;
    ASSERT_TRUE(DecodeInstruction(compact, 0, &instruction));
    EXPECT_EQ(instruction.opcode, OpcodeRow(i).opcode);
    EXPECT_EQ(instruction.next, compact.code.size());
    ASSERT_EQ(instruction.operands.size(), written.size());
    for (size_t k = 0; k < written.size(); ++k) {
      const CompactOperand& operand = instruction.operands[k];
      if (written[k].size() == 1) {
        EXPECT_EQ(operand.word, written[k][0]);
      } else {
        EXPECT_EQ(std::vector<uint32_t>(operand.list.begin(), operand.list.end()), written[k]);
      }
    }
  }
}

TEST(Compact, DisassemblyShowsNodesSegmentsAndTargets) {
  const Program program = Parse(kProgram);
  const std::string text = Disassemble(Emit(program), program);
  EXPECT_THAT(text, HasSubstr("function 0 \"main\":"));
  EXPECT_THAT(text, HasSubstr("MatMul \"first layer\""));
  EXPECT_THAT(text, HasSubstr("weight #0 f32[2, 32]"));
  EXPECT_THAT(text, HasSubstr("PROFILE_POINT            segment 2"));
  EXPECT_THAT(text, HasSubstr("JUMP_IF "));
}

TEST(Compact, RegistersAreReusedAfterTheLastUse) {
  std::string text = "program \"p\" { func main(%v0: f32[4]) -> (%v100) {\n";
  for (int i = 0; i < 100; ++i) text += "%v" + std::to_string(i + 1) + " : f32[4] = Neg(%v" + std::to_string(i) + ")\n";
  EXPECT_LE(Emit(Parse(text + "} }")).register_count, 4u);
}

TEST(VerifyCompact, AcceptsWhatIsEmitted) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Program program = kiln::testing::RandomProgram(seed);
    const Status status = VerifyCompact(Emit(program), program);
    EXPECT_TRUE(status) << "seed " << seed << ": " << ToString(status.error());
  }
}

TEST(VerifyCompact, NamesTheDefect) {
  const Program program = Parse(kProgram);
  const CompactProgram good = Emit(program);
  // The first instruction of an opcode, changed; the verifier's message.
  auto changed = [&](Opcode opcode, size_t word, uint32_t value) -> std::string {
    CompactProgram bad = good;
    CompactInstruction instruction;
    for (uint32_t pc = 0; pc < good.code.size(); pc = instruction.next) {
      EXPECT_TRUE(DecodeInstruction(good, pc, &instruction));
      if (instruction.opcode != opcode) continue;
      bad.code[pc + word] = value;
      const Status status = VerifyCompact(bad, program);
      return status ? "accepted" : status.error().message;
    }
    return "not found";
  };
  EXPECT_THAT(changed(Opcode::kFree, 1, 99), HasSubstr("names register 99"));
  EXPECT_THAT(changed(Opcode::kConstant, 2, 5), HasSubstr("names constant 5; there are 1"));
  EXPECT_THAT(changed(Opcode::kJump, 1, 1), HasSubstr("where no instruction starts"));
  EXPECT_THAT(changed(Opcode::kCompute, 0, 0), HasSubstr("holds no opcode"));
  EXPECT_THAT(changed(Opcode::kProfilePoint, 1, 42), HasSubstr("names segment 42"));
  EXPECT_THAT(changed(Opcode::kJumpIf, 1, good.register_count - 1), HasSubstr("not defined"));
}

TEST(VerifyCompact, SurvivesAndMostlySeesDamage) {
  std::mt19937 random(5);
  int seen = 0, total = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Program program = kiln::testing::RandomProgram(seed);
    const CompactProgram good = Emit(program);
    for (int i = 0; i < 200; ++i) {
      CompactProgram bad = good;
      uint32_t& word = bad.code[random() % bad.code.size()];
      const uint32_t before = word;
      word = random() % 4 ? before ^ (1u << random() % 32) : static_cast<uint32_t>(random() % 64);
      if (word == before) continue;
      ++total;
      seen += !VerifyCompact(bad, program).has_value();
      Disassemble(bad, program);  // whatever it is, it prints
    }
  }
  EXPECT_GT(seen, total * 8 / 10) << seen << " of " << total;
}

}  // namespace
}  // namespace kiln
