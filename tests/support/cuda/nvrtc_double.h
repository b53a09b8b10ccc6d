// The double of NVRTC (nvrtc_double.cc), for whoever starts a compile service or child: its path as --nvrtc takes it.
#pragma once

namespace kiln::testing {

inline constexpr char kNvrtcDouble[] = KILN_NVRTC_DOUBLE;

}  // namespace kiln::testing
