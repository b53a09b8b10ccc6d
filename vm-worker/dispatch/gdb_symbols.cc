#include "vm-worker/dispatch/gdb_symbols.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <span>
#include <vector>

#include "vm-worker/dispatch/kernel_names.h"

// The interface: names, layout and meaning are gdb's (its manual, "JIT Compilation Interface").
extern "C" {
struct jit_code_entry {
  jit_code_entry* next_entry;
  jit_code_entry* prev_entry;
  const char* symfile_addr;
  uint64_t symfile_size;
};
struct jit_descriptor {
  uint32_t version;
  uint32_t action_flag;  // 0 nothing, 1 registered, 2 about to be unregistered
  jit_code_entry* relevant_entry;
  jit_code_entry* first_entry;
};
// gdb stops here and looks at the descriptor.
[[gnu::noinline, gnu::used]] void __jit_debug_register_code() {
  __asm__ volatile("" ::: "memory");
}
[[gnu::used]] jit_descriptor __jit_debug_descriptor = {1, 0, nullptr, nullptr};
}

namespace kiln {
namespace {

std::mutex& ListMutex() {
  static std::mutex mutex;
  return mutex;
}

std::string SymbolName(const std::string& model, const Plan& plan, size_t kernel) {
  std::string name = KernelName(model, plan, kernel);
  std::string symbol;
  for (const char c : name) {
    const bool keep = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.';
    if (keep) {
      symbol += c;
    } else if (symbol == "kiln") {
      symbol += '.';
    } else if (!symbol.empty() && symbol.back() != '_') {
      symbol += '_';
    }
  }
  while (symbol.ends_with('_')) symbol.pop_back();
  return symbol;
}

// A relocatable ELF file: a .text section of no bytes at the address of the code, and its symbols.
class SymbolFile {
 public:
  SymbolFile(uintptr_t base, uint64_t size) : base_(base), size_(size) {
    symbols_.push_back({});
    strings_.push_back('\0');
  }
  void Add(const std::string& name, uintptr_t address, uint64_t size) {
    Elf64_Sym symbol{};
    symbol.st_name = static_cast<Elf64_Word>(strings_.size());
    symbol.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    symbol.st_shndx = kText;
    symbol.st_value = address - base_;
    symbol.st_size = size;
    symbols_.push_back(symbol);
    strings_.insert(strings_.end(), name.begin(), name.end());
    strings_.push_back('\0');
  }
  std::vector<char> Bytes() const {
    static constexpr char kNames[] = "\0.text\0.symtab\0.strtab\0.shstrtab";
    std::vector<char> bytes(sizeof(Elf64_Ehdr) + kSections * sizeof(Elf64_Shdr));
    Elf64_Shdr sections[kSections] = {};
    const auto place = [&bytes](Elf64_Shdr& section, const void* data, size_t size) {
      bytes.resize((bytes.size() + 7) & ~size_t{7});
      section.sh_offset = bytes.size();
      section.sh_size = size;
      section.sh_addralign = 8;
      const char* from = static_cast<const char*>(data);
      bytes.insert(bytes.end(), from, from + size);
    };
    sections[kText] = {1, SHT_NOBITS, SHF_ALLOC | SHF_EXECINSTR, base_, 0, size_, 0, 0, 64, 0};
    sections[kSymbols] = {7, SHT_SYMTAB, 0, 0, 0, 0, kStrings, 1, 8, sizeof(Elf64_Sym)};
    sections[kStrings] = {15, SHT_STRTAB, 0, 0, 0, 0, 0, 0, 1, 0};
    sections[kNamesOfSections] = {23, SHT_STRTAB, 0, 0, 0, 0, 0, 0, 1, 0};
    place(sections[kSymbols], symbols_.data(), symbols_.size() * sizeof(Elf64_Sym));
    place(sections[kStrings], strings_.data(), strings_.size());
    place(sections[kNamesOfSections], kNames, sizeof kNames);
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_REL;
#if defined(__aarch64__)
    header.e_machine = EM_AARCH64;
#else
    header.e_machine = EM_X86_64;
#endif
    header.e_version = EV_CURRENT;
    header.e_shoff = sizeof header;
    header.e_ehsize = sizeof header;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = kSections;
    header.e_shstrndx = kNamesOfSections;
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, sections, sizeof sections);
    return bytes;
  }

 private:
  enum Section : uint16_t { kText = 1, kSymbols, kStrings, kNamesOfSections, kSections };
  uintptr_t base_;
  uint64_t size_;
  std::vector<Elf64_Sym> symbols_;
  std::vector<char> strings_;
};

// A member of gdb's list while it lives.
class Registration {
 public:
  explicit Registration(std::vector<char> file) : file_(std::move(file)) {
    entry_.symfile_addr = file_.data();
    entry_.symfile_size = file_.size();
    std::lock_guard lock(ListMutex());
    entry_.next_entry = __jit_debug_descriptor.first_entry;
    if (entry_.next_entry != nullptr) entry_.next_entry->prev_entry = &entry_;
    __jit_debug_descriptor.first_entry = &entry_;
    Tell(1);
  }
  ~Registration() {
    std::lock_guard lock(ListMutex());
    if (entry_.next_entry != nullptr) entry_.next_entry->prev_entry = entry_.prev_entry;
    (entry_.prev_entry != nullptr ? entry_.prev_entry->next_entry : __jit_debug_descriptor.first_entry) =
        entry_.next_entry;
    Tell(2);
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

 private:
  void Tell(uint32_t action) {
    __jit_debug_descriptor.relevant_entry = &entry_;
    __jit_debug_descriptor.action_flag = action;
    __jit_debug_register_code();
    __jit_debug_descriptor.action_flag = 0;
    __jit_debug_descriptor.relevant_entry = nullptr;
  }
  const std::vector<char> file_;
  jit_code_entry entry_{};
};

// What the returned pointer keeps: the symbols go before the code does.
struct NamedCode {
  std::shared_ptr<const CodeMapping> code;
  Registration registration;
};

}  // namespace

std::shared_ptr<const CodeMapping> NameForGdb(const std::string& model, const Plan& plan,
                                              std::shared_ptr<const CodeMapping> code) {
  if (code->kernels() == 0) return code;
  uintptr_t begin = UINTPTR_MAX, end = 0;
  for (size_t kernel = 0; kernel < code->kernels(); ++kernel) {
    const auto address = reinterpret_cast<uintptr_t>(code->blob(kernel).data());
    begin = std::min(begin, address);
    end = std::max(end, address + code->blob(kernel).size());
  }
  SymbolFile file(begin, end - begin);
  for (size_t kernel = 0; kernel < code->kernels(); ++kernel)
    file.Add(SymbolName(model, plan, kernel), reinterpret_cast<uintptr_t>(code->entry(kernel)),
             code->blob(kernel).size() - static_cast<size_t>(reinterpret_cast<const uint8_t*>(code->entry(kernel)) -
                                                             code->blob(kernel).data()));
  const CodeMapping* mapping = code.get();
  auto named = std::shared_ptr<const NamedCode>(new NamedCode{std::move(code), Registration(file.Bytes())});
  return {std::move(named), mapping};
}

}  // namespace kiln
