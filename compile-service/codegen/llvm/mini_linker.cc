#include "compile-service/codegen/llvm/mini_linker.h"

#include <elf.h>

#include <cstring>
#include <optional>
#include <string>

#include "common/base/checked_math.h"

namespace kiln::codegen {

namespace {

constexpr uint64_t kCodeAlignment = 64;

// Bounds-checked reading of one object.
class ElfObject {
 public:
  explicit ElfObject(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  Status Parse(uint16_t machine) {
    ASSIGN_OR_RETURN(header_, Read<Elf64_Ehdr>(0));
    if (std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0 || header_.e_ident[EI_CLASS] != ELFCLASS64 ||
        header_.e_ident[EI_DATA] != ELFDATA2LSB || header_.e_type != ET_REL || header_.e_machine != machine)
      return Fail(ErrorCode::kMalformed,
                  "object is no 64-bit little-endian relocatable ELF file of the target's machine");
    for (uint64_t i = 0; i < header_.e_shnum; ++i) {
      ASSIGN_OR_RETURN(Elf64_Shdr section, Read<Elf64_Shdr>(header_.e_shoff + i * sizeof(Elf64_Shdr)));
      if (section.sh_type == SHT_SYMTAB) symbol_table_ = i;
      sections_.push_back(section);
    }
    if (!symbol_table_) return Fail(ErrorCode::kMalformed, "object has no symbol table");
    return {};
  }

  template <class T>
  Result<T> Read(uint64_t offset) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(T))
      return Fail(ErrorCode::kMalformed, "object is truncated at byte " + std::to_string(offset));
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }

  Result<std::span<const uint8_t>> Content(const Elf64_Shdr& section) const {
    if (section.sh_offset > bytes_.size() || bytes_.size() - section.sh_offset < section.sh_size)
      return Fail(ErrorCode::kMalformed, "a section lies outside the object");
    return bytes_.subspan(section.sh_offset, section.sh_size);
  }

  Result<std::string> Text(uint64_t table, uint64_t offset) const {
    if (table >= sections_.size())
      return Fail(ErrorCode::kMalformed, "object names string table " + std::to_string(table));
    ASSIGN_OR_RETURN(std::span<const uint8_t> content, Content(sections_[table]));
    std::string text;
    for (uint64_t i = offset; i < content.size(); ++i) {
      if (content[i] == 0) return text;
      text.push_back(static_cast<char>(content[i]));
    }
    return Fail(ErrorCode::kMalformed, "a name of the object does not end");
  }

  Result<std::string> NameOf(const Elf64_Shdr& section) const { return Text(header_.e_shstrndx, section.sh_name); }
  const std::vector<Elf64_Shdr>& sections() const { return sections_; }

  Result<Elf64_Sym> Symbol(uint64_t index) const {
    const Elf64_Shdr& table = sections_[*symbol_table_];
    if (index >= table.sh_size / sizeof(Elf64_Sym))
      return Fail(ErrorCode::kMalformed, "object has no symbol " + std::to_string(index));
    return Read<Elf64_Sym>(table.sh_offset + index * sizeof(Elf64_Sym));
  }
  uint64_t symbol_count() const { return sections_[*symbol_table_].sh_size / sizeof(Elf64_Sym); }
  Result<std::string> NameOf(const Elf64_Sym& symbol) const {
    return Text(sections_[*symbol_table_].sh_link, symbol.st_name);
  }

 private:
  std::span<const uint8_t> bytes_;
  Elf64_Ehdr header_{};
  std::vector<Elf64_Shdr> sections_;
  std::optional<uint64_t> symbol_table_;
};

class FlatLinker {
 public:
  FlatLinker(std::span<const uint8_t> object, Architecture architecture)
      : object_(object), architecture_(architecture) {}

  Result<FlatCode> Link(std::string_view entry) {
    RETURN_IF_ERROR(object_.Parse(architecture_ == Architecture::kX86 ? EM_X86_64 : EM_AARCH64));
    RETURN_IF_ERROR(LayOut());
    for (const Elf64_Shdr& section : object_.sections()) {
      if (section.sh_type == SHT_REL) return Fail(ErrorCode::kUnsupported, "object has relocations without addends");
      if (section.sh_type == SHT_RELA) RETURN_IF_ERROR(Relocate(section));
    }
    for (uint64_t i = 0; i < object_.symbol_count(); ++i) {
      ASSIGN_OR_RETURN(Elf64_Sym symbol, object_.Symbol(i));
      ASSIGN_OR_RETURN(std::string name, object_.NameOf(symbol));
      if (name != entry || ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) continue;
      ASSIGN_OR_RETURN(int64_t offset, Place(symbol));
      return FlatCode{std::move(flat_), static_cast<uint32_t>(offset)};
    }
    return Fail(ErrorCode::kCompileFailed, "object does not define '" + std::string(entry) + "'");
  }

