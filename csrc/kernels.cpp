// Compiled once per instruction set (the namespace DYNAGAT_ISA) and mechanism (the function
// DYNAGAT_MECHANISM).
#include "kernels.h"

#include "backward.h"
#include "forward.h"

namespace dynagat {
namespace DYNAGAT_ISA {

namespace {  // because every mechanism's object file has a function of this name

template <class A, int Per>
int attend(const Problem& p, bool backward) {
  constexpr Mechanism mechanism = Mechanism::DYNAGAT_MECHANISM;
  return backward ? Backward<A, mechanism, Per>(p).run() : Forward<A, mechanism, Per>(p).run();
}

}  // namespace

int DYNAGAT_MECHANISM(const Problem& p, bool backward) {
  if (p.storage == Storage::float64) return attend<double, 0>(p, backward);
#ifndef DYNAGAT_GENERIC_ONLY
  const int64_t per_head = (p.channels + width<float> - 1) / width<float>;
  if (per_head == 1) return attend<float, 1>(p, backward);
  if (per_head == 2) return attend<float, 2>(p, backward);
  if (per_head == 4) return attend<float, 4>(p, backward);
  if (per_head % 8 == 0) return attend<float, 8>(p, backward);
#endif
  return attend<float, 0>(p, backward);
}

}  // namespace DYNAGAT_ISA
}  // namespace dynagat
