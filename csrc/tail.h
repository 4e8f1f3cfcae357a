// The tail of a layer, in one pass over its rows, and one for the gradients:
//
//   h = residual + g inner(x),   n = (h - mean) / σ,   out = mask ⊙ outer(weight ⊙ n + bias)
//
//   dy = dout ⊙ mask ⊙ outer'(y),   dweight = Σ dy ⊙ n,   dbias = Σ dy
//   dh = (t - mean(t) - n mean(t ⊙ n)) / σ,  t = dy ⊙ weight;  with given statistics, dh = t / σ
//   dresidual = dh,   dx = g dh ⊙ inner'(x)
//
// The means are those of a row (layer norm) or of a column (batch norm), which takes a pass of its
// own. Without a norm, n = h and dh = t. Each row belongs to one task, and sums over rows are added
// in the order of the tasks, so the bits do not depend on the number of threads.
#pragma once
#include <algorithm>
#include <cmath>

#include "kernels.h"
#include "memory.h"
#include "parallel.h"
#include "scores.h"

namespace dynagat {
namespace DYNAGAT_ISA {

template <class A>
DYNAGAT_INLINE Vec<A> activate(Activation kind, Vec<A> z) {
  if (kind == Activation::relu) return z < 0 ? Vec<A>{} : z;
  if (kind == Activation::elu) return z < 0 ? exp_minus_1(z) : z;
  return z;
}

// dz, given the gradient dy of y = activate(z).
template <class A>
DYNAGAT_INLINE Vec<A> differentiate(Activation kind, Vec<A> z, Vec<A> dy) {
  if (kind == Activation::relu) return z <= 0 ? Vec<A>{} : dy;
  if (kind == Activation::elu) return z <= 0 ? dy * exp(z) : dy;
  return dy;
}

template <class A>
class Tail {
  static constexpr int W = width<A>;
  using V = Vec<A>;

  const TailProblem& p;
  const Rows<A> rows;
  const int64_t N, C, P, rows_per_task, tasks;
  const Dropout dropout;
  const A gain;
  Buffer<A> weight, bias;     // padded
  Buffer<A> mean, inverse;    // of batch norm, padded: mean and 1 / σ of each column
  Buffer<A> mean_t, mean_tn;  // of batch norm, padded: mean(t) and mean(t ⊙ n)
  Buffer<A> parts;            // [tasks, 2, P]: sums over the rows of each task

  // Padded rows: n is h before it is normalised.
  struct Scratch {
    Buffer<A> memory;
    A *x, *residual, *dout, *n, *dy, *factor;
    const A* x_row;  // the stored row, or its copy in `x`

    explicit Scratch(int64_t padded) : memory(6 * padded) {
      A* next = memory.data();
      for (A** row : {&x, &residual, &dout, &n, &dy, &factor}) *row = next, next += padded;
    }
  };

 public:
  explicit Tail(const TailProblem& problem)
      : p(problem),
        rows(1, p.channels, p.storage),
        N(p.rows),
        C(p.channels),
        P(rows.padded),
        rows_per_task(std::max<int64_t>((N + 1023) / 1024, std::max<int64_t>(1, 32768 / P))),
        tasks((N + rows_per_task - 1) / rows_per_task),
        dropout(p.dropout, p.seed),
        gain(A(p.gain)),
        weight(padded(p.weight, 1)),
        bias(padded(p.bias, 0)) {}

  void forward() {
    if (p.norm == Norm::batch) prepare_columns();
    for_each_row([&](Scratch& d, int64_t i) {
      normalise<false>(d, i);
      if (dropout.active) dropout.factors(uint64_t(i) * C, C, d.factor);
      for (int64_t v = 0; v < P; v += W) {
        V y = activate<A>(p.outer, affine(d, v));
        if (dropout.active) y = y * load(d.factor + v);
        store(d.n + v, y);
      }
      rows.write(p.out, i, d.n);
    });
  }

  void backward() {
    if (p.norm == Norm::batch) prepare_columns();
    const bool is_trained_batch = p.norm == Norm::batch && !p.is_given;
    parts = Buffer<A>(tasks * 2 * P);
    std::fill_n(parts.data(), tasks * 2 * P, A(0));
    for_each_row([&](Scratch& d, int64_t i) {
      read_gradient(d, i);
      A* sums = &parts[i / rows_per_task * 2 * P];
      for (int64_t v = 0; v < P; v += W) {
        const V dy = load(d.dy + v);
        store(sums + v, load(sums + v) + dy * load(d.n + v));
        store(sums + P + v, load(sums + P + v) + dy);
      }
      if (!is_trained_batch) write_gradient(d, i);
    });
    finish_columns();
    if (!is_trained_batch) return;
    for_each_row([&](Scratch& d, int64_t i) {
      read_gradient(d, i);
      write_gradient(d, i);
    });
  }

