// gather_floor (see kernels.h), compiled once per instruction set.
#include "kernels.h"
#include "parallel.h"
#include "plan.h"
#include "simd.h"

namespace dynagat {
namespace DYNAGAT_ISA {

void gather_floor(const int32_t* rowptr, const int32_t* column, int64_t num_rows, int64_t floats,
                  const float* x, float* out, int threads) {
  const Plan plan = make_plan(rowptr, num_rows, 1);
  const int64_t last = rowptr[num_rows] - 1, ahead = std::clamp<int64_t>(2048 / floats, 2, 32);
  parallel_for(plan.tasks(), threads, [&](int64_t task) {
    for (int64_t i = plan.bounds[task]; i < plan.bounds[task + 1]; ++i) {
      float* to = out + i * floats;
      for (int64_t e = rowptr[i]; e < rowptr[i + 1]; ++e) {
        const float* next = x + column[std::min(e + ahead, last)] * floats;
        prefetch(reinterpret_cast<const char*>(next), floats * 4);
        const float* from = x + column[e] * floats;
        for (int64_t c = 0; c < floats; c += 8) store(to + c, load(to + c) + load(from + c));
      }
    }
  });
}

}  // namespace DYNAGAT_ISA
}  // namespace dynagat
