#include "golden/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "golden/hexdump.h"
#include "golden/members.h"

namespace ctxconf::golden {
namespace {

// Longer lists are compared as blocks.
constexpr std::size_t kMostCompared = 2000;

void add(std::vector<std::string>& out, const std::string& name, const std::string& value) {
  out.push_back(name + " = " + value);
}

// The fields of nested messages with their path.
void add_annotations(std::vector<std::string>& out, const std::string& name,
                     const std::vector<Annotation>& annotations, std::string_view bytes) {
  std::vector<std::string> path{name};
  for (const Annotation& a : annotations) {
    path.resize(std::min(path.size(), a.depth + 1));
    std::string where;
    for (const auto& p : path) where += p + ".";
    const bool is_message = a.text.find(" = ") == std::string::npos;
    // Long values are shortened in the text.
    const bool is_cut = a.text.find("... (") != std::string::npos || a.text.ends_with(" bytes");
    out.push_back(where + a.text +
                  (is_cut || is_message ? " " + hex_of(bytes.substr(a.offset, a.length)) : ""));
    if (!is_message) continue;
    const auto comma = a.text.find(", ");
    if (comma == std::string::npos || a.text.starts_with("field ")) continue;
    out.back() = where + a.text.substr(0, comma);
    path.push_back(a.text.substr(0, comma));
  }
}

void add_attributes(std::vector<std::string>& out, const std::string& name,
                    const Attributes& attributes) {
  if (attributes.empty()) add(out, name, "(none)");
  for (const auto& [key, value] : attributes) add(out, fmt::format("{}.{}", name, key), value);
}

void add_masks(std::vector<std::string>& out, const std::vector<Mask>& masks) {
  for (const Mask& m : masks) {
    add(out, fmt::format("mask {}+{}", m.offset, m.length), m.name + ": " + m.rule);
  }
}

std::string expect_name(std::size_t i, std::size_t count) {
  return count == 1 ? "expect" : fmt::format("expect_any[{}]", i);
}

void add_fields(std::vector<std::string>& out, const ProcessContextVector& v) {
  add(out, "layout", std::string(abi::fields_of(v.layout).id));
  add(out, "mapping.address", address_text(v.mapping_address));
  add(out, "mapping.size", std::to_string(v.mapping_size));
  add_annotations(out, "header", annotate_header(v.layout, v.header, {}), v.header);
  add(out, "payload_at", address_text(v.payload_at));
  add_annotations(out, "payload", annotate_payload(v.payload), v.payload);
  add(out, "clock.boottime_ns", std::to_string(v.boottime_ns));
  add_masks(out, v.masks);
  for (std::size_t i = 0; i < v.expect.size(); ++i) {
    const auto name = expect_name(i, v.expect.size());
    add_attributes(out, name + ".resource", v.expect[i].resource);
    add_attributes(out, name + ".attributes", v.expect[i].attributes);
  }
}

void add_fields(std::vector<std::string>& out, const ThreadRecordVector& v) {
  add(out, "layout", v.layout);
  add_annotations(out, "record", annotate_record(v.record, {}, v.layout), v.record);
  for (std::size_t i = 0; i < v.key_map.size(); ++i) {
    add(out, fmt::format("key_map[{}]", i), v.key_map[i]);
  }
  add(out, "schema", v.schema);
  add_masks(out, v.masks);
  for (std::size_t i = 0; i < v.expect.size(); ++i) {
    const auto name = expect_name(i, v.expect.size());
    const RecordContent& e = v.expect[i];
    add(out, name + ".trace_id", e.trace_id);
    add(out, name + ".span_id", e.span_id);
    add(out, name + ".flags", std::to_string(e.flags));
    add_attributes(out, name + ".attributes", e.attributes);
  }
}

void add_fields(std::vector<std::string>& out, const MapsVector& v) {
  std::string_view rest = v.maps;
  while (!rest.empty()) {
    const auto end = rest.find('\n');
    add(out, "line", std::string(rest.substr(0, end)));
    if (end == std::string_view::npos) {
      add(out, "final_newline", "false");
      break;
    }
    rest.remove_prefix(end + 1);
  }
  for (std::size_t i = 0; i < v.expect.size(); ++i) {
    std::string list;
    for (const auto address : v.expect[i].candidates) list += " " + address_text(address);
    add(out, expect_name(i, v.expect.size()) + ".candidates",
        list.empty() ? "(none)" : list.substr(1));
  }
}

// The longest common subsequence by the table of its lengths.
void diff_middle(std::vector<std::string>& out, std::span<const std::string> a,
                 std::span<const std::string> b) {
  if (a.size() > kMostCompared || b.size() > kMostCompared) {
    for (const auto& line : a) out.push_back("- " + line);
    for (const auto& line : b) out.push_back("+ " + line);
    return;
  }
  const std::size_t width = b.size() + 1;
  std::vector<std::uint16_t> longest((a.size() + 1) * width, 0);
  for (std::size_t i = a.size(); i-- > 0;) {
    for (std::size_t j = b.size(); j-- > 0;) {
      longest[i * width + j] =
          a[i] == b[j] ? static_cast<std::uint16_t>(longest[(i + 1) * width + j + 1] + 1)
                       : std::max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() || j < b.size()) {
    if (i < a.size() && j < b.size() && a[i] == b[j]) {
      ++i;
      ++j;
    } else if (j == b.size() ||
               (i < a.size() && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) {
      out.push_back("- " + a[i++]);
    } else {
      out.push_back("+ " + b[j++]);
    }
  }
}

}  // namespace

std::vector<std::string> field_lines(const Vector& v) {
  std::vector<std::string> out;
  add(out, "kind", std::string(to_string(v.kind)));
  for (const auto& r : v.requirements) add(out, "requirement", r);
  add(out, "comment", v.comment);
  if (v.kind == Kind::kProcessContext) add_fields(out, v.process_context);
  if (v.kind == Kind::kThreadRecord) add_fields(out, v.thread_record);
  if (v.kind == Kind::kMaps) add_fields(out, v.maps);
  for (const Result r : v.results) add(out, "result", std::string(to_string(r)));
  return out;
}

std::vector<std::string> diff(const Vector& a, const Vector& b) {
  const auto a_lines = field_lines(a);
  const auto b_lines = field_lines(b);
  std::span<const std::string> left(a_lines);
  std::span<const std::string> right(b_lines);
  while (!left.empty() && !right.empty() && left.front() == right.front()) {
    left = left.subspan(1);
    right = right.subspan(1);
  }
  while (!left.empty() && !right.empty() && left.back() == right.back()) {
    left = left.first(left.size() - 1);
    right = right.first(right.size() - 1);
  }
  std::vector<std::string> out;
  diff_middle(out, left, right);
  return out;
}

}  // namespace ctxconf::golden
