// Buffers. Large ones use huge pages, and their memory is kept for the next call.
#pragma once
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace dynagat {

constexpr size_t huge_page = size_t(1) << 21;
constexpr size_t large = size_t(1) << 22;  // bytes from which a buffer comes from the pool

// Keeps large blocks that are not in use, up to `limit` bytes, because new memory is slow: the
// system clears each page when it is first touched. Kept blocks are marked with MADV_FREE, so the
// system takes their pages as soon as any process needs memory. The pool never waits for a lock, so
// a forked child can't deadlock.
class Pool {
  struct Block {
    void* data;
    size_t bytes;
  };
  std::mutex mutex;
  std::vector<Block> idle;  // oldest first
  size_t idle_bytes = 0;
  Pool() = default;

 public:
  std::atomic<size_t> limit{0};  // set when the module is loaded

  static Pool& get() {
    static Pool* const pool = new Pool;  // never destroyed: tensors may outlive static objects
    return *pool;
  }

  // Returns a block of at least `bytes` and sets `bytes` to its actual size.
  void* take(size_t& bytes) {
    bytes = (bytes + huge_page - 1) / huge_page * huge_page;
    if (mutex.try_lock()) {
      std::lock_guard<std::mutex> lock(mutex, std::adopt_lock);
      size_t best = idle.size();
      for (size_t n = 0; n < idle.size(); ++n)
        if (idle[n].bytes >= bytes && idle[n].bytes <= bytes + bytes / 4 &&
            (best == idle.size() || idle[n].bytes < idle[best].bytes))
          best = n;
      if (best < idle.size()) {
        const Block block = idle[best];
        idle.erase(idle.begin() + best);
        idle_bytes -= block.bytes;
        bytes = block.bytes;
        return block.data;
      }
    }
    void* data = std::aligned_alloc(huge_page, bytes);
    if (!data) throw std::bad_alloc();
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    madvise(data, bytes, MADV_HUGEPAGE);
#endif
    return data;
  }

  void give_back(void* data, size_t bytes) {
    if (bytes <= limit && mutex.try_lock()) {
      std::lock_guard<std::mutex> lock(mutex, std::adopt_lock);
      while (!idle.empty() && idle_bytes + bytes > limit) {
        std::free(idle.front().data);
        idle_bytes -= idle.front().bytes;
        idle.erase(idle.begin());
      }
#if defined(__linux__) && defined(MADV_FREE)
      madvise(data, bytes, MADV_FREE);
#endif
      idle.push_back({data, bytes});
      idle_bytes += bytes;
      return;
    }
    std::free(data);
  }
};

// Uninitialised memory, aligned to cache lines; from the pool if large.
class Pooled {
  void* held = nullptr;
  size_t bytes = 0;

 public:
  Pooled() = default;
  explicit Pooled(size_t requested) : bytes(requested) {
    if (!requested) return;
    if (requested > size_t(PTRDIFF_MAX) / 2) throw std::bad_alloc();
    if (requested >= large) {
      held = Pool::get().take(bytes);
    } else {
      held = std::aligned_alloc(64, (requested + 63) / 64 * 64);
      if (!held) throw std::bad_alloc();
    }
  }
  Pooled(Pooled&& other) noexcept
      : held(std::exchange(other.held, nullptr)), bytes(std::exchange(other.bytes, 0)) {}
  Pooled& operator=(Pooled&& other) noexcept {
    std::swap(held, other.held);
    std::swap(bytes, other.bytes);
    return *this;
  }
  ~Pooled() {
    if (bytes >= large) Pool::get().give_back(held, bytes);
    else std::free(held);
  }
  void* data() { return held; }
};

template <class T>
class Buffer {
  Pooled memory;
  T* held = nullptr;

 public:
  Buffer() = default;
  explicit Buffer(int64_t count)
      : memory(bytes_of_items(count)), held(static_cast<T*>(memory.data())) {}
  Buffer(Buffer&& other) noexcept
      : memory(std::move(other.memory)), held(std::exchange(other.held, nullptr)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    memory = std::move(other.memory);
    std::swap(held, other.held);
    return *this;
  }

  static size_t bytes_of_items(int64_t count) {
    if (uint64_t(count) > std::numeric_limits<size_t>::max() / sizeof(T)) throw std::bad_alloc();
    return size_t(count) * sizeof(T);
  }

  T* data() { return held; }
  T& operator[](int64_t at) { return held[at]; }
  const T& operator[](int64_t at) const { return held[at]; }
};

}  // namespace dynagat
