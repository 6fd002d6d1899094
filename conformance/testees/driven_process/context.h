// Header and payload of the process that the adapter is.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "conformance/testees/adapter_loop.h"
#include "conformance/testees/writer/choice.h"
#include "conformance/testees/writer/memory.h"

namespace ctxconf::testees {

using adapter::Reply;

extern const Choices kContextChoices;

constexpr std::size_t kMapped = std::size_t{64} << 10;  // bytes; what is larger has its own mapping

// Its callers hold a lock.
class Context {
 public:
  bool exists() const { return at_ != nullptr; }
  // Has the clock gone on since the last publication?
  bool clock_has_gone_on() const;
  Reply publish(const std::string& bytes);
  // `in_bulk`: one of many at once.
  Reply update(std::string next, bool in_bulk = false);
  // Makes two updates at once: the middle of one comes from another thread.
  void update_with_another(std::string bytes);
  void drop();
  // The next publication knows nothing of this one.
  void begin_anew(bool zeroes, bool leaves_mapping);
  void remove();
  // Call it in a child, which does not have the mapping that fork left out.
  void forget() { at_ = nullptr; }
  // Leaves mapping and payload as they are, for ever.
  void leave();
  // Publishes with the timestamp of the publication before.
  Reply publish_copy(const std::string& bytes);
  // Writes like a program that does not know that it was forked.
  void write_anyway();

 private:
  // Changes the last byte, which belongs to a value, and changes it back.
  void rewrite_payload();
  void overwrite_payload(const std::string& next);
  // Writes to the half of one buffer that the header does not announce; nullptr: it is too large.
  const char* prepare_beside(const std::string& bytes);
  // Does what an SDK does to ask a tool for the name of the host.
  static void run_a_program();
  // -1: anonymous memory is next. Beyond its limit a file does not grow, and SIGXFSZ says so.
  int make_memfd() const;
  static bool can_allocate(std::size_t size);
  std::uint64_t timestamp() const;
  void set_timestamp(std::uint64_t value,
                     std::memory_order order = std::memory_order_seq_cst) const;
  std::uint64_t later(std::uint64_t now);
  void point_to(const char* bytes, std::size_t size) const;
  void set_payload(std::string bytes);
  Reply announce(std::string bytes, std::uint64_t now);
  // False: the kernel gives no name.
  bool set_name() const { return name_memory(at_, size_, "OTEL_CTX"); }

  char* at_ = nullptr;
  std::size_t size_ = 0;
  bool anonymous_ = false;
  bool withdrawn_ = false;
  std::string payload_;
  std::string kept_;  // the payload before, which a reader may be about to copy
  std::vector<char> halves_;
  bool in_second_half_ = false;
  std::uint64_t last_ = 0;
  std::uint64_t copied_ = 0;  // not 0: the timestamp of what is published
};

}  // namespace ctxconf::testees
