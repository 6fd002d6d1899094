// The entries of the process context that a reader of threads needs: schema version and key map.
#include <string>
#include <utility>

#include "conformance/reader/publish.h"
#include "conformance/reader/scenes.h"

namespace ctxconf::conformance::reader {
namespace {

using puppet::Program;
using puppet::Value;

constexpr const char* kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";

Scene schema(const std::string& name, const char* requirement, Message message, bool is_known) {
  SceneBuilder s("schema-" + name,
                 is_known ? "the schema version " + message.schema
                          : "a schema version that names no such variable",
                 Program::kSlot);
  auto& b = s.script();
  publish(b, message.encoded());
  const Attached a = attach(b, Record().encoded());
  auto c = is_known ? claim(requirement, {accept(record_content(Record(), {}))},
                            "the schema version is not accepted")
                    : claim(requirement, no_context(),
                            "the variable is read although the schema version does not name it");
  if (!is_known) c.never = {kTrace};
  s.ask(about_thread(a, {std::move(c)}));
  return std::move(s).scene();
}

Message with_schema(const std::string& value) {
  Message out = reference_data({});
  out.schema = value;
  return out;
}

Scene without_entries() {
  SceneBuilder s("schema-missing", "a process context without the threadlocal entries",
                 Program::kSlot);
  auto& b = s.script();
  publish(b, service("ctxconf-threads").encoded());
  const Attached a = attach(b, Record().encoded());
  auto c = claim("tctx.reader.defers-without-keys", no_context(),
                 "the variable is read without any reference data");
  c.never = {kTrace};
  s.ask(about_thread(a, {std::move(c)}));
  return std::move(s).scene();
}

Scene late_entries() {
  SceneBuilder s("schema-late", "the threadlocal entries come with the second update",
                 Program::kSlot);
  auto& b = s.script();
  const puppet::Bytes first = service("ctxconf-threads").encoded();
  const Published p = publish(b, first);
  const Attached a = attach(b, Record().encoded());
  s.ask(about_thread(a, {}));
  const puppet::Bytes second = service("ctxconf-threads-2").encoded();
  update(b, p, place(b, second), second.size());
  s.ask(about_thread(a, {}));
  const puppet::Bytes third = reference_data({}).encoded();
  update(b, p, place(b, third), third.size());
  Question q = about_thread(
      a, {claim("tctx.reader.late-reference-data", {accept(record_content(Record(), {}))},
                "the variable is not looked for when its entries have come")});
  q.attempts = kAttempts;
  s.ask(std::move(q));
  return std::move(s).scene();
}

Scene new_name() {
  constexpr const char* kRefreshes = "tctx.reader.unknown-index-refreshes";
  SceneBuilder s("key-map-grows", "a name is added, and a record uses it at once", Program::kSlot);
  auto& b = s.script();
  const Published p = publish(b, reference_data({"http_route"}).encoded());
  Record r;
  r.entries = {{0, "/cart"}};
  const Attached a = attach(b, r.encoded());
  s.ask(about_thread(a, {claim(kRefreshes, {accept(record_content(r, {{"http_route", "/cart"}}))},
                               "an attribute is not named")}));
  const puppet::Bytes longer = reference_data({"http_route", "user_id"}).encoded();
  update(b, p, place(b, longer), longer.size());
  r.entries = {{0, "/cart"}, {1, "42"}};
  const Attached second = attach(b, r.encoded());
  s.ask(about_thread(
      second,
      {claim(kRefreshes, {accept(record_content(r, {{"http_route", "/cart"}, {"user_id", "42"}}))},
             "an index that is not in the known key map does not make the reader read it again")}));
  return std::move(s).scene();
}

Scene odd_key_map(const std::string& name, const std::string& about, Message message) {
  SceneBuilder s("key-map-" + name, about, Program::kSlot);
  auto& b = s.script();
  publish(b, message.encoded());
  Record r;
  r.entries = {{0, "/cart"}, {3, "GET"}};
  const Attached a = attach(b, r.encoded());
  s.ask(about_thread(a,
                     {claim("tctx.reader.index-by-position",
                            {accept(R"({"names_has":{"http_route":"/cart","http_method":"GET"}})")},
                            "names after an odd element of the key map are shifted")}));
  return std::move(s).scene();
}

// A reader may refuse such a key map as a whole, but not give a wrong name.
Scene number_in_key_map() {
  Message message = reference_data({"http_route", "a", "b", "http_method"});
  message.number_at = 1;
  SceneBuilder s("key-map-number", "a number in the key map", Program::kSlot);
  auto& b = s.script();
  publish(b, message.encoded());
  Record r;
  r.entries = {{0, "/cart"}, {3, "GET"}};
  const Attached a = attach(b, r.encoded());
  s.ask(about_thread(
      a,
      {claim(
          "tctx.reader.index-by-position",
          {accept(R"({"names_any":{"http_route":["/cart"],"http_method":["GET"],"a":[],"b":[]}})")},
          "names after an odd element of the key map are shifted")}));
  return std::move(s).scene();
}

Scene no_key_map() {
  Message message = reference_data({});
  message.no_key_map = true;
  SceneBuilder s("key-map-missing",
                 "a schema version without a key map, and a record with an attribute",
                 Program::kSlot);
  auto& b = s.script();
  publish(b, message.encoded());
  Record r;
  r.entries = {{0, "/cart"}};
  const Attached a = attach(b, r.encoded());
  s.ask(about_thread(a, {claim("tctx.reader.key-map-missing", {accept(record_content(r, {}))},
                               "without a key map the ids are lost too")}));
  return std::move(s).scene();
}

Scene long_key_map() {
  std::vector<std::string> names;
  for (int i = 0; i < 300; ++i) names.push_back("key" + std::to_string(i));
  SceneBuilder s("key-map-of-300", "a key map of 300 names", Program::kSlot);
  auto& b = s.script();
  publish(b, reference_data(names).encoded());
  Record r;
  r.entries = {{0, "first"}, {255, "last"}};
  const Attached a = attach(b, r.encoded());
  s.ask(about_thread(a, {claim("tctx.reader.key-map-over-256",
                               {accept(record_content(r, {{"key0", "first"}, {"key255", "last"}})),
                                accept(record_content(r, {}))},
                               "a key map with too many names gives wrong ones")}));
  return std::move(s).scene();
}

Scene child_with_other_names() {
  constexpr const char* kOwn = "tctx.reader.fork-key-map";
  SceneBuilder s("key-map-of-a-child",
                 "a forked child with a key map of its own, and one without a context",
                 Program::kSlot);
  auto& b = s.script();
  publish(b, reference_data({"parents_name"}).encoded());
  Record r;
  r.entries = {{0, "value"}};
  const Attached a = attach(b, r.encoded());
  s.ask(about_thread(a, {claim(kOwn, {accept(record_content(r, {{"parents_name", "value"}}))},
                               "the name is not that of the parent's key map")}));
  const Value silent = b.fork();
  Attached silents = a;
  silents.thread = silent;
  Question none = about_thread(
      silents,
      {claim(kOwn, no_context(), "a child without a context is given the key map of its parent")});
  none.process = silent;
  s.ask(std::move(none));
  const Value child = b.fork();
  b.by(child);
  publish(b, reference_data({"childs_name"}).encoded());
  Attached childs = attach(b, r.encoded());
  childs.thread = child;
  b.by_first();
  Question own =
      about_thread(childs, {claim(kOwn, {accept(record_content(r, {{"childs_name", "value"}}))},
                                  "the name is not that of the child's key map")});
  own.process = child;
  own.attempts = kAttempts;
  s.ask(std::move(own));
  return std::move(s).scene();
}

}  // namespace

SceneGroup reference_data_scenes() {
  SceneGroup out;
  out.name = "reference-data";
  constexpr const char* kUnknown = "tctx.reader.schema-unknown";
  Message number = reference_data({});
  number.schema_number = 1;
  out.scenes.push_back(
      schema("go", "tctx.reader.schema-other-mechanism", with_schema("go_pprof_labels_v1"), false));
  out.scenes.push_back(schema("tls-v2", kUnknown, with_schema("tls_v2"), false));
  Message empty = reference_data({});
  empty.attributes = {{"threadlocal.schema_version", ""}};
  empty.schema.clear();
  out.scenes.push_back(schema("empty", kUnknown, empty, false));
  out.scenes.push_back(schema("number", kUnknown, number, false));
  constexpr const char* kBoth = "tctx.reader.schema-both-values";
  out.scenes.push_back(schema("tlsdesc-v1-dev", kBoth, with_schema("tlsdesc_v1_dev"), true));
  out.scenes.push_back(schema("tls-v1", kBoth, with_schema("tls_v1"), true));
  out.scenes.push_back(without_entries());
  out.scenes.push_back(late_entries());
  out.scenes.push_back(new_name());
  out.scenes.push_back(odd_key_map("empty-name", "an empty name in the key map",
                                   reference_data({"http_route", "", "b", "http_method"})));
  out.scenes.push_back(odd_key_map("name-twice", "a name that is twice in the key map",
                                   reference_data({"http_route", "b", "b", "http_method"})));
  out.scenes.push_back(number_in_key_map());
  out.scenes.push_back(no_key_map());
  out.scenes.push_back(long_key_map());
  out.scenes.push_back(child_with_other_names());
  return out;
}

}  // namespace ctxconf::conformance::reader
