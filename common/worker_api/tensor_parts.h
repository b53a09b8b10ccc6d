// Tensors in messages of a worker: as message parts or in shared memory. Private to this folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/worker_api/worker_api.h"
#include "schemas/worker_generated.h"

namespace kiln {

std::string Text(const flatbuffers::String* text);
Result<DType> DTypeOf(uint8_t number, const std::string& name);

std::vector<flatbuffers::Offset<fbs::TensorPart>> EncodeTensors(flatbuffers::FlatBufferBuilder& builder,
                                                                const std::vector<NamedTensor>& tensors,
                                                                std::vector<Bytes>& blobs);
// Everything is checked, and charged to `room` (null: not at all), before anything is allocated.
Status DecodeTensors(const flatbuffers::Vector<flatbuffers::Offset<fbs::TensorPart>>* list,
                     const std::vector<Bytes>& blobs, std::vector<NamedTensor>& tensors, TensorRoom* room = nullptr);

// A shared memory object of this process's making, removed at the end.
class SharedObject {
 public:
  static Result<std::unique_ptr<SharedObject>> Create(int64_t bytes);
  ~SharedObject();
  SharedObject(const SharedObject&) = delete;
  SharedObject& operator=(const SharedObject&) = delete;

  Status Write(const TensorRef& tensor, int64_t offset);
  const std::string& name() const { return name_; }

 private:
  SharedObject(std::string name, int file) : name_(std::move(name)), file_(file) {}
  std::string name_;
  int file_;
};

}  // namespace kiln
