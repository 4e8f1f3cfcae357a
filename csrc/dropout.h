// Dropout of an array, given a random level for each entry.
#pragma once
#include <algorithm>
#include <cstdint>

#include "parallel.h"

namespace dynagat {

// out = x * (scale where level >= least, else 0); a product, so that NaN and infinities stay.
template <class T>
void drop(const T* x, const int16_t* level, int16_t least, T scale, int64_t count, T* out,
          int threads) {
  constexpr int64_t chunk = 1 << 15;
  parallel_for((count + chunk - 1) / chunk, threads, [&](int64_t task) {
    for (int64_t at = task * chunk, end = std::min(at + chunk, count); at < end; ++at)
      out[at] = x[at] * (level[at] >= least ? scale : T(0));
  });
}

}  // namespace dynagat
