// parallel_for calls fn(task) for every task in [0, count), in any order, on `threads` threads.
//
// The result of a task must not depend on the thread that runs it, so that results are bitwise
// equal for any number of threads. The threads are those of torch's OpenMP pool (this module is
// loaded after torch and links the same libgomp). The pool does not survive a fork, so a forked
// child starts threads of its own.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#ifndef _WIN32
#include <unistd.h>
#endif

namespace dynagat {

inline bool forked_since_load() {
#ifdef _WIN32
  return false;
#else
  static const pid_t loaded_in = getpid();
  return getpid() != loaded_in;
#endif
}

template <class Fn>
void parallel_for(int64_t count, int threads, const Fn& fn) {
  threads = static_cast<int>(std::min<int64_t>(threads, count));
  if (threads <= 1) {
    for (int64_t task = 0; task < count; ++task) fn(task);
    return;
  }
  std::atomic<int64_t> next{0};
  auto work = [&] {
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < count;) fn(task);
  };
#ifdef _OPENMP
  if (!forked_since_load()) {
#pragma omp parallel num_threads(threads)
    work();
    return;
  }
#endif
  std::vector<std::thread> team;
  for (int other = 1; other < threads; ++other) team.emplace_back(work);
  work();
  for (auto& thread : team) thread.join();
}

}  // namespace dynagat
