#include "golden/vector.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "golden/files.h"
#include "golden/members.h"
#include "golden/values.h"
#include "golden/vector_members.h"

namespace ctxconf::golden {
namespace {

constexpr std::size_t kLongestName = 80;

constexpr Result kResults[] = {Result::kAccept, Result::kAbsent, Result::kReject, Result::kRetry};

OrderedJson masks_json(const std::vector<Mask>& masks) {
  OrderedJson list = OrderedJson::array();
  for (const Mask& m : masks) {
    list.push_back(
        {{"offset", m.offset}, {"length", m.length}, {"name", m.name}, {"rule", m.rule}});
  }
  return list;
}

std::string digits_from(Members& members, const char* name, std::size_t digits) {
  std::string text = members.text(name);
  if (text.size() != digits || !bytes_of_hex(text)) {
    members.wrong(name, fmt::format("must be {} hex digits, lower case", digits));
  }
  return text;
}

RecordContent record_content_from(Members expect) {
  RecordContent out;
  out.trace_id = digits_from(expect, "trace_id", 32);
  out.span_id = digits_from(expect, "span_id", 16);
  out.flags = static_cast<std::uint8_t>(expect.number("flags", 255));
  const Json* attributes = expect.need("attributes");
  if (attributes == nullptr || !attributes->is_object()) {
    expect.wrong("attributes", "must be an object of names and values");
  } else {
    for (const auto& [name, value] : attributes->items()) {
      if (value.is_string()) {
        out.attributes[name] = value.get<std::string>();
        continue;
      }
      Members bytes(value, expect.where() + "attributes." + name + ".", expect.error());
      bytes.need("hex");
      out.attributes[name] = bytes.hex("hex");
      bytes.finish();
    }
  }
  expect.finish();
  return out;
}

bool is_text(const Bytes& bytes) {
  try {
    return !Json(bytes).dump().empty();
  } catch (const Json::exception&) {  // not UTF-8
    return false;
  }
}

OrderedJson to_json_value(const RecordContent& content) {
  OrderedJson attributes = OrderedJson::object();
  for (const auto& [name, value] : content.attributes) {
    attributes[name] = is_text(value) ? OrderedJson(value) : OrderedJson{{"hex", hex_of(value)}};
  }
  return {{"trace_id", content.trace_id},
          {"span_id", content.span_id},
          {"flags", content.flags},
          {"attributes", std::move(attributes)}};
}

MapsContent maps_content_from(Members expect) {
  MapsContent out;
  const Json& list = *expect.list("candidates");
  if (list.empty()) expect.wrong("candidates", "is empty; a text without one is absent");
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto address =
        list[i].is_string() ? address_of(list[i].get<std::string>()) : std::nullopt;
    if (!address) expect.wrong("candidates", "must be addresses like \"0x7f5e10000000\"");
    out.candidates.push_back(address.value_or(0));
  }
  expect.finish();
  return out;
}

OrderedJson to_json_value(const MapsContent& content) {
  OrderedJson list = OrderedJson::array();
  for (const auto address : content.candidates) list.push_back(address_text(address));
  return {{"candidates", std::move(list)}};
}

template <class Content, class Read>
std::vector<Content> contents_from(Members& members, bool accepted, Read read) {
  std::vector<Content> out;
  const bool one = members.has("expect");
  const bool any = members.has("expect_any");
  if (accepted ? one == any : one || any) {
    members.wrong("expect", accepted ? "an accepted vector has one of expect and expect_any"
                                     : "only an accepted vector has it");
    return out;
  }
  if (one) out.push_back(read(members.object("expect")));
  if (any) {
    const Json& list = *members.list("expect_any");
    if (list.size() < 2) members.wrong("expect_any", "must be a list of two or more");
    for (std::size_t i = 0; i < list.size(); ++i) {
      out.push_back(read(members.element("expect_any", list, i)));
    }
  }
  return out;
}

template <class Content>
void put_contents(OrderedJson& out, const std::vector<Content>& contents) {
  if (contents.size() == 1) {
    out["expect"] = to_json_value(contents.front());
  } else if (!contents.empty()) {
    for (const Content& c : contents) out["expect_any"].push_back(to_json_value(c));
  }
}

std::vector<Result> results_from(Members& members) {
  std::vector<Result> results;
  const auto add = [&](const Json& json) {
    const auto* found =
        std::ranges::find_if(kResults, [&](Result r) { return json == to_string(r); });
    if (found == std::end(kResults) || std::ranges::find(results, *found) != results.end()) {
      return members.wrong("result", "must be accept, absent, reject or retry, or a list of them");
    }
    results.push_back(*found);
  };
  const Json* value = members.need("result");
  if (value == nullptr) return results;
  if (value->is_array()) {
    if (value->size() < 2) members.wrong("result", "a list has two results or more");
    for (const Json& r : *value) add(r);
  } else {
    add(*value);
  }
  return results;
}

void put_results(OrderedJson& out, const std::vector<Result>& results) {
  if (results.size() == 1) {
    out["result"] = to_string(results.front());
    return;
  }
  for (const Result r : results) out["result"].push_back(to_string(r));
}

void put(OrderedJson& out, const ProcessContextVector& v, const std::vector<Result>& results) {
  out["layout"] = abi::fields_of(v.layout).id;
  out["header"] = hex_of(v.header);
  out["mapping"]["size"] = v.mapping_size;
  out["mapping"]["address"] = address_text(v.mapping_address);
  out["payload"] = hex_of(v.payload);
  out["payload_at"] = address_text(v.payload_at);
  out["clock"]["boottime_ns"] = v.boottime_ns;
  out["masks"] = masks_json(v.masks);
  put_results(out, results);
  put_contents(out, v.expect);
}

void put(OrderedJson& out, const ThreadRecordVector& v, const std::vector<Result>& results) {
  out["layout"] = v.layout;
  out["record"] = hex_of(v.record);
  out["key_map"] = v.key_map;
  out["schema"] = v.schema;
  out["masks"] = masks_json(v.masks);
  put_results(out, results);
  put_contents(out, v.expect);
}

void put(OrderedJson& out, const MapsVector& v, const std::vector<Result>& results) {
  out["maps"] = v.maps;
  put_results(out, results);
  put_contents(out, v.expect);
}

void read(Members& members, const Vector& v, ProcessContextVector& out) {
  out.layout = header_layout_from(members);
  out.header = members.hex("header");
  Members mapping = members.object("mapping");
  out.mapping_size = mapping.number("size", kLargestMapping);
  out.mapping_address = mapping.address("address");
  mapping.finish();
  out.payload = members.hex("payload");
  out.payload_at = members.address("payload_at");
  Members clock = members.object("clock");
  out.boottime_ns = clock.number("boottime_ns", UINT64_MAX);
  clock.finish();
  out.masks = masks_from(members, out.header.size());
  out.expect = process_contents_from(members, v);
  check_memory(members, out);
}

void read(Members& members, const Vector& v, ThreadRecordVector& out) {
  out.layout = record_layout_from(members);
  out.record = members.hex("record");
  out.key_map = key_map_from(members);
  out.schema = members.text("schema");
  out.masks = masks_from(members, out.record.size());
  out.expect = record_contents_from(members, v);
}

void read(Members& members, const Vector& v, MapsVector& out) {
  out.maps = members.text("maps");
  out.expect = maps_contents_from(members, v);
}

}  // namespace

