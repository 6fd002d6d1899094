#include "reader_ref/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "reader_ref/printable.h"

namespace ctxconf::reader {
namespace {

using nlohmann::ordered_json;
using opentelemetry::proto::common::v1::AnyValue;

constexpr int kFormat = 1;
constexpr std::size_t kWidestKey = 40;
constexpr int kShownAttributes = 512;  // of one group, in text

ordered_json to_json(const KeyValues& attributes);

ordered_json number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

// As deep as the message, which protobuf limits.
ordered_json to_json(const AnyValue& value) {
  switch (value.value_case()) {
    case AnyValue::kStringValue:
      return value.string_value();
    case AnyValue::kBoolValue:
      return value.bool_value();
    case AnyValue::kIntValue:
      return value.int_value();
    case AnyValue::kDoubleValue:
      return number(value.double_value());
    case AnyValue::kArrayValue: {
      auto out = ordered_json::array();
      for (const AnyValue& element : value.array_value().values()) out.push_back(to_json(element));
      return out;
    }
    case AnyValue::kKvlistValue:
      return to_json(value.kvlist_value().values());
    case AnyValue::kBytesValue: {
      const std::string& bytes = value.bytes_value();
      return {{"bytes", to_hex(std::span(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                         bytes.size()))}};
    }
    case AnyValue::kStringValueStrindex:
    case AnyValue::VALUE_NOT_SET:
      break;
  }
  return nullptr;
}

// Each key once, at its first position, with its last value. Uses the vector below ordered_json,
// which would search all its keys at every insertion.
ordered_json to_json(const KeyValues& attributes) {
  std::map<std::string_view, std::size_t> locations;
  std::vector<const KeyValue*> kept;
  for (const KeyValue& pair : attributes) {
    const auto [location, is_new] = locations.try_emplace(pair.key(), kept.size());
    if (is_new) {
      kept.push_back(&pair);
    } else {
      kept[location->second] = &pair;
    }
  }
  ordered_json::object_t out;
  out.reserve(kept.size());
  for (const KeyValue* pair : kept) {
    out.emplace_back(pair->key(), to_json(pair->value()));
  }
  return out;
}

ordered_json context_json(const ProcessContext& context) {
  ordered_json out;
  out["address"] = fmt::format("{:#x}", context.mapping.range.begin().raw());
  out["mapping"] = context.mapping.name;
  out["published_at_ns"] = context.header.monotonic_published_at_ns;
  out["payload_size"] = context.header.payload_size;
  out["resource"] = nullptr;
  if (context.message.has_resource()) {
    out["resource"] = to_json(context.message.resource().attributes());
  }
  out["attributes"] = to_json(context.message.attributes());
  return out;
}

ordered_json thread_json(const ThreadReport& thread) {
  ordered_json out;
  out["tid"] = thread.tid;
  out["name"] = thread.name;
  out["context"] = nullptr;
  if (!thread.context) {
    out["why"] = thread.why;
    return out;
  }
  ordered_json context;
  context["trace_id"] = nullptr;
  context["span_id"] = nullptr;
  context["flags"] = nullptr;
  if (const auto& link = thread.context->link) {
    context["trace_id"] = to_hex(link->trace_id);
    context["span_id"] = to_hex(link->span_id);
    context["flags"] = link->flags;
  }
  context["attributes"] = ordered_json::object();
  for (const NamedValue& a : thread.context->attributes) context["attributes"][a.key] = a.value;
  context["unknown_indexes"] = thread.context->unknown;
  context["notes"] = thread.context->notes;
  out["context"] = std::move(context);
  return out;
}

// --- text

std::string value_text(const AnyValue& value) {
  if (value.value_case() == AnyValue::kStringValue) return printable(value.string_value());
  if (value.value_case() == AnyValue::VALUE_NOT_SET) return "(no value)";
  return printable(to_json(value).dump(-1, ' ', false, ordered_json::error_handler_t::replace));
}

std::string attributes_text(std::string_view title, const KeyValues& attributes) {
  std::string out = fmt::format("  {}\n", title);
  if (attributes.empty()) return out + "    (none)\n";
  const int shown = std::min(attributes.size(), kShownAttributes);
  std::size_t widest = 0;
  for (int i = 0; i < shown; ++i) {
    widest = std::max(widest, width(printable(attributes[i].key())));
  }
  widest = std::min(widest, kWidestKey);
  for (int i = 0; i < shown; ++i) {
    const KeyValue& pair = attributes[i];
    const std::string key = printable(pair.key());
    const std::size_t padding = widest - std::min(widest, width(key));
    out += fmt::format("    {}{}  {}\n", key, std::string(padding, ' '), value_text(pair.value()));
  }
  if (shown < attributes.size()) {
    out += fmt::format("    ({} more)\n", attributes.size() - shown);
  }
  return out;
}

// A word, quoted if its end would not be visible.
std::string word(std::string_view text) {
  std::string out = printable(text);
  if (!out.empty() && out.find_first_of(" \"=") == std::string::npos) return out;
  std::string quoted = "\"";
  for (const char c : out) quoted += c == '"' ? std::string("\\\"") : std::string(1, c);
  return quoted + '"';
}

std::string thread_head(const ThreadReport& thread) {
  const std::string name = printable(thread.name);
  return fmt::format("    {:>7}  {}{}", thread.tid, name,
                     std::string(15 - std::min<std::size_t>(15, width(name)), ' '));
}

std::string context_text(const ThreadContext& context) {
  std::string out = fmt::format("  {:32}  {:16}  {:5}", "-", "-", "-");
  if (const auto& link = context.link) {
    out = fmt::format("  {}  {}  {:02x}   ", to_hex(link->trace_id), to_hex(link->span_id),
                      link->flags);
  }
  for (const NamedValue& a : context.attributes) {
    out += fmt::format(" {}={}", word(a.key), word(a.value));
  }
  for (const std::uint8_t index : context.unknown) {
    out += fmt::format(" (index {}: no name)", index);
  }
  for (const std::string& note : context.notes) out += fmt::format(" ({})", note);
  return out.substr(0, out.find_last_not_of(' ') + 1);
}

std::string threads_text(const ProcessReport& report, bool verbose) {
  const auto with = static_cast<std::size_t>(std::ranges::count_if(
      report.threads, [](const ThreadReport& t) { return t.context.has_value(); }));
  std::string out =
      fmt::format("  threads: {} of {} have a context\n", with, report.threads.size());
  if (verbose) {
    for (const VariableReport& v : report.variables) {
      out += fmt::format(
          "    otel_thread_ctx_v1 in {}: {}\n", printable(v.module),
          v.models.empty() ? "no access found" : fmt::format("{}", fmt::join(v.models, ", ")));
    }
  }
  if (with > 0 || (verbose && !report.threads.empty())) {
    out += fmt::format("    {:>7}  {:15}  {:32}  {:16}  {:5} {}\n", "TID", "NAME", "TRACE ID",
                       "SPAN ID", "FLAGS", "ATTRIBUTES");
  }
  for (const ThreadReport& thread : report.threads) {
    if (thread.context || verbose) out += to_text(thread) + '\n';
  }
  return out;
}

}  // namespace

std::string to_hex(std::span<const std::uint8_t> bytes) {
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

std::string to_text(const ThreadReport& thread) {
  if (thread.context) return thread_head(thread) + context_text(*thread.context);
  return fmt::format("{}  none: {}", thread_head(thread), printable(thread.why));
}

std::string to_text(const ProcessReport& report, bool verbose) {
  std::string out = fmt::format("process {}  {}\n", report.pid, printable(report.executable));
  if (report.context) {
    const ProcessContext& context = *report.context;
    if (verbose) {
      out += fmt::format("  mapping at {:#x} {}, timestamp {}, payload of {} bytes\n",
                         context.mapping.range.begin().raw(), printable(context.mapping.name),
                         context.header.monotonic_published_at_ns, context.header.payload_size);
    }
    if (context.message.has_resource()) {
      out += attributes_text("resource", context.message.resource().attributes());
    } else {
      out += "  no resource\n";
    }
    out += attributes_text("attributes", context.message.attributes());
  }
  if (report.threads_read) {
    out += threads_text(report, verbose);
  } else if (!report.threads_why.empty()) {
    out += fmt::format("  threads not read: {}\n", printable(report.threads_why));
  }
  if (verbose || !report.context) {
    for (const std::string& note : report.notes)
      out += fmt::format("  note: {}\n", printable(note));
  }
  return out;
}

ordered_json to_json(const ProcessReport& report) {
  ordered_json out;
  out["format"] = kFormat;
  out["pid"] = report.pid;
  out["start_ticks"] = report.start_ticks;
  out["executable"] = report.executable;
  out["context"] = report.context ? context_json(*report.context) : ordered_json(nullptr);
  out["busy"] = report.busy;
  out["thread_contexts"] = nullptr;
  if (report.threads_read || !report.threads_why.empty()) {
    ordered_json threads;
    threads["schema_version"] = nullptr;
    if (report.context->has_schema) threads["schema_version"] = report.context->schema;
    threads["read"] = report.threads_read;
    threads["why"] = report.threads_why;
    threads["variables"] = ordered_json::array();
    for (const VariableReport& v : report.variables) {
      threads["variables"].push_back({{"module", v.module}, {"models", v.models}});
    }
    threads["threads"] = ordered_json::array();
    for (const ThreadReport& t : report.threads) threads["threads"].push_back(thread_json(t));
    out["thread_contexts"] = std::move(threads);
  }
  out["notes"] = report.notes;
  return out;
}

std::string to_line(const ordered_json& object) {
  return object.dump(-1, ' ', true, ordered_json::error_handler_t::replace);
}

}  // namespace ctxconf::reader