 private:
  Buffer<A> padded(const void* from, A otherwise) const {
    Buffer<A> to(P);
    for (int64_t c = 0; c < P; ++c)
      to[c] = c >= C ? A(0) : from ? static_cast<const A*>(from)[c] : otherwise;
    return to;
  }

  template <class Fn>
  void for_each_row(const Fn& fn) {
    parallel_for(tasks, p.threads, [&](int64_t task) {
      Scratch d(P);
      std::fill_n(d.factor, P, A(0));  // the padding is not drawn
      const int64_t end = std::min(N, (task + 1) * rows_per_task);
      for (int64_t i = task * rows_per_task; i < end; ++i) fn(d, i);
    });
  }

  // Σ term(v) over the vectors of a row, and over their lanes.
  template <class Term>
  DYNAGAT_INLINE A sum(const Term& term) const {
    V parts[4] = {};
    int64_t v = 0;
    for (; v + 4 * W <= P; v += 4 * W) {
      DYNAGAT_UNROLL
      for (int k = 0; k < 4; ++k) parts[k] += term(v + k * W);
    }
    for (; v < P; v += W) parts[0] += term(v);
    const V total = (parts[0] + parts[1]) + (parts[2] + parts[3]);
    A result = 0;
    for (int lane = 0; lane < W; ++lane) result += total[lane];
    return result;
  }

  // d.n = h of row i
  DYNAGAT_INLINE void add_residual(Scratch& d, int64_t i) const {
    d.x_row = rows.read(p.x, i, d.x);
    if (!p.residual) {
      for (int64_t v = 0; v < P; v += W)
        store(d.n + v, gain * activate<A>(p.inner, load(d.x_row + v)));
      return;
    }
    const A* residual = rows.read(p.residual, i, d.residual);
    for (int64_t v = 0; v < P; v += W)
      store(d.n + v, load(residual + v) + gain * activate<A>(p.inner, load(d.x_row + v)));
  }

  // d.n = n of row i. The mean and variance of a row are written, or read if `again`.
  template <bool again>
  DYNAGAT_INLINE void normalise(Scratch& d, int64_t i) const {
    add_residual(d, i);
    if (p.norm == Norm::batch)
      for (int64_t v = 0; v < P; v += W)
        store(d.n + v, (load(d.n + v) - load(&mean[v])) * load(&inverse[v]));
    if (p.norm != Norm::layer) return;
    A &mean = static_cast<A*>(p.mean)[i], &variance = static_cast<A*>(p.variance)[i];
    if (!again) mean = sum([&](int64_t v) { return load(d.n + v); }) / A(C);
    for (int64_t v = 0; v < P; v += W) store(d.n + v, load(d.n + v) - mean);
    std::fill(d.n + C, d.n + P, A(0));
    if (!again) variance = sum([&](int64_t v) { return load(d.n + v) * load(d.n + v); }) / A(C);
    const A over = inverse_of(variance);
    for (int64_t v = 0; v < P; v += W) store(d.n + v, load(d.n + v) * over);
  }

  A inverse_of(A variance) const { return A(1) / std::sqrt(variance + A(p.eps)); }

  DYNAGAT_INLINE V affine(const Scratch& d, int64_t v) const {
    return load(&weight[v]) * load(d.n + v) + load(&bias[v]);
  }

  // d.n = n and d.dy = dy of row i
  DYNAGAT_INLINE void read_gradient(Scratch& d, int64_t i) const {
    normalise<true>(d, i);
    const A* dout = rows.read(p.dout, i, d.dout);
    if (dropout.active) dropout.factors(uint64_t(i) * C, C, d.factor);
    for (int64_t v = 0; v < P; v += W) {
      V dy = load(dout + v);
      if (dropout.active) dy = dy * load(d.factor + v);
      if (p.outer != Activation::none) dy = differentiate<A>(p.outer, affine(d, v), dy);
      store(d.dy + v, dy);
    }
  }

