// CallFunc: operators of plug-ins.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "common/ops/kernels/kernel.h"
#include "common/ops/kernels/table.h"
#include "common/ops/user_ops.h"

namespace kiln::kernels {
namespace {

constexpr size_t kMessageBytes = 512;

// What a node's attributes say, in the plug-in's form.
struct UserCall {
  const UserOp* op = nullptr;
  std::string name;   // "domain.type"
  std::string fault;  // why there is no call
  ErrorCode fault_code = ErrorCode::kNotFound;
  struct Argument {
    std::string name, text;
    std::vector<int64_t> ints;
    std::vector<double> floats;
  };
  std::vector<Argument> storage;
  std::vector<KilnAttribute> arguments;
};

// "name kind rest"; false for any other text.
bool ParseArgument(std::string_view text, UserCall::Argument& to, KilnAttribute& attribute) {
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || text.size() < space + 2) return false;
  to.name = text.substr(0, space);
  attribute.kind = text[space + 1];
  const std::string rest(text.size() > space + 3 ? text.substr(space + 3) : std::string_view());
  const char* at = rest.c_str();
  char* end = nullptr;
  const auto more = [&at] {
    while (*at == ' ') ++at;
    return *at != 0;
  };
  switch (attribute.kind) {
    case 's':
      to.text = rest;
      return true;
    case 'i':
    case 'I':
      for (; more(); at = end) {
        to.ints.push_back(std::strtoll(at, &end, 10));
        if (end == at) return false;
      }
      return attribute.kind == 'I' || to.ints.size() == 1;
    case 'f':
    case 'F':
      for (; more(); at = end) {
        to.floats.push_back(std::strtod(at, &end));
        if (end == at) return false;
      }
      return attribute.kind == 'F' || to.floats.size() == 1;
    default:
      return false;
  }
}

std::shared_ptr<const void> Prepare(const Attributes& attributes) {
  auto call = std::make_shared<UserCall>();
  const std::string domain(attributes.Text("domain", "")), type(attributes.Text("type", ""));
  call->name = domain + "." + type;
  call->op = FindUserOp(domain, type);
  if (call->op == nullptr) {
    call->fault = "no plug-in of this process declares " + call->name + "; start the worker with --plugin";
    return call;
  }
  // The program was checked against what it says of the outputs; the plug-in must still say the same.
  const std::span<const int64_t> dtypes = attributes.Ints("output_dtypes"), ranks = attributes.Ints("output_ranks");
  bool same = dtypes.size() == ranks.size() && dtypes.size() <= call->op->outputs.size();
  for (size_t i = 0; same && i < dtypes.size(); ++i)
    same = dtypes[i] == call->op->outputs[i].dtype && ranks[i] == call->op->outputs[i].rank;
  if (!same) {
    call->fault = call->name + ": the program was made for another version of plug-in " + call->op->plugin +
                  ", with outputs of other types; import the model again";
    call->fault_code = ErrorCode::kInvalidArgument;
    return call;
  }
  const std::span<const std::string> texts = attributes.Texts("arguments");
  call->storage.resize(texts.size());
  call->arguments.resize(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    UserCall::Argument& held = call->storage[i];
    KilnAttribute& argument = call->arguments[i];
    argument = {};
    if (!ParseArgument(texts[i], held, argument)) call->fault = call->name + ": argument \"" + texts[i] + "\" is none";
    argument.name = held.name.c_str();
    argument.s = held.text.c_str();
    argument.i = held.ints.empty() ? 0 : held.ints.front();
    argument.f = held.floats.empty() ? 0 : held.floats.front();
    argument.ints = held.ints.data();
    argument.floats = held.floats.data();
    argument.count = held.ints.size() + held.floats.size();
  }
  return call;
}

// Calls into the library; its exceptions, if it is C++, must not pass.
Status Invoke(const UserCall& user, KilnPluginFunction function, const char* what, KilnPluginCall& call) {
  char message[kMessageBytes] = {};
  call.message = message;
  call.message_size = sizeof message;
  int failed = 0;
  try {
    failed = function(&call);
  } catch (...) {
    return Fail(ErrorCode::kInternal, fmt::format("{}: its {} function threw an exception", user.name, what));
  }
  if (failed == 0) return {};
  message[kMessageBytes - 1] = 0;
  return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: its {} function failed with {}: {}", user.name, what,
                                                       failed, message[0] == 0 ? "no reason given" : message));
}

