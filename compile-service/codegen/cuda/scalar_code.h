// Scalar programs as C++: names of types, conversions between compute types and memory, and nodes as constants.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compile-service/codegen/cuda/source_writer.h"
#include "compile-service/ir/kernel_spec.h"

namespace kiln::codegen::cuda {

std::string_view TypeName(DType compute);  // float, long long, …
std::string StorageName(DType storage);    // kiln_f32, kiln_u8, …: types of the prelude
std::string Literal(DType type, double number, int64_t integer);
std::string FloatLiteral(double number);  // of an f32
// What a combination begins with, and the prelude's name of it.
std::string IdentityOf(ir::Combine combine, DType type);
std::string_view CombineName(ir::Combine combine);

std::string Converted(const std::string& value, DType from, DType to);
// What memory holds, as a compute type, and back.
std::string Loaded(const std::string& element, DType storage, DType type);
std::string Stored(const std::string& value, DType type, DType storage);

// The nodes of a program as constants v0, v1, … where they are needed. Leaves come from the loop around them.
class ScalarCode {
 public:
  using Leaf = std::function<std::string(const ir::ScalarNode& node)>;
  ScalarCode(SourceWriter& out, const ir::ScalarProgram& program, Leaf leaf)
      : out_(out), program_(program), leaf_(std::move(leaf)), written_(program.size(), false) {}

  // Writes those of `wanted` that were not written in this scope or around it.
  void Write(const std::vector<bool>& wanted);
  std::string Value(int32_t node) const { return "v" + std::to_string(node); }
  DType TypeOf(int32_t node) const { return program_[static_cast<size_t>(node)].type; }
  // What `body` writes is forgotten behind it.
  template <class Body>
  void Scope(Body&& body) {
    const std::vector<bool> outside = written_;
    body();
    written_ = outside;
  }

 private:
  std::string Expression(const ir::ScalarNode& node) const;

  SourceWriter& out_;
  const ir::ScalarProgram& program_;
  const Leaf leaf_;
  std::vector<bool> written_;
};

}  // namespace kiln::codegen::cuda
