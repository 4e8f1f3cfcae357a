// The tail of a layer (see kernels.h), compiled once per instruction set.
#include "tail.h"

namespace dynagat {
namespace DYNAGAT_ISA {

namespace {

template <class A>
void run(const TailProblem& p) {
  Tail<A> rows(p);
  if (p.is_backward) rows.backward();
  else rows.forward();
}

}  // namespace

void tail(const TailProblem& p) {
  if (p.storage == Storage::float64) run<double>(p);
  else run<float>(p);
}

}  // namespace DYNAGAT_ISA
}  // namespace dynagat
