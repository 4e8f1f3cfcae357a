// Compiled once per instruction set (the namespace DYNAGAT_ISA) and mechanism (the function
// DYNAGAT_MECHANISM).
#include "kernels.h"

#include "backward.h"
#include "forward.h"

namespace dynagat {
namespace DYNAGAT_ISA {

namespace {  // because every mechanism's object file has a function of this name

template <class A, class Stored, int Per>
int attend(const Problem& p, bool backward) {
  constexpr Mechanism mechanism = Mechanism::DYNAGAT_MECHANISM;
  return backward ? Backward<A, Stored, mechanism, Per>(p).run()
                  : Forward<A, Stored, mechanism, Per>(p).run();
}

#ifndef DYNAGAT_GENERIC_ONLY
// False if there is no kernel for this number of channels. With DYNAGAT_BESIDE_WIDE, heads whose
// channels fill long vectors have kernels of their own (bindings.cpp). Then few of the other heads
// have many vectors, and those whose rows are `Stored` in half precision, which fill whole vectors,
// have an odd number of them.
template <class Stored>
bool attend_by_width(const Problem& p, bool backward, int& fault) {
#ifdef DYNAGAT_BESIDE_WIDE
  constexpr int most = std::is_same_v<Stored, float> ? 4 : 1;
#else
  constexpr int most = 8;
#endif
  const int64_t per_head = (p.channels + width<float> - 1) / width<float>;
  if (per_head == 1) {
    fault = attend<float, Stored, 1>(p, backward);
    return true;
  }
  if constexpr (most >= 4) {
    if (per_head == 2) fault = attend<float, Stored, 2>(p, backward);
    if (per_head == 4) fault = attend<float, Stored, 4>(p, backward);
    if (per_head == 2 || per_head == 4) return true;
  }
  if constexpr (most >= 8) {
    if (per_head % 8 == 0) {
      fault = attend<float, Stored, 8>(p, backward);
      return true;
    }
  }
  return false;
}
#endif

}  // namespace

int DYNAGAT_MECHANISM(const Problem& p, bool backward) {
#if DYNAGAT_VECTOR_BYTES != 64  // long vectors are for float and half precision
  if (p.storage == Storage::float64) return attend<double, double, 0>(p, backward);
#endif
#ifndef DYNAGAT_GENERIC_ONLY
  // Rows of half precision are converted when they are loaded, except where each is needed several
  // times (edge features are added to it) or does not fill whole vectors: then it is copied.
  int fault;
  if (p.channels % width<float> == 0 && !p.edge) {
    if (p.storage == Storage::bfloat16 && attend_by_width<BFloat16>(p, backward, fault))
      return fault;
    if (p.storage == Storage::float16 && attend_by_width<Float16>(p, backward, fault)) return fault;
  }
  if (attend_by_width<float>(p, backward, fault)) return fault;
#endif
  return attend<float, float, 0>(p, backward);
}

}  // namespace DYNAGAT_ISA
}  // namespace dynagat