 private:
  Status LayOut() {
    for (const Elf64_Shdr& section : object_.sections()) {
      places_.push_back(-1);
      if ((section.sh_flags & SHF_ALLOC) == 0 || section.sh_size == 0) continue;
      ASSIGN_OR_RETURN(std::string name, object_.NameOf(section));
      const bool known = name.starts_with(".text") || name.starts_with(".rodata");
      if (!known || section.sh_type != SHT_PROGBITS || (section.sh_flags & SHF_WRITE) != 0)
        return Fail(ErrorCode::kCompileFailed,
                    "object has section '" + name + "'; only code and constants can be linked");
      if (section.sh_addralign > kCodeAlignment)
        return Fail(ErrorCode::kCompileFailed, "section '" + name + "' wants an alignment above 64");
      ASSIGN_OR_RETURN(std::span<const uint8_t> content, object_.Content(section));
      const auto alignment = static_cast<int64_t>(section.sh_addralign == 0 ? 1 : section.sh_addralign);
      flat_.resize(static_cast<size_t>(RoundUp(static_cast<int64_t>(flat_.size()), alignment)), 0);
      places_.back() = static_cast<int64_t>(flat_.size());
      flat_.insert(flat_.end(), content.begin(), content.end());
    }
    return {};
  }

  // Offset of a defined symbol in the flat code.
  Result<int64_t> Place(const Elf64_Sym& symbol) const {
    if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx >= places_.size() || places_[symbol.st_shndx] < 0) {
      ASSIGN_OR_RETURN(std::string name, object_.NameOf(symbol));
      return Fail(ErrorCode::kCompileFailed, "generated code refers to '" + name + "', which it does not define");
    }
    return places_[symbol.st_shndx] + static_cast<int64_t>(symbol.st_value);
  }

  Status Relocate(const Elf64_Shdr& table) {
    if (table.sh_info >= places_.size())
      return Fail(ErrorCode::kMalformed, "relocations for a section that is not there");
    if (places_[table.sh_info] < 0) return {};  // debug or unwind information, not linked
    const uint64_t section_size = object_.sections()[table.sh_info].sh_size;
    for (uint64_t i = 0; i < table.sh_size / sizeof(Elf64_Rela); ++i) {
      ASSIGN_OR_RETURN(Elf64_Rela relocation, object_.Read<Elf64_Rela>(table.sh_offset + i * sizeof(Elf64_Rela)));
      if (section_size < 4 || relocation.r_offset > section_size - 4)
        return Fail(ErrorCode::kMalformed, "a relocation lies outside its section");
      ASSIGN_OR_RETURN(Elf64_Sym symbol, object_.Symbol(ELF64_R_SYM(relocation.r_info)));
      ASSIGN_OR_RETURN(int64_t target, Place(symbol));
      const int64_t place = places_[table.sh_info] + static_cast<int64_t>(relocation.r_offset);
      const int64_t distance = target + relocation.r_addend - place;
      const auto type = static_cast<uint32_t>(ELF64_R_TYPE(relocation.r_info));
      RETURN_IF_ERROR(architecture_ == Architecture::kX86 ? PatchX86(type, place, distance)
                                                          : PatchArm(type, place, distance));
    }
    return {};
  }

  Status PatchX86(uint32_t type, int64_t place, int64_t distance) {
    if (type != R_X86_64_PC32 && type != R_X86_64_PLT32) return UnknownRelocation(type);
    if (distance != static_cast<int32_t>(distance)) return TooFar();
    WriteWord(place, static_cast<uint32_t>(distance));
    return {};
  }

  // ADR and load-literal carry 21-bit distances (tiny code model), branches 26-bit ones in words.
  Status PatchArm(uint32_t type, int64_t place, int64_t distance) {
    uint32_t word = ReadWord(place);
    const auto bits = static_cast<uint32_t>(distance);
    switch (type) {
      case R_AARCH64_ADR_PREL_LO21:
        if (distance < -(1 << 20) || distance >= (1 << 20)) return TooFar();
        word = (word & ~0x60ffffe0u) | (bits & 3) << 29 | ((bits >> 2) & 0x7ffff) << 5;
        break;
      case R_AARCH64_LD_PREL_LO19:
        if (distance < -(1 << 20) || distance >= (1 << 20) || (distance & 3) != 0) return TooFar();
        word = (word & ~0x00ffffe0u) | ((bits >> 2) & 0x7ffff) << 5;
        break;
      case R_AARCH64_CALL26:
      case R_AARCH64_JUMP26:
        if (distance < -(1 << 27) || distance >= (1 << 27) || (distance & 3) != 0) return TooFar();
        word = (word & ~0x03ffffffu) | ((bits >> 2) & 0x03ffffff);
        break;
      case R_AARCH64_PREL32:
        word = bits;
        break;
      default:
        return UnknownRelocation(type);
    }
    WriteWord(place, word);
    return {};
  }

  static Status UnknownRelocation(uint32_t type) {
    return Fail(ErrorCode::kCompileFailed,
                "relocation type " + std::to_string(type) + " is not relative to code; flat code cannot hold it");
  }
  static Status TooFar() {
    return Fail(ErrorCode::kCompileFailed, "a constant lies too far from the code that reads it");
  }

  uint32_t ReadWord(int64_t place) const {
    uint32_t word;
    std::memcpy(&word, flat_.data() + place, 4);
    return word;
  }
  void WriteWord(int64_t place, uint32_t word) { std::memcpy(flat_.data() + place, &word, 4); }

  ElfObject object_;
  Architecture architecture_;
  std::vector<uint8_t> flat_;
  std::vector<int64_t> places_;  // of each section in flat_, -1 when it is not linked
};

}  // namespace

Result<FlatCode> LinkFlat(std::span<const uint8_t> object, Architecture architecture, std::string_view entry) {
  return FlatLinker(object, architecture).Link(entry);
}

}  // namespace kiln::codegen
