// The kernels of all instruction sets; bindings.cpp chooses one when the module is loaded.
#pragma once
#include "problem.h"

namespace dynagat {

// The forward (or backward) pass of one mechanism; returns a Fault.
using Kernel = int(const Problem& problem, bool backward);

// out[i] += x[column[e]] for every edge e of row i. Attention must read at least this much memory,
// so the benchmarks compare with it.
using Floor = void(const int32_t* rowptr, const int32_t* column, int64_t num_rows, int64_t floats,
                   const float* x, float* out, int threads);

namespace baseline {
Kernel gat, gatv2, dpgat;
Floor gather_floor;
}  // namespace baseline
namespace avx2 {
Kernel gat, gatv2, dpgat;
Floor gather_floor;
}  // namespace avx2
namespace avx512 {
Kernel gat, gatv2, dpgat;
Floor gather_floor;
}  // namespace avx512

}  // namespace dynagat
