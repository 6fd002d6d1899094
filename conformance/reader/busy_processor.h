#pragma once

#include <pthread.h>
#include <sched.h>

#include <array>
#include <stop_token>
#include <thread>

namespace ctxconf::conformance::reader {

// Threads that leave little of one processor to others.
class BusyProcessor {
 public:
  explicit BusyProcessor(int processor) {
    for (std::jthread& thread : threads_) {
      thread = std::jthread([processor](const std::stop_token& stop) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(processor, &set);
        pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
        while (!stop.stop_requested()) {
        }
      });
    }
  }

 private:
  std::array<std::jthread, 3> threads_;
};

}  // namespace ctxconf::conformance::reader
