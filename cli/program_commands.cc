// import, asm, dis, verify: programs from one form to another.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/output_file.h"
#include "cli/say.h"
#include "common/bytecode/compact.h"
#include "common/bytecode/program_codec.h"
#include "common/bytecode/program_text.h"
#include "vm-worker/interp/loaded_program.h"
#include "vm-worker/load/memory_bound.h"
#include "vm-worker/onnx/model_source.h"

namespace kiln::cli {
namespace {

struct ProgramArguments {
  std::string input;
  std::string output;
  bool text = false;
  bool dynamic = false;
  std::vector<std::string> dims;
  bool compact = false;
};

// Refused before anything is written: the model's own file and those of its weights.
Status CheckOutput(const ProgramArguments& arguments, const ImportedModel& model) {
  std::vector<std::filesystem::path> sources = model.weight_files;
  sources.emplace_back(arguments.input);
  return CheckIsNoSource(arguments.output, sources);
}

Status WriteBinary(const Program& program, const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, EncodeProgram(program));
  return WriteFile(path, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

// To a file, or to stdout where none is named.
Status WriteOut(const std::string& text, const std::string& path) {
  if (!path.empty()) return WriteFile(path, text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    return Fail(ErrorCode::kIoError, "standard output cannot be written");
  }
  return {};
}

Status WriteText(const Program& program, const std::string& path) {
  return WriteOut(PrintProgram(program), path);
}

size_t NodeCount(const Program& program) {
  size_t nodes = 0;
  for (const Function& function : program.functions) {
    for (const Region& region : function.regions) nodes += region.nodes.size();
  }
  return nodes;
}

void Describe(const Program& program, std::FILE* out) {
  const Function& entry = program.entry();
  const auto list = [&](const char* title, const std::vector<ValueId>& values) {
    for (ValueId id : values) {
      const Value& value = entry.values[static_cast<size_t>(id)];
      SayTo(out, "  {} {}: {}\n", title, value.name, ToString(value.desc, program.symbols));
    }
  };
  SayTo(out, "{} nodes, {} constants, {} symbols\n", NodeCount(program), program.constants.size(),
        program.symbols.symbol_count());
  list("input", entry.regions[0].inputs);
  list("output", entry.regions[0].outputs);
  const MemoryBound bound = BoundMemory(program);
  if (bound.bytes) {
    SayTo(out, "  tensors of one run: at most {} bytes\n", *bound.bytes);
  } else {
    SayTo(out, "  tensors of one run: no bound; {}\n", bound.reason);
  }
}

Result<int> RunImport(const ProgramArguments& arguments) {
  ImportOptions options{.all_dims_dynamic = arguments.dynamic};
  auto hints = ParseDimHints(arguments.dims);
  if (!hints) return FailIn("--dim", hints.error());
  options.dim_hints = *std::move(hints);
  ASSIGN_OR_RETURN(const ModelForm form, FormOf(arguments.input));
  if (form != ModelForm::kOnnx)
    return Fail(ErrorCode::kInvalidArgument,
                arguments.input + " is a program of Kiln already, " +
                    (form == ModelForm::kBinary ? "in its binary form; `kiln dis` gives its text"
                                                : "in its text form; `kiln asm` gives its binary form"));
  ASSIGN_OR_RETURN(const ImportedModel model, ImportOnnx(arguments.input, options));
  RETURN_IF_ERROR(CheckOutput(arguments, model));
  if (arguments.text) {
    RETURN_IF_ERROR(WriteText(model.program, arguments.output));
  } else {
    RETURN_IF_ERROR(WriteBinary(model.program, arguments.output));
  }
  Describe(model.program, stderr);
  return 0;
}

Result<int> RunAsm(const ProgramArguments& arguments) {
  ASSIGN_OR_RETURN(const ImportedModel model, ReadModel(arguments.input));
  RETURN_IF_ERROR(CheckOutput(arguments, model));
  RETURN_IF_ERROR(WriteBinary(model.program, arguments.output));
  return 0;
}

Result<int> RunDis(const ProgramArguments& arguments) {
  ASSIGN_OR_RETURN(ImportedModel model, ReadModel(arguments.input));
  RETURN_IF_ERROR(CheckOutput(arguments, model));
  if (arguments.compact) {
    ASSIGN_OR_RETURN(const auto loaded, LoadedProgram::Load(std::move(model.program)));
    RETURN_IF_ERROR(WriteOut(PrintableLines(Disassemble(loaded->code(), loaded->program())), arguments.output));
  } else {
    RETURN_IF_ERROR(WriteText(model.program, arguments.output));
  }
  return 0;
}

Result<int> RunVerify(const ProgramArguments& arguments) {
  ASSIGN_OR_RETURN(ImportedModel model, ReadModel(arguments.input));
  // Loading runs the shape rules, which find dims that contradict each other.
  ASSIGN_OR_RETURN(const auto loaded, LoadedProgram::Load(std::move(model.program)));
  Say("{}: valid, ", arguments.input);
  Describe(loaded->program(), stdout);
  return 0;
}

using Command = Result<int> (*)(const ProgramArguments&);

CLI::App* AddCommand(CLI::App& app, Action& action, const char* name, const char* doc, const char* input_doc,
                     Command run, const std::shared_ptr<ProgramArguments>& arguments) {
  CLI::App* command = app.add_subcommand(name, doc);
  command->add_option("input", arguments->input, input_doc)->required();
  command->callback([arguments, run, &action] { action = [arguments, run] { return run(*arguments); }; });
  return command;
}

}  // namespace

void AddProgramCommands(CLI::App& app, Action& action) {
  const auto arguments = std::make_shared<ProgramArguments>();
  CLI::App* import = AddCommand(app, action, "import", "ONNX to a program", "The model", RunImport, arguments);
  import->add_option("-o,--output", arguments->output, "The file to write")->required();
  import->add_flag("--text", arguments->text, "Write program text, not the binary form");
  import
      ->add_option("--dim", arguments->dims,
                   "NAME=LOW..HIGH or NAME=LOW..HIGH:DIVISOR: what a symbol of the model, or INPUT.AXIS, may be")
      ->allow_extra_args(false);
  import->add_flag("--dynamic", arguments->dynamic, "Make every input dim a symbol");
  CLI::App* assemble =
      AddCommand(app, action, "asm", "Program text to the binary form", "The program text", RunAsm, arguments);
  assemble->add_option("-o,--output", arguments->output, "The file to write")->required();
  CLI::App* dis =
      AddCommand(app, action, "dis", "Any form of a program to text", "ONNX, binary or text", RunDis, arguments);
  dis->add_option("-o,--output", arguments->output, "The file to write; standard output without it");
  dis->add_flag("--compact", arguments->compact, "The compact form that the interpreter runs");
  AddCommand(app, action, "verify", "Check a program", "ONNX, binary or text", RunVerify, arguments);
}

}  // namespace kiln::cli
