// Memory bandwidth that one core reaches at this moment.
#pragma once

namespace kiln::bench {

// GB/s of summing a buffer larger than the caches, read once.
double MeasureReadBandwidth();

}  // namespace kiln::bench