std::string_view to_string(Kind kind) {
  switch (kind) {
    case Kind::kProcessContext:
      return "process-context";
    case Kind::kThreadRecord:
      return "thread-record";
    case Kind::kMaps:
      return "maps";
  }
  return "";
}

std::string_view id_prefix(Kind kind) {
  switch (kind) {
    case Kind::kProcessContext:
      return "pctx/";
    case Kind::kThreadRecord:
      return "rec/";
    case Kind::kMaps:
      return "maps/";
  }
  return "";
}

std::string_view revision_of(Kind kind) {
  return kind == Kind::kThreadRecord ? "2026-07-17" : "2026-04-07";
}

std::string_view to_string(Result result) {
  switch (result) {
    case Result::kAccept:
      return "accept";
    case Result::kAbsent:
      return "absent";
    case Result::kReject:
      return "reject";
    case Result::kRetry:
      return "retry";
  }
  return "";
}

std::string_view Vector::name() const {
  return std::string_view(id).substr(std::min(id.size(), id_prefix(kind).size()));
}

bool Vector::allows(Result result) const {
  return std::ranges::find(results, result) != results.end();
}

std::filesystem::path file_of(const Vector& vector) {
  return std::filesystem::path(to_string(vector.kind)) / (std::string(vector.name()) + ".json");
}

