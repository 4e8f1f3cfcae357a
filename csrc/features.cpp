// The functions of features.h, compiled once per instruction set.
#include "features.h"

#include "columns.h"
#include "dropout.h"
#include "head_scores.h"
#include "small_product.h"
#include "sparse.h"

namespace dynagat {
namespace DYNAGAT_ISA {

namespace {

// Calls fn with a number of the type of the arrays.
template <class Fn>
auto by_type(bool is_double, const Fn& fn) {
  return is_double ? fn(double()) : fn(float());
}

template <class T>
const T* as(const void* array, T) {
  return static_cast<const T*>(array);
}
template <class T>
T* as(void* array, T) {
  return static_cast<T*>(array);
}

}  // namespace

bool sparse_product(const SparseMatrix& m, const void* table, int64_t width, const void* bias,
                    void* out) {
  return by_type(m.is_double, [&](auto t) {
    return multiply_sparse(m, as(table, t), width, as(bias, t), as(out, t));
  });
}

bool sparse_dots(const SparseMatrix& m, const void* left, const void* right, int64_t width,
                 void* out) {
  return by_type(m.is_double, [&](auto t) {
    return multiply_pairs_of_rows(m, as(left, t), as(right, t), width, as(out, t));
  });
}

bool sparse_drop(const SparseMatrix& m, const DropRule& rule, void* values, void* dense) {
  return by_type(m.is_double,
                 [&](auto t) { return drop_sparse(m, rule, as(values, t), as(dense, t)); });
}

bool count_nonzeros(const void* x, int64_t rows, int64_t columns, int64_t most, bool is_double,
                    int64_t* counts, int threads) {
  return by_type(is_double, [&](auto t) {
    return count_entries(as(x, t), rows, columns, most, counts, threads);
  });
}

void drop(const void* x, int64_t count, const DropRule& rule, bool is_double, void* out,
          int threads) {
  by_type(is_double, [&](auto t) { drop_dense(as(x, t), count, rule, as(out, t), threads); });
}

void score_heads(const HeadScores& p, void* query, void* key) {
  by_type(p.is_double, [&](auto t) { score_nodes(p, as(query, t), as(key, t)); });
}

void score_gradient(const HeadScores& p, const void* dvalue, const void* dquery, const void* dkey,
                    void* total, void* da) {
  by_type(p.is_double, [&](auto t) {
    differentiate_scores(p, as(dvalue, t), as(dquery, t), as(dkey, t), as(total, t), as(da, t));
  });
}

void add_rows(void* x, int64_t rows, int64_t width, const void* added, int64_t step, bool is_double,
              int threads) {
  by_type(is_double, [&](auto t) { add_rows(as(x, t), rows, width, as(added, t), step, threads); });
}

void add_up_rows(const void* x, int64_t rows, int64_t width, void* out, bool is_double,
                 int threads) {
  by_type(is_double, [&](auto t) { add_up_rows(as(x, t), rows, width, as(out, t), threads); });
}

void multiply_small(const SmallProduct& p) {
  p.is_double ? multiply_small<double>(p) : multiply_small<float>(p);
}

}  // namespace DYNAGAT_ISA
}  // namespace dynagat
