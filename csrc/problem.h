// The arguments of one call of the attention kernels: pointers and sizes. The caller has checked
// the lengths of the arrays.
#pragma once
#include <cstdint>

namespace dynagat {

enum class Mechanism : int { gat = 0, gatv2 = 1, dpgat = 2 };
enum class Storage : int { float32 = 0, float64 = 1, bfloat16 = 2, float16 = 3 };

inline int64_t bytes_of(Storage storage) {
  return storage == Storage::float64 ? 8 : storage == Storage::float32 ? 4 : 2;
}

// Tables (query, key, value, out and their gradients) have the type `storage`; all other arrays
// have the compute type, which is double for float64 and float otherwise. Row i * relations + r is
// node i under relation r; with query_rows or key_rows, a table holds only the rows that are used,
// and these arrays say where each row is (-1: nowhere). For gat, `query` and `key` are scores [N,
// H] of the compute type.
struct Problem {
  Mechanism mechanism = Mechanism::gatv2;
  Storage storage = Storage::float32;
  int threads = 1;

  const int32_t *rowptr = nullptr, *key_index = nullptr, *edge_id = nullptr;  // rows by query
  const int32_t *key_rowptr = nullptr, *key_query = nullptr, *key_position = nullptr;  // by key
  int64_t num_queries = 0, num_keys = 0, num_positions = 0, num_edges = 0, relations = 1;
  const int32_t *query_rows = nullptr, *key_rows = nullptr;  // [N * R] or null
  int64_t num_query_rows = 0, num_key_rows = 0;              // of the tables
  int64_t heads = 1, channels = 1, edge_dim = 0;

  const void *query = nullptr, *key = nullptr, *value = nullptr;  // null value: use the keys
  const void *a = nullptr;                                        // [R, H, C], gatv2 only
  const void *edge = nullptr,
             *edge_weight = nullptr;  // [num_edges, D]; [R, H, C, D], gat [R, H, D]
  double slope = 0.2, dropout = 0.0;
  uint64_t seed = 0, first_count = 0;  // first_count: dropout counter of edge 0 in this batch

  void *out = nullptr, *top = nullptr;         // forward; top is [N, H]
  void *weights = nullptr, *scores = nullptr;  // [E, H] or null

  const void *dout = nullptr, *dweights = nullptr;  // backward; dweights may be null
  void *dquery = nullptr, *dkey = nullptr, *dvalue = nullptr, *da = nullptr;
  void *dedge = nullptr, *dedge_weight = nullptr;  // null: not needed
};

// Which array holds an index that is out of range; `none` if there is no such array.
enum class Fault : int {
  none = 0,
  rowptr,
  key_index,
  edge_id,
  key_rowptr,
  key_query,
  key_position,
  query_rows,
  key_rows
};

}  // namespace dynagat
