#include "conformance/observe/race.h"

#include <sched.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <system_error>
#include <utility>

#include "abi/process_header.h"
#include "conformance/observe/memory_block.h"
#include "conformance/payload/churn_values.h"
#include "conformance/payload/payload.h"
#include "sys/access_watchdog.h"
#include "sys/all_signals_blocked.h"

namespace ctxconf::conformance {
namespace {

constexpr std::size_t kTimestampOffset = offsetof(abi::ProcessHeader, monotonic_published_at_ns);

bool is_of_one_update(std::span<const std::byte> bytes) {
  return numbers_in(analyse_payload(bytes)).size() <= 1;
}

}  // namespace

RaceRecorder::RaceRecorder(const sys::MemoryReader& memory, sys::RemoteAddr header, bool elf64,
                           RaceLimits limits)
    : memory_(memory), header_(header), elf64_(elf64), limits_(limits) {
  race_.header = header.raw();
}

bool RaceRecorder::read() {
  ++race_.reads;
  // Separate reads: within one copy of the header the order of the reads is unknown.
  std::uint64_t before = 0;
  std::uint64_t after = 0;
  const auto timestamp = [&](std::uint64_t& into) {
    return sys::MemoryReader::Part{sys::RemoteAddr(header_.raw() + kTimestampOffset),
                                   std::as_writable_bytes(std::span(&into, 1))};
  };
  now_.header.resize(abi::kHeaderBytes);
  const auto got = memory_.read_two(timestamp(before), {header_, now_.header});
  if (!got) return false;
  if (*got != std::array{sizeof before, abi::kHeaderBytes}) {
    ++race_.unreadable;
    return true;
  }
  auto announced = abi::decode_process_header(now_.header).value_or(abi::ProcessHeader{});
  announced.monotonic_published_at_ns = before;
  if (!abi::is_valid(announced)) {
    ++race_.none;
    return true;
  }
  if (announced.payload_size > limits_.payload) {
    ++race_.too_large;
    return true;
  }
  now_.read = race_.reads;
  now_.wanted = announced.payload_size;
  now_.timestamp = before;
  now_.payload.resize(announced.payload_size);
  const auto from = sys::RemoteAddr(payload_address(announced.payload, elf64_));
  const auto copied = memory_.read_two({from, now_.payload}, timestamp(after));
  if (!copied) return false;
  now_.payload.resize((*copied)[0]);
  if ((*copied)[1] != sizeof after || after != before) {
    ++race_.overtaken;
    return true;
  }
  accept();
  return true;
}

void RaceRecorder::accept() {
  ++race_.accepted;
  const bool whole = now_.payload.size() == now_.wanted;
  if (now_.timestamp == last_.timestamp) {
    if (whole && now_.payload == last_.payload) return;
    keep(last_);
    keep(now_);
  } else {
    ++race_.contents;
    if (!whole || !is_of_one_update(now_.payload)) keep(now_);
  }
  std::swap(last_, now_);
}

void RaceRecorder::keep(const Accepted& read) {
  if (race_.kept.size() >= limits_.kept) return;
  if (!race_.kept.empty() && race_.kept.back().read == read.read) return;
  RaceRead out;
  out.read = read.read;
  out.timestamp = read.timestamp;
  out.header = read.header;
  const auto h = abi::decode_process_header(read.header);
  out.payload = {.at = sys::RemoteAddr(payload_address(h ? h->payload : 0, elf64_)),
                 .wanted = read.wanted,
                 .readable = read.payload.size(),
                 .bytes = read.payload,
                 .hash = fnv1a(kFnvBasis, read.payload)};
  race_.kept.push_back(std::move(out));
}

sys::Result<std::unique_ptr<RacingReader>> RacingReader::start(
    pid_t pid, sys::RemoteAddr header, bool elf64, std::chrono::milliseconds memory_deadline,
    std::function<void(pid_t)> unreachable) {
  cpu_set_t processors;
  CPU_ZERO(&processors);
  if (sched_getaffinity(0, sizeof processors, &processors) == 0 && CPU_COUNT(&processors) < 2) {
    return sys::fail("race", ENOTSUP, "it needs two processors, and there is one");
  }
  std::unique_ptr<RacingReader> out(new RacingReader(pid, header, elf64));
  const sys::AllSignalsBlocked blocked;
  try {
    out->thread_ =
        std::thread([&reader = *out, memory_deadline, unreachable = std::move(unreachable)] {
          reader.run(memory_deadline, unreachable);
        });
  } catch (const std::system_error& e) {
    return sys::fail("thread", e.code().value(), "");
  }
  return out;
}

RacingReader::RacingReader(pid_t pid, sys::RemoteAddr header, bool elf64)
    : memory_(pid), recorder_(memory_, header, elf64) {}

RacingReader::~RacingReader() {
  is_over_ = true;
  if (thread_.joinable()) thread_.join();
}

void RacingReader::run(std::chrono::milliseconds memory_deadline,
                       const std::function<void(pid_t)>& unreachable) {
  const sys::AccessWatchdog dog(memory_deadline, unreachable);
  while (!is_over_.load(std::memory_order_relaxed) && recorder_.read()) {
  }
}

Race RacingReader::finish() {
  is_over_ = true;
  if (thread_.joinable()) thread_.join();
  return recorder_.race();
}

}  // namespace ctxconf::conformance
