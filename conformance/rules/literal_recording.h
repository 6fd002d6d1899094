// For the tests of rules: a recording of one program that is written down step by step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "abi/process_header.h"
#include "conformance/evidence/timeline.h"

namespace ctxconf::conformance {

// A valid header with a payload of two bytes.
inline std::vector<std::byte> header_bytes(std::uint64_t timestamp, std::uint64_t payload) {
  const abi::ProcessHeader h{abi::kSignature, abi::kVersion, 2, timestamp, payload};
  std::vector<std::byte> out(sizeof h);
  std::memcpy(out.data(), &h, sizeof h);
  return out;
}

// The payload that header_bytes() announces: an empty Resource.
inline MemoryBlock payload_block(std::uint64_t at) {
  MemoryBlock out;
  out.at = sys::RemoteAddr(at);
  out.wanted = out.readable = 2;
  out.bytes = {std::byte{0x0a}, std::byte{0}};
  return out;
}

// A mapping of one page that begins with `header`, as far as that is readable.
inline Candidate mapped_header(std::uint64_t at, std::string name, std::vector<std::byte> header) {
  Candidate out;
  sys::MapEntry entry;
  entry.range = *sys::RemoteRange::from_size(sys::RemoteAddr(at), 4096);
  entry.readable = entry.writable = true;
  entry.name = std::move(name);
  out.entries = {entry};
  out.named = !entry.name.empty();
  MemoryBlock block;
  block.at = sys::RemoteAddr(at);
  block.wanted = sizeof(abi::ProcessHeader);
  block.readable = header.size();
  block.bytes = std::move(header);
  out.memory = {block};
  return out;
}

// Process 12, which ends with status 0. Each step takes a millisecond.
struct LiteralRecording {
  static constexpr std::uint64_t kStep = 1'000'000;

  Timeline t;
  std::uint64_t now = 1'000'000'000;
  std::uint64_t order = 0;

  LiteralRecording() {
    t.mode = Mode::kWrap;
    Process p;
    p.pid = 12;
    p.exit_code = 0;
    Image i;
    i.key = {12, 0};
    i.executable = "/bin/app";
    p.images.push_back(std::move(i));
    t.processes.push_back(std::move(p));
  }
  Process& process() { return t.processes.front(); }
  Image& image() { return process().images.front(); }

  SystemCall& call(std::string name, const std::vector<std::uint64_t>& args, std::int64_t result) {
    SystemCall c;
    c.tid = 12;
    c.name = std::move(name);
    std::ranges::copy(args, c.args.begin());
    c.result = result;
    c.entered_ns = now += kStep;
    c.entered_order = ++order;
    c.left_order = ++order;
    image().calls.push_back(std::move(c));
    return image().calls.back();
  }
};

}  // namespace ctxconf::conformance
