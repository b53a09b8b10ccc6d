// The check that generated FlatBuffers code makes of every vector (cmake/kiln.cmake puts it there). The library's own
// verifier looks at the bounds of elements and not at where they begin, so that damaged bytes could have numbers read
// from odd addresses.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <type_traits>

namespace kiln {

// Whether the vector lies within the bytes and its elements, if any, at a multiple of their alignment. Null: the field
// is absent.
template <class T>
bool VerifyFlatVector(const flatbuffers::Verifier& verifier, const flatbuffers::Vector<T>* vector) {
  using Element = std::remove_const_t<std::remove_pointer_t<T>>;
  if (!verifier.VerifyVector(vector)) return false;
  return vector == nullptr || vector->size() == 0 ||
         reinterpret_cast<uintptr_t>(vector->Data()) % alignof(Element) == 0;
}

}  // namespace kiln