std::vector<MemoryPiece> memory_of(const ProcessContextVector& v) {
  MemoryPiece mapping{v.mapping_address, v.header};
  mapping.bytes.resize(std::max<std::uint64_t>(v.mapping_size, v.header.size()), '\0');
  const bool inside =
      v.payload_at >= v.mapping_address && v.payload_at - v.mapping_address < v.mapping_size;
  if (inside) {
    mapping.bytes.replace(v.payload_at - v.mapping_address, v.payload.size(), v.payload);
    return {std::move(mapping)};
  }
  if (v.payload.empty()) return {std::move(mapping)};
  return {std::move(mapping), {v.payload_at, v.payload}};
}

// --- shared with the sources

abi::HeaderLayout header_layout_from(Members& members) {
  const std::string id = members.text("layout", "H5");
  for (const auto& layout : abi::header_layouts()) {
    if (layout.id == id) return layout.layout;
  }
  members.wrong("layout", "must be H0, H1, H2, H3 or H5");
  return abi::HeaderLayout::kH5;
}

std::string record_layout_from(Members& members) {
  constexpr std::string_view kKnown[] = {"T0", "T1", "T2", "T3"};
  std::string id = members.text("layout", "T3");
  if (std::ranges::find(kKnown, id) == std::end(kKnown)) {
    members.wrong("layout", "must be T0, T1, T2 or T3");
  }
  return id;
}

std::vector<std::string> key_map_from(Members& members) {
  std::vector<std::string> keys;
  for (const Json& key : *members.list("key_map")) {
    if (!key.is_string()) members.wrong("key_map", "must be a list of texts");
    keys.push_back(key.is_string() ? key.get<std::string>() : "");
  }
  return keys;
}

void check_memory(Members& members, const ProcessContextVector& v) {
  if (v.header.size() > v.mapping_size) members.wrong("mapping.size", "is less than the header");
  if (v.mapping_size > UINT64_MAX - v.mapping_address ||
      v.payload.size() > UINT64_MAX - v.payload_at) {
    return members.wrong("mapping.address", "leaves no room before the end of the address space");
  }
  const auto mapping_end = v.mapping_address + v.mapping_size;
  const auto payload_end = v.payload_at + v.payload.size();
  const bool apart = payload_end <= v.mapping_address || v.payload_at >= mapping_end;
  const bool after_header = v.payload_at >= v.mapping_address + v.header.size();
  if (!apart && !(after_header && payload_end <= mapping_end)) {
    members.wrong("payload_at",
                  "the payload is neither inside the mapping after the header nor "
                  "outside the mapping: use a larger mapping.size or another address");
  }
}

void read_common(Members& members, Vector& v) {
  v.id = members.text("id");
  const auto prefix = id_prefix(v.kind);
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  };
  if (!v.id.starts_with(prefix) || v.name().empty() || v.name().size() > kLongestName ||
      !std::ranges::all_of(v.name(), is_plain)) {
    members.wrong("id", fmt::format("must be {}NAME of a-z, 0-9 and -, at most {} characters",
                                    prefix, kLongestName));
  }
  const Json& requirements = *members.list("requirements");
  if (requirements.empty()) members.wrong("requirements", "must name one or more");
  for (const Json& r : requirements) {
    if (!r.is_string() || r.get_ref<const std::string&>().empty()) {
      members.wrong("requirements", "must be ids of the catalogue");
      continue;
    }
    const auto id = r.get<std::string>();
    if (std::ranges::find(v.requirements, id) != v.requirements.end()) {
      members.wrong("requirements", id + " appears twice");
    }
    v.requirements.push_back(id);
  }
  v.comment = members.text("comment");
  if (v.comment.empty() || v.comment.find('\n') != std::string::npos) {
    members.wrong("comment", "must be one line that says what the vector is about");
  }
  v.results = results_from(members);
}

std::vector<ProcessContent> process_contents_from(Members& members, const Vector& v) {
  return contents_from<ProcessContent>(members, v.allows(Result::kAccept), process_content_from);
}
std::vector<RecordContent> record_contents_from(Members& members, const Vector& v) {
  return contents_from<RecordContent>(members, v.allows(Result::kAccept), record_content_from);
}
std::vector<MapsContent> maps_contents_from(Members& members, const Vector& v) {
  return contents_from<MapsContent>(members, v.allows(Result::kAccept), maps_content_from);
}

