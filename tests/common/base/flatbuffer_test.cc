// Reading FlatBuffers from outside: elements that damaged bytes put at odd addresses are refused, not read.
#include "common/base/flatbuffer.h"

#include <gtest/gtest.h>

#include "schemas/compile_generated.h"
#include "schemas/program_generated.h"

namespace kiln {
namespace {

// A vector of `count` elements of `words` 32-bit words each, written as words are: at a multiple of 4. `pad` more words
// behind it move it by 4 bytes.
flatbuffers::uoffset_t VectorOfWords(flatbuffers::FlatBufferBuilder& builder, size_t count, size_t words, int pad) {
  builder.PushElement<uint64_t>(0);  // the whole begins at a multiple of 8, so that the end decides
  for (int i = 0; i < pad; ++i) builder.PushElement<uint32_t>(7);
  builder.StartVector(count * words, sizeof(uint32_t));
  for (size_t i = 0; i < count * words; ++i) builder.PushElement<uint32_t>(0);
  return builder.EndVector(count);
}

struct Outcome {
  bool accepted = false;
  uintptr_t misaligned_by = 0;  // of the vector's elements
};

Outcome ReadHints(size_t count, int pad) {
  flatbuffers::FlatBufferBuilder builder;
  const flatbuffers::Offset<flatbuffers::Vector<int64_t>> hints = VectorOfWords(builder, count, 2, pad);
  builder.Finish(fbs::CreateCompileRequest(builder, 0, 0, 0, 0, 0, 0, hints));
  const Bytes bytes = FinishedBytes(builder);
  const auto* unchecked = flatbuffers::GetRoot<fbs::CompileRequest>(bytes.data());
  return {VerifiedRoot<fbs::CompileRequest>(bytes, "request").has_value(),
          reinterpret_cast<uintptr_t>(unchecked->hints()->Data()) % 8};
}

Outcome ReadSymbols(size_t count, int pad) {
  flatbuffers::FlatBufferBuilder builder;
  const flatbuffers::Offset<flatbuffers::Vector<const fbs::SymbolBinding*>> symbols =
      VectorOfWords(builder, count, sizeof(fbs::SymbolBinding) / 4, pad);
  builder.Finish(fbs::CreateCompileRequest(builder, 0, 0, 0, 0, 0, symbols, 0));
  const Bytes bytes = FinishedBytes(builder);
  const auto* unchecked = flatbuffers::GetRoot<fbs::CompileRequest>(bytes.data());
  return {VerifiedRoot<fbs::CompileRequest>(bytes, "request").has_value(),
          reinterpret_cast<uintptr_t>(unchecked->symbols()->Data()) % 8};
}

Outcome ReadFloats(size_t count, int pad) {
  flatbuffers::FlatBufferBuilder builder;
  const flatbuffers::Offset<flatbuffers::Vector<double>> floats = VectorOfWords(builder, count, 2, pad);
  builder.Finish(wire::CreateProgramAttribute(builder, 0, 0, 0, floats));
  const Bytes bytes = FinishedBytes(builder);
  const auto* unchecked = flatbuffers::GetRoot<wire::ProgramAttribute>(bytes.data());
  return {VerifiedRoot<wire::ProgramAttribute>(bytes, "attribute").has_value(),
          reinterpret_cast<uintptr_t>(unchecked->floats()->Data()) % 8};
}

TEST(FlatBuffer, ElementsAtOddAddressesAreRefused) {
  int refused = 0, accepted = 0;
  for (const auto& read : {ReadHints, ReadSymbols, ReadFloats}) {
    for (size_t count : {1u, 2u, 3u, 8u}) {
      for (int pad : {0, 1}) {
        const Outcome outcome = read(count, pad);
        EXPECT_EQ(outcome.accepted, outcome.misaligned_by == 0) << count << " elements, pad " << pad;
        ++(outcome.accepted ? accepted : refused);
      }
    }
  }
  EXPECT_EQ(refused, 12);
  EXPECT_EQ(accepted, 12);
}

TEST(FlatBuffer, AnEmptyVectorMayLieAnywhere) {
  for (const auto& read : {ReadHints, ReadSymbols, ReadFloats}) {
    EXPECT_TRUE(read(0, 0).accepted);
    EXPECT_TRUE(read(0, 1).accepted);
  }
}

TEST(FlatBuffer, BytesAnywhereAreReadAtAlignedOnes) {
  const Bytes bytes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  for (size_t start = 0; start < 8; ++start) {
    const std::span<const uint8_t> part = std::span(bytes).subspan(start);
    const AlignedBytes aligned(part);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(aligned.span().data()) % 8, 0u);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), aligned.span().begin(), aligned.span().end()));
    EXPECT_EQ(aligned.span().data() == part.data(), start == 0);
  }
}

}  // namespace
}  // namespace kiln
