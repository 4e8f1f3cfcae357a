// The gather floor: out[i] += x[column[e]] over rows, the least any attention must read; for the bench.
#pragma once
#include "parallel.h"
#include "plan.h"

namespace dynagat {

// On x86 in two copies, of which the loader picks the one this machine runs best.
#if defined(DYNAGAT_X86) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target_clones("avx2", "default")))
#endif
inline void add_row(float* to, const float* from, const float* next, int64_t floats) {
  for (int64_t c = 0; c < floats; c += 16) __builtin_prefetch(next + c);
  for (int64_t c = 0; c < floats; ++c) to[c] += from[c];
}

inline void gather_floor(const int32_t* rowptr, const int32_t* column, int64_t num_rows,
                         int64_t floats, const float* x, float* out, int threads) {
  const Plan plan = make_plan(rowptr, num_rows, 1);
  const int64_t last = rowptr[num_rows] - 1, ahead = std::clamp<int64_t>(2048 / floats, 2, 16);
  parallel_for(plan.tasks(), threads, [&](int64_t task) {
    for (int64_t i = plan.bounds[task]; i < plan.bounds[task + 1]; ++i)
      for (int64_t e = rowptr[i]; e < rowptr[i + 1]; ++e)
        add_row(out + i * floats, x + column[e] * floats,
                x + column[std::min(e + ahead, last)] * floats, floats);
  });
}

}  // namespace dynagat
