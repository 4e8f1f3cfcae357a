// Table: maps nodes to their local index in a sample. A hash table of about the sample's size, or
// an array over all nodes of the graph if that is not larger.
#pragma once
#include <algorithm>
#include <cstdint>

#include "memory.h"
#include "random.h"

namespace dynagat {

class Table {
  struct Slot {
    int32_t node, index;  // node -1: empty slot
  };
  Buffer<Slot> slots;
  int64_t nodes, size = 0;
  int shift = 64;
  bool direct = false;

  int64_t home(int32_t node) const {
    return direct ? node : int64_t((uint64_t(uint32_t(node)) * golden) >> shift);
  }
  int64_t next(int64_t slot) const { return slot + 1 == size ? 0 : slot + 1; }

 public:
  explicit Table(int64_t nodes) : nodes(nodes) {}

  // Makes room for `count` nodes. If the table grows, nodes [0, known) are added again.
  void reserve(int64_t count, const int64_t* node, int64_t known) {
    int bits = 6;
    while ((int64_t(1) << bits) < count + count / 3) ++bits;  // at most 3/4 full
    const int64_t wanted = std::min(int64_t(1) << bits, nodes);
    if (wanted <= size) return;
    size = wanted, shift = 64 - bits, direct = wanted == nodes;
    slots = Buffer<Slot>(size);
    std::fill_n(slots.data(), size, Slot{-1, -1});
    for (int64_t n = 0; n < known; ++n) add(int32_t(node[n]), int32_t(n));
  }

  void prefetch(int32_t node) const { __builtin_prefetch(&slots[home(node)]); }

  // Returns the node's index, after setting it to `index` if the node is new.
  int32_t add(int32_t node, int32_t index) {
    int64_t slot = home(node);
    for (; slots[slot].node != node; slot = next(slot))
      if (slots[slot].node < 0) {
        slots[slot] = {node, index};
        return index;
      }
    return slots[slot].index;
  }

  // Returns the node's index, or -1.
  int32_t find(int32_t node) const {
    int64_t slot = home(node);
    while (slots[slot].node != node && slots[slot].node >= 0) slot = next(slot);
    return slots[slot].node == node ? slots[slot].index : -1;
  }
};

}  // namespace dynagat
