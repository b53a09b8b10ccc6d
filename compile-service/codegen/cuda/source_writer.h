// SourceWriter: lines of C++ with their indentation.
#pragma once

#include <spdlog/fmt/fmt.h>

#include <string>
#include <utility>

namespace kiln::codegen::cuda {

class SourceWriter {
 public:
  template <class... Args>
  void Line(fmt::format_string<Args...> format, Args&&... args) {
    Put(fmt::format(format, std::forward<Args>(args)...));
  }
  void Put(std::string_view line) {
    text_.append(2 * depth_, ' ');
    text_ += line;
    text_ += '\n';
  }
  // `head {`, then what `body` writes, then `}`. An empty head is a plain block.
  template <class Body>
  void Block(const std::string& head, Body&& body) {
    Put(head.empty() ? "{" : head + " {");
    ++depth_;
    body();
    --depth_;
    Put("}");
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
  size_t depth_ = 0;
};

}  // namespace kiln::codegen::cuda
