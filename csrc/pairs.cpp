// pair_product and pair_gradient (see kernels.h), compiled once per instruction set.
#include "pairs.h"

namespace dynagat {
namespace DYNAGAT_ISA {

BadIndex pair_product(const PairProblem& p, void* out) {
  if (p.is_double)
    return multiply_pairs(static_cast<const double*>(p.x), p.nodes, p.channels, p.pairs,
                          static_cast<double*>(out), p.threads);
  return multiply_pairs(static_cast<const float*>(p.x), p.nodes, p.channels, p.pairs,
                        static_cast<float*>(out), p.threads);
}

BadIndex pair_gradient(const PairProblem& p, const void* dz, bool adds, void* dx) {
  if (p.is_double)
    return differentiate_pairs(static_cast<const double*>(dz), static_cast<const double*>(p.x),
                               p.nodes, p.channels, p.pairs, adds, static_cast<double*>(dx),
                               p.threads);
  return differentiate_pairs(static_cast<const float*>(dz), static_cast<const float*>(p.x), p.nodes,
                             p.channels, p.pairs, adds, static_cast<float*>(dx), p.threads);
}

}  // namespace DYNAGAT_ISA
}  // namespace dynagat