// Rank and dims that the library set, against its declaration.
Result<Dims> CheckedDims(const UserCall& user, size_t output, const KilnTensor& made,
                         std::span<const KilnTensor> inputs) {
  int declared = user.op->outputs[output].rank;
  if (declared < 0 && declared != KILN_RANK_FROM_SHAPE && static_cast<size_t>(-1 - declared) < inputs.size())
    declared = inputs[static_cast<size_t>(-1 - declared)].rank;
  if (made.rank < 0 || made.rank > limits::kRankMax || (declared >= 0 && made.rank != declared))
    return Fail(ErrorCode::kShapeMismatch,
                fmt::format("{}: its shape function gave output {} rank {}; {}", user.name, output, made.rank,
                            declared >= 0 ? fmt::format("it declares {}", declared)
                                          : fmt::format("0 to {} are possible", limits::kRankMax)));
  Dims dims;
  for (int i = 0; i < made.rank; ++i) {
    if (made.dims[i] < 0)
      return Fail(ErrorCode::kShapeMismatch, fmt::format("{}: its shape function gave dim {} of output {} the size {}",
                                                         user.name, i, output, made.dims[i]));
    dims.push_back(made.dims[i]);
  }
  return dims;
}

KilnTensor TensorOf(const TensorRef& ref) {
  KilnTensor tensor{};
  tensor.data = ref.data;
  tensor.dtype = static_cast<int32_t>(ref.dtype);
  tensor.rank = ref.rank();
  for (int i = 0; i < ref.rank(); ++i) tensor.dims[i] = ref.dims[i];
  return tensor;
}

Status RunCallFunc(KernelCall& call) {
  std::shared_ptr<const void> held;
  const auto* user = static_cast<const UserCall*>(call.prepared);
  if (user == nullptr) {
    held = Prepare(*call.attributes);
    user = static_cast<const UserCall*>(held.get());
  }
  if (!user->fault.empty()) return Fail(user->fault_code, user->fault);
  std::vector<KilnTensor> inputs, outputs;
  std::vector<DType> dtypes;  // ours: the library may write over its copy
  for (const TensorRef& input : call.inputs) inputs.push_back(TensorOf(input));
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (i >= call.attributes->Ints("output_dtypes").size())
      return Fail(ErrorCode::kInvalidArgument, user->name + " has fewer outputs");
    const int32_t declared = user->op->outputs[i].dtype;
    if (declared < 0 && static_cast<size_t>(-1 - declared) >= inputs.size())
      return Fail(ErrorCode::kInvalidArgument, user->name + " lacks an input that it needs");
    KilnTensor output{};
    output.dtype = declared < 0 ? inputs[static_cast<size_t>(-1 - declared)].dtype : declared;
    outputs.push_back(output);
    dtypes.push_back(*DTypeFromNumber(output.dtype));  // a declaration is checked when it is registered
  }
  KilnPluginCall asked{inputs.data(),          inputs.size(),          outputs.data(), outputs.size(),
                       user->arguments.data(), user->arguments.size(), nullptr,        0};
  RETURN_IF_ERROR(Invoke(*user, user->op->shape, "shape", asked));
  for (size_t i = 0; i < outputs.size(); ++i) {
    ASSIGN_OR_RETURN(const Dims dims, CheckedDims(*user, i, outputs[i], inputs));
    RETURN_IF_ERROR(AllocateOutput(call, i, dtypes[i], dims));
    outputs[i] = TensorOf(call.outputs[i]);
  }
  return Invoke(*user, user->op->compute, "compute", asked);
}

}  // namespace

ReferenceKernel CallFunc(DType) {
  return {&RunCallFunc, false, &Prepare};
}

}  // namespace kiln::kernels