  // d.dy = dh, then writes dresidual and dx of row i.
  DYNAGAT_INLINE void write_gradient(Scratch& d, int64_t i) const {
    for (int64_t v = 0; v < P; v += W) store(d.dy + v, load(d.dy + v) * load(&weight[v]));
    if (p.norm == Norm::layer) {
      const A t = sum([&](int64_t v) { return load(d.dy + v); }) / A(C);
      const A tn = sum([&](int64_t v) { return load(d.dy + v) * load(d.n + v); }) / A(C);
      const A over = inverse_of(static_cast<const A*>(p.variance)[i]);
      for (int64_t v = 0; v < P; v += W)
        store(d.dy + v, (load(d.dy + v) - t - load(d.n + v) * tn) * over);
    } else if (p.norm == Norm::batch) {
      for (int64_t v = 0; v < P; v += W) {
        V t = load(d.dy + v);
        if (!p.is_given) t = t - load(&mean_t[v]) - load(d.n + v) * load(&mean_tn[v]);
        store(d.dy + v, t * load(&inverse[v]));
      }
    }
    if (p.dresidual) rows.write(p.dresidual, i, d.dy);
    for (int64_t v = 0; v < P; v += W)
      store(d.dy + v, differentiate<A>(p.inner, load(d.x_row + v), gain * load(d.dy + v)));
    rows.write(p.dx, i, d.dy);
  }

  // Sums the columns' parts into dweight and dbias, and the means of batch norm.
  void finish_columns() {
    Buffer<A> sums(2 * P);
    std::fill_n(sums.data(), 2 * P, A(0));
    for (int64_t task = 0; task < tasks; ++task)
      for (int64_t c = 0; c < 2 * P; ++c) sums[c] += parts[task * 2 * P + c];
    if (p.dweight) std::copy_n(sums.data(), C, static_cast<A*>(p.dweight));
    if (p.dbias) std::copy_n(sums.data() + P, C, static_cast<A*>(p.dbias));
    mean_t = Buffer<A>(P), mean_tn = Buffer<A>(P);
    for (int64_t c = 0; c < P; ++c) {
      mean_t[c] = weight[c] * sums[P + c] / A(std::max<int64_t>(N, 1));
      mean_tn[c] = weight[c] * sums[c] / A(std::max<int64_t>(N, 1));
    }
  }

  // The mean and 1 / σ of each column: of the given statistics, or of the rows.
  void prepare_columns() {
    if (!p.is_given && !p.is_backward) measure_columns();
    mean = padded(p.mean, 0), inverse = padded(p.variance, 0);
    for (int64_t c = 0; c < C; ++c) inverse[c] = inverse_of(inverse[c]);
  }

  // Writes the mean and variance of each column of h. Those of a task's rows take two passes; they
  // are joined in double precision (Chan, Golub and LeVeque).
  void measure_columns() {
    parts = Buffer<A>(tasks * 2 * P);
    parallel_for(tasks, p.threads, [&](int64_t task) {
      Scratch d(P);
      A *center = &parts[task * 2 * P], *squares = center + P;
      std::fill_n(center, 2 * P, A(0));
      const int64_t begin = task * rows_per_task, end = std::min(N, begin + rows_per_task);
      for (int64_t i = begin; i < end; ++i) {
        add_residual(d, i);
        for (int64_t v = 0; v < P; v += W) store(center + v, load(center + v) + load(d.n + v));
      }
      for (int64_t c = 0; c < P; ++c) center[c] /= A(end - begin);
      for (int64_t i = begin; i < end; ++i) {
        add_residual(d, i);
        for (int64_t v = 0; v < P; v += W) {
          const V off = load(d.n + v) - load(center + v);
          store(squares + v, load(squares + v) + off * off);
        }
      }
    });
    for (int64_t c = 0; c < C; ++c) {
      double middle = 0, squares = 0, count = 0;
      for (int64_t task = 0; task < tasks; ++task) {
        const double more = std::min(N - task * rows_per_task, rows_per_task);
        const double off = parts[task * 2 * P + c] - middle;
        middle += off * more / (count + more);
        squares += parts[task * 2 * P + P + c] + off * off * count * more / (count + more);
        count += more;
      }
      static_cast<A*>(p.mean)[c] = A(middle);
      static_cast<A*>(p.variance)[c] = A(squares / std::max(count, 1.0));
    }
  }
};

}  // namespace DYNAGAT_ISA
}  // namespace dynagat
