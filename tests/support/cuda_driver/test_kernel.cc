// A kernel as the double loads it, written by hand: y = f(x), or x + w, over f32, one item of the range per element.
// What it does besides is chosen where it is compiled.
#include <cstdint>
#include <cstring>

namespace {

#if defined(KILN_KERNEL_ADDS)
struct Args {
  float* pointers[3];  // x, y, w
  long long dims[2];   // elements, elements of w
};
#else
struct Args {
  float* pointers[2];  // x, y
  long long dims[1];   // elements
};
#endif

float Of(float x) {
#if defined(KILN_KERNEL_ADDS)
  return x;
#elif defined(KILN_KERNEL_WRONG)
  return x < 0 ? -x : x;
#else
  return x < 0 ? 0 : x;
#endif
}

}  // namespace

extern "C" int kiln_shim_launch(unsigned grid_x, unsigned block_x, unsigned, void** parameters) {
  const auto& args = *static_cast<const Args*>(parameters[0]);
  const long long begin = *static_cast<long long*>(parameters[1]), end = *static_cast<long long*>(parameters[2]);
  // As a grid does it: a thread per item, those beyond the end do nothing.
  for (long long i = begin; i < begin + static_cast<long long>(grid_x) * block_x && i < end; ++i)
#if defined(KILN_KERNEL_ADDS)
    args.pointers[1][i] = Of(args.pointers[0][i]) + args.pointers[2][i % args.dims[1]];
#else
    args.pointers[1][i] = Of(args.pointers[0][i]);
#endif
#if defined(KILN_KERNEL_FAULTS)
  args.pointers[1][1ll << 40] = 1;
#endif
#if defined(KILN_KERNEL_STRAYS)  // beside its output
  if (end == args.dims[0]) args.pointers[1][end] = 1;
#endif
#if defined(KILN_KERNEL_READS_BESIDE)
  if (end == args.dims[0] && begin < end) args.pointers[1][begin] += 0 * args.pointers[0][end];
#endif
  return 0;
}

extern "C" const char* kiln_shim_error() {
  return "";
}
