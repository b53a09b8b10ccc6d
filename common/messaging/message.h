// What a method's caller and handler exchange: an encoded payload and raw blobs.
#pragma once

#include <vector>

#include "common/base/bytes.h"

namespace kiln {

struct Message {
  Bytes payload;             // a FlatBuffer of the method's schema, unverified until its codec decoded it
  std::vector<Bytes> blobs;  // further message parts
};

}  // namespace kiln