std::vector<Mask> masks_from(Members& members, std::size_t size) {
  std::vector<Mask> masks;
  if (!members.has("masks")) return masks;
  const Json& list = *members.list("masks");
  for (std::size_t i = 0; i < list.size(); ++i) {
    Members m = members.element("masks", list, i);
    masks.push_back(
        {m.number("offset", size), m.number("length", size), m.text("name"), m.text("rule")});
    if (masks.back().length > size - masks.back().offset) m.wrong("length", "ends after the bytes");
    m.finish();
  }
  return masks;
}

void check_kind(Members& members, Kind kind) {
  const std::string said = members.text("kind");
  if (said != to_string(kind)) {
    members.wrong("kind", fmt::format("is \"{}\", here it must be \"{}\"", said, to_string(kind)));
  }
  const std::string revision = members.text("revision");
  if (revision != revision_of(kind)) {
    members.wrong("revision", fmt::format("is \"{}\"; this version of ctxconf knows {} only",
                                          revision, revision_of(kind)));
  }
}

// --- generated files

std::expected<Vector, std::string> parse_vector(std::string_view json, std::string_view file,
                                                Kind kind) {
  const auto fail = [&](const std::string& what) {
    return std::unexpected(fmt::format(
        "{}: {} (`ctxconf golden regenerate` makes it again after you delete it)", file, what));
  };
  const auto parsed = parse_json(json);
  if (!parsed) return fail(parsed.error());
  std::string error;
  Members members(*parsed, "", error);
  Vector v;
  v.kind = kind;
  check_kind(members, kind);
  read_common(members, v);
  if (kind == Kind::kProcessContext) read(members, v, v.process_context);
  if (kind == Kind::kThreadRecord) read(members, v, v.thread_record);
  if (kind == Kind::kMaps) read(members, v, v.maps);
  members.finish();
  if (!error.empty()) return fail(error);
  return v;
}

std::string to_json(const Vector& v) {
  OrderedJson out;
  out["kind"] = to_string(v.kind);
  out["revision"] = revision_of(v.kind);
  out["id"] = v.id;
  out["requirements"] = v.requirements;
  out["comment"] = v.comment;
  if (v.kind == Kind::kProcessContext) put(out, v.process_context, v.results);
  if (v.kind == Kind::kThreadRecord) put(out, v.thread_record, v.results);
  if (v.kind == Kind::kMaps) put(out, v.maps, v.results);
  return out.dump(1) + "\n";
}

std::expected<Kind, std::string> kind_in(std::string_view json, std::string_view file) {
  const auto parsed = parse_json(json);
  if (!parsed) return std::unexpected(fmt::format("{}: {}", file, parsed.error()));
  for (const Kind kind : kKinds) {
    if (parsed->is_object() && parsed->value("kind", Json()) == to_string(kind)) return kind;
  }
  return std::unexpected(
      fmt::format("{}: kind: must be process-context, thread-record or maps", file));
}

std::expected<std::vector<Vector>, std::string> load_vectors(const std::filesystem::path& golden,
                                                             Kind kind) {
  const auto folder = golden / to_string(kind);
  auto names = list_files(folder);
  if (!names) return std::unexpected(std::move(names).error());
  std::vector<Vector> out;
  for (const auto& name : *names) {
    if (!name.ends_with(".json")) continue;
    const auto path = folder / name;
    const auto text = read_file(path, kLongestVectorFile);
    if (!text) return std::unexpected(text.error());
    auto vector = parse_vector(*text, path.string(), kind);
    if (!vector) return std::unexpected(std::move(vector).error());
    if (file_of(*vector).filename() != name) {
      return std::unexpected(fmt::format("{}: contains {}, which belongs in {}; delete it",
                                         path.string(), vector->id, file_of(*vector).string()));
    }
    out.push_back(std::move(*vector));
  }
  if (out.empty()) {
    return std::unexpected(folder.string() +
                           ": contains no vectors (`ctxconf golden regenerate` makes them)");
  }
  return out;
}

}  // namespace ctxconf::golden
