// The kernels of all instruction sets; bindings.cpp chooses one when the module is loaded.
#pragma once
#include "csr.h"
#include "problem.h"

namespace dynagat {

// The forward (or backward) pass of one mechanism; returns a Fault.
using Kernel = int(const Problem& problem, bool backward);

// out[i] += x[column[e]] for every edge e of row i. Attention must read at least this much memory,
// so the benchmarks compare with it.
using Floor = void(const int32_t* rowptr, const int32_t* column, int64_t num_rows, int64_t floats,
                   const float* x, float* out, int threads);

// `count` pairs of nodes from the pair `first` on; ends [P, 2].
struct Pairs {
  Index ends;
  int64_t first = 0, count = 0;
};

struct PairProblem {
  const void* x;  // [nodes, channels] of float or double
  int64_t nodes, channels;
  Pairs pairs;
  bool is_double;
  int threads;
};

// out [count, channels] = x_i * x_j for each pair (i, j); returns an index that is out of range.
using PairProduct = BadIndex(const PairProblem& problem, void* out);

// dx [nodes, channels] = (or, if `adds`, +=) the gradient of x, given dz [count, channels], the
// gradient of the products.
using PairGradient = BadIndex(const PairProblem& problem, const void* dz, bool adds, void* dx);

enum class Activation : int { none = 0, relu = 1, elu = 2 };
enum class Norm : int { none = 0, layer = 1, batch = 2 };

// The tail of a layer: see tail.h. Tables [rows, channels] have the type `storage`, all other
// arrays the compute type.
struct TailProblem {
  Storage storage;
  int threads;
  int64_t rows, channels;
  Activation inner, outer;
  Norm norm;
  bool is_given;  // batch norm: mean and variance are inputs
  bool is_backward;
  double gain, eps, dropout;
  uint64_t seed;

  const void *x, *residual, *weight, *bias;  // all but x may be null
  void *mean, *variance;                     // layer norm: [rows]; batch norm: [channels]
  void* out;                                 // forward
  const void* dout;                          // backward
  void *dx, *dresidual, *dweight, *dbias;    // all but dx may be null
};

using LayerTail = void(const TailProblem& problem);

namespace baseline {
Kernel gat, gatv2, dpgat;
Floor gather_floor;
PairProduct pair_product;
PairGradient pair_gradient;
LayerTail tail;
}  // namespace baseline
namespace avx2 {
Kernel gat, gatv2, dpgat;
Floor gather_floor;
PairProduct pair_product;
PairGradient pair_gradient;
LayerTail tail;
}  // namespace avx2
namespace avx512 {
Kernel gat, gatv2, dpgat;
Floor gather_floor;
PairProduct pair_product;
PairGradient pair_gradient;
LayerTail tail;
}  // namespace avx512
namespace avx512_wide {  // with vectors of 64 bytes instead of 32
Kernel gat, gatv2, dpgat;
}  // namespace avx512_wide

}  // namespace dynagat
