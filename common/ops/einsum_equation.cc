#include "common/ops/einsum_equation.h"

#include <algorithm>
#include <map>

namespace kiln {
namespace {

bool IsLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// One term, with the ellipsis as -1.
Result<List<int>> ParseTerm(std::string_view term) {
  List<int> labels;
  bool has_ellipsis = false;
  for (size_t i = 0; i < term.size(); ++i) {
    if (term[i] == '.') {
      if (has_ellipsis || term.substr(i, 3) != "...") {
        return Fail(ErrorCode::kMalformed, "the Einsum term '" + std::string(term) + "' has a wrong ellipsis");
      }
      has_ellipsis = true;
      labels.push_back(-1);
      i += 2;
    } else if (IsLetter(term[i])) {
      labels.push_back(term[i]);
    } else {
      return Fail(ErrorCode::kMalformed, "the Einsum term '" + std::string(term) + "' holds the character '" +
                                             std::string(1, term[i]) + "'; only letters and '...' are labels");
    }
  }
  return labels;
}

void ReplaceEllipsis(List<int>& labels, int dims) {
  const auto at = std::find(labels.begin(), labels.end(), -1);
  if (at == labels.end()) return;
  List<int> replacement;
  for (int d = dims; d-- > 0;) replacement.push_back(EinsumEquation::kEllipsisLabel + d);
  const auto position = labels.erase(at);
  labels.insert(position, replacement.begin(), replacement.end());
}

}  // namespace

Result<EinsumEquation> ParseEinsum(std::string_view equation, const List<int>& ranks) {
  List<char> letters;
  for (const char c : equation) {
    if (c != ' ') letters.push_back(c);
  }
  const std::string_view text(letters.data(), letters.size());
  const size_t arrow = text.find("->");
  const std::string_view left = text.substr(0, std::min(arrow, text.size()));
  EinsumEquation result;
  size_t begin = 0;
  while (true) {
    const size_t comma = std::min(left.find(',', begin), left.size());
    ASSIGN_OR_RETURN(List<int> labels, ParseTerm(left.substr(begin, comma - begin)));
    result.inputs.push_back(std::move(labels));
    if (comma == left.size()) break;
    begin = comma + 1;
  }
  if (result.inputs.size() != ranks.size()) {
    return Fail(ErrorCode::kShapeMismatch, "the Einsum equation has " + std::to_string(result.inputs.size()) +
                                               " terms for " + std::to_string(ranks.size()) + " inputs");
  }
  int ellipsis_dims = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    List<int>& labels = result.inputs[i];
    const bool has_ellipsis = std::find(labels.begin(), labels.end(), -1) != labels.end();
    const int own = ranks[i] - static_cast<int>(labels.size()) + (has_ellipsis ? 1 : 0);
    if (own < 0 || (!has_ellipsis && own != 0)) {
      return Fail(ErrorCode::kShapeMismatch, "term " + std::to_string(i) +
                                                 " of the Einsum equation does not fit the rank " +
                                                 std::to_string(ranks[i]) + " of its input");
    }
    ReplaceEllipsis(labels, own);
    ellipsis_dims = std::max(ellipsis_dims, has_ellipsis ? own : 0);
  }
  std::map<int, int, std::less<>, ListAllocator<std::pair<const int, int>>> uses;
  for (const List<int>& labels : result.inputs) {
    for (const int label : labels) ++uses[label];
  }
  if (arrow != std::string::npos) {
    ASSIGN_OR_RETURN(result.output, ParseTerm(text.substr(arrow + 2)));
    ReplaceEllipsis(result.output, ellipsis_dims);
  } else {
    for (int d = ellipsis_dims; d-- > 0;) result.output.push_back(EinsumEquation::kEllipsisLabel + d);
    for (const auto& [label, count] : uses) {
      if (count == 1 && label < EinsumEquation::kEllipsisLabel) result.output.push_back(label);
    }
  }
  for (const int label : result.output) {
    if (!uses.contains(label)) {
      return Fail(ErrorCode::kMalformed, "the Einsum output has a label that no input has");
    }
  }
  return result;
}

}  // namespace kiln
