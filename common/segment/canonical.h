// The canonical form of a site: how its values, constants and symbols are renumbered.
#pragma once

#include "common/bytecode/symbol_definitions.h"
#include "common/segment/segment.h"

namespace kiln {

// Builds the body from nodes and outputs of `site`, and fills the site's inputs, weights and parameters in canonical
// order. The result has no id. Precondition: the program was verified, the site was found in it.
Segment BuildCanonical(const Program& program, const SymbolDefinitions& definitions, SegmentSite* site);

}  // namespace kiln
