// What worker and compile service tell each other of their op tables: a segment means the same to both only if one
// table is a prefix of the other.
#pragma once

#include "common/messaging/envelope.h"

namespace kiln {

// Of this build.
TablePrefix OwnOpTable();
// Whether a peer's table agrees with this build's in the rows that both have. Of a longer table only the peer could
// tell that; its segments name the rows that they use, and are refused one by one.
bool IsOpTableCompatible(TablePrefix peer);

}  // namespace kiln
