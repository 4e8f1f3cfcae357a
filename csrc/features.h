// What happens to features before attention: sparse products, dropout, and the scores of GAT; and a
// layer's biases.
// Declared once per instruction set, like the kernels of kernels.h.
#pragma once
#include <cstdint>

namespace dynagat {

// The entries of a matrix by row: entry e of row r, for ptr[r] <= e < ptr[r + 1], is in column
// index[e] and has the value values[position[e]], or values[e] if position is null.
struct SparseMatrix {
  const int32_t *ptr = nullptr, *index = nullptr, *position = nullptr;
  const void* values = nullptr;  // [count] of float or double
  int64_t rows = 0, columns = 0, count = 0;
  bool is_double = false;
  int threads = 1;
};

// Which entries of an array are dropped: a hash of the seed and of the entry's place decides.
struct DropRule {
  double probability = 0;
  uint64_t seed = 0;
};

// The functions return whether all indices of the matrix are valid. Entries that are 0 are skipped.

// out [rows, width] = matrix * table [columns, width] (+ bias [width], unless it is null)
using SparseProduct = bool(const SparseMatrix& matrix, const void* table, int64_t width,
                           const void* bias, void* out);

// out [count]: for each entry (r, c), the dot product of left [rows, width] and right [columns,
// width] in these rows, at the place of the entry's value
using SparseDots = bool(const SparseMatrix& matrix, const void* left, const void* right,
                        int64_t width, void* out);

// values [count] = the matrix after dropout; dense [rows, columns] = the same with its zeros
using SparseDrop = bool(const SparseMatrix& matrix, const DropRule& rule, void* values,
                        void* dense);

// How many numbers of each row of x [rows, columns] are not 0. Stops when there are more than
// `most` in a part of the rows, and then returns false.
using CountNonzeros = bool(const void* x, int64_t rows, int64_t columns, int64_t most,
                           bool is_double, int64_t* counts, int threads);

// out [count] = x after dropout
using Drop = void(const void* x, int64_t count, const DropRule& rule, bool is_double, void* out,
                  int threads);

// The scores of GAT: for each node and head, the dot products of its value with two vectors.
struct HeadScores {
  const void* value;            // [nodes, heads, channels] of float or double
  const void *a_query, *a_key;  // [heads, channels]
  int64_t nodes, heads, channels;
  bool is_double;
  int threads;
};

// query, key [nodes, heads]
using ScoreHeads = void(const HeadScores& p, void* query, void* key);

// total [nodes, heads, channels] = dvalue + the gradients through both scores;
// da [2, heads, channels] = the gradients of a_query and a_key
using ScoreGradient = void(const HeadScores& p, const void* dvalue, const void* dquery,
                           const void* dkey, void* total, void* da);

// Row r of x [rows, width] += the numbers from added[r * step] on; step 0: one bias for all rows
using AddRows = void(void* x, int64_t rows, int64_t width, const void* added, int64_t step,
                     bool is_double, int threads);

// out [width] = the sum of the rows of x [rows, width]
using AddUpRows = void(const void* x, int64_t rows, int64_t width, void* out, bool is_double,
                       int threads);

// out [rows, width] = left * table (+ bias [width], unless it is null), added to out if `adds`;
// left(r, k) = left[r * row_step + k * step]; table is [inner, width], or its transpose
struct SmallProduct {
  const void* left;
  int64_t row_step, step, rows, inner, width;
  const void *table, *bias;
  void* out;
  bool is_transposed, adds, is_double;
};
using MultiplySmall = void(const SmallProduct& p);

#define DYNAGAT_FEATURES        \
  SparseProduct sparse_product; \
  SparseDots sparse_dots;       \
  SparseDrop sparse_drop;       \
  CountNonzeros count_nonzeros; \
  Drop drop;                    \
  ScoreHeads score_heads;       \
  ScoreGradient score_gradient; \
  AddRows add_rows;             \
  AddUpRows add_up_rows;        \
  MultiplySmall multiply_small;
namespace baseline {
DYNAGAT_FEATURES
}
namespace avx2 {
DYNAGAT_FEATURES
}
namespace avx512 {
DYNAGAT_FEATURES
}
#undef DYNAGAT_FEATURES

}  // namespace dynagat
