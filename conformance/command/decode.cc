#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "abi/process_header.h"
#include "abi/process_layouts.h"
#include "abi/thread_layouts.h"
#include "abi/thread_record.h"
#include "conformance/command/command.h"
#include "conformance/command/files.h"
#include "conformance/command/print.h"
#include "conformance/evidence/timeline.h"
#include "conformance/payload/payload.h"
#include "conformance/report/escape.h"
#include "conformance/rules/evidence.h"
#include "conformance/verdict/exit_code.h"

namespace ctxconf::conformance {
namespace {

struct DecodeCommand {
  std::string as;  // header, payload, snapshot; empty: guess
  std::string file;
  std::string hex;
};

constexpr std::size_t kLongestInput = std::size_t{64} << 20U;

std::optional<std::string> bytes_of_hex(const std::string& text) {
  std::string out;
  int high = -1;
  for (const char c : text) {
    if (c == ' ' || c == '\n' || c == '\t' || c == ':' || c == '|') continue;
    int digit = -1;
    if (c >= '0' && c <= '9') digit = c - '0';
    if (c >= 'a' && c <= 'f') digit = c - 'a' + 10;
    if (c >= 'A' && c <= 'F') digit = c - 'A' + 10;
    if (digit < 0) return std::nullopt;
    if (high < 0) {
      high = digit;
    } else {
      out += static_cast<char>(high * 16 + digit);
      high = -1;
    }
  }
  if (high >= 0) return std::nullopt;
  return out;
}

std::string guess(const std::string& bytes) {
  if (bytes.starts_with("OTEL_CTX") || bytes.starts_with("OTL-PROC")) return "header";
  if (bytes.find("ctxconf-timeline") < 200) return "snapshot";
  return "payload";
}

void show_fields(std::string& out, const abi::LayoutFields& layout,
                 std::span<const std::byte> bytes) {
  const auto d = abi::decode_as(layout, bytes);
  add_line(out, fmt::format("  as {} ({})", layout.id, layout.in_use));
  if (layout.version >= 0)
    add_line(out, fmt::format("    {:>2} version    {}", layout.version, d.version));
  if (layout.size >= 0) add_line(out, fmt::format("    {:>2} size       {}", layout.size, d.size));
  if (layout.timestamp >= 0) {
    add_line(out, fmt::format("    {:>2} timestamp  {}{}", layout.timestamp, d.timestamp,
                              d.timestamp == 0 ? " (being changed, or withdrawn)" : ""));
  }
  if (layout.pointer >= 0)
    add_line(out, fmt::format("    {:>2} payload    {:#x}", layout.pointer, d.pointer));
}

int decode_header(std::string& out, const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  const auto header = abi::decode_process_header(bytes);
  if (!header) {
    return complain(kExitUsage,
                    fmt::format("a header has 32 bytes, but {} were given", bytes.size()));
  }
  add_line(out, fmt::format("header: {}", abi::is_valid(*header) ? "a reader would accept it"
                                                                 : "a reader would not accept it"));
  add_line(out, fmt::format("     0 signature  \"{}\"{}",
                            std::string_view(header->signature.data(), header->signature.size()),
                            header->signature == abi::kSignature ? "" : ", want \"OTEL_CTX\""));
  show_fields(out, abi::fields_of(abi::HeaderLayout::kH5), bytes);
  // The memory of the process is missing, so whether the pointer is mapped and whether the payload
  // parses stay open. The sizes and clocks still tell most drafts apart.
  abi::RecognitionInput in;
  in.head = bytes;
  in.is_mapped = [](std::uint64_t, std::uint64_t) { return false; };
  in.payload = [](std::uint64_t, std::uint64_t) { return std::span<const std::byte>(); };
  const auto r = abi::recognise_header(in);
  if (const auto draft = abi::describe(r.best); !draft.empty()) {
    add_line(out, std::string(draft));
    if (abi::fields_of(r.best).layout == r.best) show_fields(out, abi::fields_of(r.best), bytes);
  }
  if (header->version != abi::kVersion && abi::byte_swapped(*header).version == abi::kVersion) {
    add_line(out, "the numbers are in the other byte order");
  }
  return abi::is_valid(*header) ? kExitClean : kExitFailed;
}

// `head` is the head of `bytes`, in the byte order of this machine.
void show_record(std::string& out, const abi::ThreadRecordHead& head,
                 std::span<const std::byte> bytes, const std::string& indent) {
  const auto digits = [](std::span<const std::uint8_t> id) {
    std::string text;
    for (const std::uint8_t b : id) text += fmt::format("{:02x}", b);
    return text;
  };
  const auto show = [&](int offset, const char* name, const std::string& value) {
    add_line(out, fmt::format("{}{:>4} {:<16} {}", indent, offset, name, value));
  };
  show(0, "trace-id", digits(head.trace_id) + (abi::has_trace_id(head) ? "" : " (none)"));
  show(16, "span-id", digits(head.span_id) + (abi::has_span_id(head) ? "" : " (none)"));
  show(24, "valid",
       fmt::format("{}{}", head.valid,
                   head.valid == abi::kRecordValid ? "" : " (readers ignore it)"));
  show(25, "trace-flags", fmt::format("{:#04x}", head.trace_flags));
  show(26, "attrs-data-size", std::to_string(head.attrs_data_size));
  const auto rest = bytes.subspan(sizeof head);
  const auto area = rest.first(std::min<std::size_t>(rest.size(), head.attrs_data_size));
  abi::AttributeCursor cursor(area);
  while (const auto entry = cursor.next()) {
    const auto* text = reinterpret_cast<const char*>(entry->value.data());
    add_line(out, fmt::format("{}{:>4} key {:>3}, {:>3} bytes: \"{}\"", indent,
                              sizeof head + entry->offset, entry->key, entry->value.size(),
                              std::string_view(text, entry->value.size())));
  }
  if (area.size() < head.attrs_data_size) {
    add_line(out, fmt::format("{}     {} bytes are missing", indent,
                              head.attrs_data_size - area.size()));
  } else if (cursor.left() > 0) {
    add_line(out, fmt::format("{}{:>4} {} bytes are not a whole entry", indent,
                              sizeof head + cursor.offset(), cursor.left()));
  }
}

// The record is valid, and its entries fill the announced size exactly.
bool is_good_record(std::span<const std::byte> bytes) {
  const auto head = abi::decode_thread_record(bytes);
  if (!head || head->valid != abi::kRecordValid) return false;
  const auto rest = bytes.subspan(sizeof *head);
  return rest.size() >= head->attrs_data_size &&
         abi::walks_exactly(rest.first(head->attrs_data_size));
}

int decode_record(std::string& out, const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  const auto head = abi::decode_thread_record(bytes);
  if (!head) {
    return complain(kExitUsage,
                    fmt::format("a record has 28 bytes or more, but {} were given", bytes.size()));
  }
  const bool good = is_good_record(bytes);
  add_line(out, fmt::format("record: {}",
                            good ? "a reader would use it"
                            : head->valid == abi::kRecordValid
                                ? "a reader would use its ids and the entries before the damage"
                                : "a reader would ignore it"));
  show_record(out, *head, bytes, "  ");
  abi::RecordRecognitionInput in;
  in.bytes = bytes;
  const auto r = abi::recognise_record(in);
  if (const auto draft = abi::describe(r.best); !draft.empty()) add_line(out, std::string(draft));
  if (r.other_byte_order) add_line(out, "attrs-data-size is in the other byte order");
  return good ? kExitClean : kExitFailed;
}

int decode_payload(std::string& out, const std::string& text) {
  const auto payload = analyse_payload(std::as_bytes(std::span(text)));
  for (const auto& l : describe(payload)) add_line(out, l);
  return payload.problem == PayloadProblem::kNone ? kExitClean : kExitFailed;
}

// The result is negative if `ns` is before `begin`: a recording may say anything.
double seconds_after(std::uint64_t begin, std::uint64_t ns) {
  return (static_cast<double>(ns) - static_cast<double>(begin)) / 1e9;
}

int decode_snapshot(std::string& out, const std::string& text) {
  const auto timeline = timeline_from_json(text);
  if (!timeline) return complain(kExitUsage, timeline.error().detail);
  std::uint64_t begin = UINT64_MAX;
  for (const auto& p : timeline->processes) {
    for (const auto& i : p.images) begin = std::min(begin, i.started_ns);
  }
  add_line(out, fmt::format("{} of {} on Linux {} {}, {} processes", to_string(timeline->mode),
                            timeline->target.empty() ? "?" : timeline->target.front(),
                            timeline->kernel, timeline->arch, timeline->processes.size()));
  const auto evidence = evidence_of(*timeline);
  for (const auto& e : evidence) {
    add_line(out, "");
    add_line(out, e.name() + ": " + e.image->ending);
    for (std::size_t i = 0; i < e.contexts.size(); ++i) {
      const Snapshot& s = e.image->snapshots[i];
      add_line(out, fmt::format("  +{:.3f} s, seen {} times until +{:.3f} s ({})",
                                seconds_after(begin, s.first_seen_ns), s.times,
                                seconds_after(begin, s.last_seen_ns), to_string(s.moment)));
      for (const Context& c : e.contexts[i]) {
        add_line(out, "    " + to_maps_line(c.candidate->entries.front()));
        add_line(out,
                 fmt::format(
                     "      version {}, size {}, timestamp {}, payload {:#x}: {}", c.header.version,
                     c.header.payload_size, c.header.monotonic_published_at_ns, c.header.payload,
                     c.usable() ? "a reader would accept it" : "no reader would accept it"));
        if (c.payload == nullptr) continue;
        for (const auto& l : describe(*c.payload)) add_line(out, "      " + l);
      }
      for (const auto& d : s.descriptors)
        add_line(out, fmt::format("    fd {} -> {}", d.fd, d.link));
    }
    for (const Record& r : e.records) {
      add_line(out, fmt::format("  +{:.3f} s, seen {} times: thread {}, slot {:#x} -> {:#x}",
                                seconds_after(begin, r.sample->first_seen_ns), r.sample->times,
                                r.sample->tid, r.sample->slot, r.sample->value));
      show_record(out, r.head, r.sample->record->bytes, "    ");
    }
  }
  if (evidence.empty()) add_line(out, "no process published a context or has thread records");
  return kExitClean;
}

int decode(const DecodeCommand& c) {
  if (c.hex.empty() == c.file.empty()) {
    return complain(kExitUsage, "decode: give one of FILE, - or --hex STR");
  }
  std::string bytes;
  if (!c.hex.empty()) {
    auto decoded = bytes_of_hex(c.hex);
    if (!decoded) {
      return complain(kExitUsage, "--hex: these are not pairs of hex digits",
                      "like 4f54454c5f435458, with spaces if you like");
    }
    bytes = std::move(*decoded);
  } else {
    auto text = read_file(c.file, kLongestInput);
    if (!text) return complain(kExitUsage, "decode: " + sys::to_string(text.error()));
    bytes = std::move(*text);
  }
  const std::string as = c.as.empty() ? guess(bytes) : c.as;
  std::string out;
  const int code = as == "header"     ? decode_header(out, bytes)
                   : as == "record"   ? decode_record(out, bytes)
                   : as == "snapshot" ? decode_snapshot(out, bytes)
                                      : decode_payload(out, bytes);
  return out.empty() ? code : print(out, code);
}

}  // namespace

Command decode_command(CLI::App& app, const Words& /*command_line*/) {
  const auto o = std::make_shared<DecodeCommand>();
  CLI::App* sub =
      app.add_subcommand("decode", "decode the bytes of a header, payload, record or snapshot");
  sub->add_option(
         "--as", o->as,
         "header, payload, record or snapshot; default: guess between header, payload and snapshot")
      ->check(CLI::IsMember({"header", "payload", "record", "snapshot"}));
  sub->add_option("--hex", o->hex, "the bytes, in hexadecimal");
  sub->add_option("FILE", o->file, "the file that has the bytes, or - for stdin");
  sub->footer(
      "Exit codes: 0 the bytes are valid, or a snapshot was shown, 1 they are not: a reader "
      "ignores\n"
      "them or a part of them, 2 usage, a file that cannot be read, too few bytes for a header or\n"
      "record, or a snapshot that is not a timeline.json, 3 stdout could not be written, 70 a bug "
      "in\n"
      "ctxconf.");

  return {
      .app = sub, .run = [o](const Words& /*program*/) { return decode(*o); }, .takes = nullptr};
}

}  // namespace ctxconf::conformance
