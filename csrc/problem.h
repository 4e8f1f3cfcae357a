// What one call of the attention kernels is given: pointers and sizes, checked by the caller for
// length.
#pragma once
#include <cstdint>

namespace dynagat {

enum class Mechanism : int { gat = 0, gatv2 = 1, dpgat = 2 };
enum class Storage : int { float32 = 0, float64 = 1, bfloat16 = 2, float16 = 3 };

inline int64_t bytes_of(Storage storage) {
  return storage == Storage::float64 ? 8 : storage == Storage::float32 ? 4 : 2;
}

// Tables (query, key, value, out and their gradients) are held as `storage`, all else as the
// compute type: double for float64, float otherwise. Row i * relations + r is node i under relation
// r. In gat, `query` and `key` are the two scores per node and head, in the compute type.
struct Problem {
  Mechanism mechanism = Mechanism::gatv2;
  Storage storage = Storage::float32;
  int threads = 1;

  const int32_t *rowptr = nullptr, *key_index = nullptr, *edge_id = nullptr;  // rows by query
  const int32_t *key_rowptr = nullptr, *key_query = nullptr, *key_position = nullptr;  // by key
  int64_t num_queries = 0, num_keys = 0, num_positions = 0, num_edges = 0, relations = 1;
  int64_t heads = 1, channels = 1, edge_dim = 0;

  const void *query = nullptr, *key = nullptr, *value = nullptr;  // value null: the keys
  const void *a = nullptr;                                        // [R, H, C], gatv2 only
  const void *edge = nullptr,
             *edge_weight = nullptr;  // [num_edges, D]; [R, H, C, D], gat [R, H, D]
  double slope = 0.2, dropout = 0.0;
  uint64_t seed = 0, first_count = 0;  // first_count: where this batch's counters of dropout start

  void *out = nullptr, *top = nullptr;         // forward: out; [N, H]
  void *weights = nullptr, *scores = nullptr;  // [E, H] or null

  const void *dout = nullptr, *dweights = nullptr;  // backward; dweights may be null
  void *dquery = nullptr, *dkey = nullptr, *dvalue = nullptr, *da = nullptr;
  void *dedge = nullptr, *dedge_weight = nullptr;  // null: not wanted
};

// Which part of a problem was not as the rows promised; `fine` when all of it was.
enum class Fault : int {
  fine = 0,
  rowptr,
  key_index,
  edge_id,
  key_rowptr,
  key_query,
  key_position
};

}  // namespace dynagat
