// gdb's view of generated kernels: the list it walks, the files in it, and gdb itself where it is installed.
#include "vm-worker/dispatch/gdb_symbols.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <set>

#include "common/artifact/kernel_blob.h"
#include "common/artifact/target.h"
#include "tests/support/shell.h"

extern "C" {
struct jit_code_entry {
  jit_code_entry* next_entry;
  jit_code_entry* prev_entry;
  const char* symfile_addr;
  uint64_t symfile_size;
};
struct jit_descriptor {
  uint32_t version;
  uint32_t action_flag;
  jit_code_entry* relevant_entry;
  jit_code_entry* first_entry;
};
extern jit_descriptor __jit_debug_descriptor;
}

namespace kiln {
namespace {

using ::testing::HasSubstr;

struct Code {
  Plan plan;
  std::shared_ptr<const CodeMapping> mapping;
};

// Two kernels that return at once; the second one's entry is 4 bytes into its code.
Code MapTwo() {
#if defined(__aarch64__)
  const std::vector<uint8_t> code = {0xc0, 0x03, 0x5f, 0xd6, 0xc0, 0x03, 0x5f, 0xd6};
#else
  const std::vector<uint8_t> code = {0xc3, 0x90, 0x90, 0x90, 0xc3, 0x90, 0x90, 0x90};
#endif
  const Target target = HostTargets().front();
  const std::vector<std::vector<uint8_t>> blobs = {BuildKernelBlob(target, 0, code), BuildKernelBlob(target, 4, code)};
  Code made;
  std::vector<std::span<const uint8_t>> views(blobs.begin(), blobs.end());
  for (const auto& blob : blobs) made.plan.kernels.push_back(HashBytes(blob));
  made.plan.steps = {{KernelStep{0}, {}, "conv 1x1 + add; tile 8x3"}, {KernelStep{1}, {}, "softmax"}};
  auto mapping = CodeMapping::Map(made.plan.kernels, views, target);
  EXPECT_TRUE(mapping.has_value()) << (mapping.has_value() ? "" : ToString(mapping.error()));
  made.mapping = std::move(*mapping);
  return made;
}

std::set<jit_code_entry*> Listed() {
  std::set<jit_code_entry*> entries;
  const jit_code_entry* previous = nullptr;
  for (jit_code_entry* entry = __jit_debug_descriptor.first_entry; entry != nullptr; entry = entry->next_entry) {
    EXPECT_EQ(entry->prev_entry, previous);
    previous = entry;
    entries.insert(entry);
  }
  return entries;
}

std::string Expected(const Code& code, size_t kernel, const char* label) {
  return std::string("kiln.ocr_") + label + "_" + code.plan.kernels[kernel].ShortHex();
}

TEST(GdbSymbols, TheListHoldsAFileWithOneFunctionPerKernel) {
  Code code = MapTwo();
  ASSERT_EQ(Listed().size(), 0u);
  const auto named = NameForGdb("ocr", code.plan, code.mapping);
  ASSERT_EQ(named.get(), code.mapping.get());
  ASSERT_EQ(Listed().size(), 1u);
  EXPECT_EQ(__jit_debug_descriptor.version, 1u);
  EXPECT_EQ(__jit_debug_descriptor.action_flag, 0u);
  const jit_code_entry& entry = **Listed().begin();
  const char* file = entry.symfile_addr;
  Elf64_Ehdr header;
  ASSERT_GE(entry.symfile_size, sizeof header);
  std::memcpy(&header, file, sizeof header);
  ASSERT_EQ(std::memcmp(header.e_ident, ELFMAG, SELFMAG), 0);
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  ASSERT_LE(header.e_shoff + sections.size() * sizeof(Elf64_Shdr), entry.symfile_size);
  std::memcpy(sections.data(), file + header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  for (const Elf64_Shdr& section : sections) {
    const uint64_t bytes = section.sh_type == SHT_NOBITS ? 0 : section.sh_size;
    ASSERT_LE(section.sh_offset + bytes, entry.symfile_size);
  }
  EXPECT_STREQ(file + sections[header.e_shstrndx].sh_offset + sections[1].sh_name, ".text");
  ASSERT_EQ(sections[2].sh_type, static_cast<uint32_t>(SHT_SYMTAB));
  std::vector<Elf64_Sym> symbols(sections[2].sh_size / sizeof(Elf64_Sym));
  std::memcpy(symbols.data(), file + sections[2].sh_offset, sections[2].sh_size);
  ASSERT_EQ(symbols.size(), 3u);
  const char* const labels[] = {"conv_1x1_add_tile_8x3", "softmax"};
  for (size_t kernel = 0; kernel < 2; ++kernel) {
    const Elf64_Sym& symbol = symbols[kernel + 1];
    EXPECT_EQ(sections[1].sh_addr + symbol.st_value, reinterpret_cast<uintptr_t>(code.mapping->entry(kernel)));
    EXPECT_EQ(symbol.st_info, ELF64_ST_INFO(STB_GLOBAL, STT_FUNC));
    EXPECT_EQ(file + sections[sections[2].sh_link].sh_offset + symbol.st_name, Expected(code, kernel, labels[kernel]));
  }
}

TEST(GdbSymbols, TheListShrinksWithTheCode) {
  Code first = MapTwo(), second = MapTwo(), third = MapTwo();
  auto a = NameForGdb("m", first.plan, first.mapping);
  auto b = NameForGdb("m", second.plan, second.mapping);
  auto c = NameForGdb("m", third.plan, third.mapping);
  EXPECT_EQ(Listed().size(), 3u);
  const auto copy = b;
  b.reset();
  EXPECT_EQ(Listed().size(), 3u);  // a copy holds it
  a.reset();
  c.reset();
  EXPECT_EQ(Listed().size(), 1u);
}

TEST(GdbSymbols, CodeWithoutKernelsIsNotListed) {
  const std::shared_ptr<const CodeMapping> empty = CodeMapping::Map({}, {}, HostTargets().front()).value();
  EXPECT_EQ(NameForGdb("m", Plan{}, empty), empty);
  EXPECT_EQ(Listed().size(), 0u);
}

TEST(GdbSymbols, GdbNamesTheKernelAtAnAddress) {
  if (std::system("command -v gdb >/dev/null 2>&1") != 0) GTEST_SKIP() << "gdb is not installed";
  Code code = MapTwo();
  const auto named = NameForGdb("ocr", code.plan, code.mapping);
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  char command[512];
  std::snprintf(command, sizeof command,
                "timeout 120 gdb -nx -batch -iex 'set auto-load off' -iex 'set debuginfod enabled off' -p %d "
                "-ex 'info symbol %p' -ex 'info symbol %p' 2>&1",
                getpid(), reinterpret_cast<void*>(code.mapping->entry(0)),
                reinterpret_cast<void*>(code.mapping->entry(1)));
  const std::string output = testing::RunShell(command).output;
  if (output.find("ptrace") != std::string::npos && output.find("not permitted") != std::string::npos)
    GTEST_SKIP() << "this system does not let gdb attach";
  EXPECT_THAT(output, HasSubstr(Expected(code, 0, "conv_1x1_add_tile_8x3")));
  EXPECT_THAT(output, HasSubstr(Expected(code, 1, "softmax")));
}

}  // namespace
}  // namespace kiln
