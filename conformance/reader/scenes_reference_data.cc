// The entries of the process context that a reader of threads needs: schema version and key map.
#include <string>
#include <utility>

#include "conformance/reader/publish.h"
#include "conformance/reader/scenes.h"

namespace ctxconf::conformance::reader {
namespace {

using puppet::Program;
using puppet::Value;

constexpr const char* kTlsdescV1 = "tlsdesc_v1_dev";
constexpr const char* kTlsV1 = "tls_v1";

Message with_schema(const std::string& value) {
  Message out = reference_data({});
  out.schema = value;
  return out;
}

// A process with this context, if the reader reports a record of one with an ordinary one.
SceneBuilder begin_names(std::string name, std::string about, const Message& message) {
  SceneBuilder s(std::move(name), std::move(about), Program::kSlot);
  require_plain_child(s, {.message = reference_data({"http_route"})});
  publish(s.script(), message.encoded());
  return s;
}

// The schema version is not that of the variable: nothing of the record may be reported.
Scene other_schema(const std::string& name, const char* requirement, const Message& message) {
  SceneBuilder s("schema-" + name, "a schema version that names no such variable", Program::kSlot);
  s.schema({});
  publish(s.script(), message.encoded());
  const Record r;
  auto any = not_used();
  any.push_back(accept());  // of what the schema version names
  auto c = claim(requirement, std::move(any),
                 "the variable is read although the schema version does not name it");
  c.never = {r.trace_id, r.span_id};
  s.ask(about_thread(attach(s.script(), r.encoded()), {std::move(c)}));
  return std::move(s).scene();
}

// A reader of records knows one of the two at least.
Scene known_schema(const std::string& name, const std::string& schema, const std::string& other) {
  constexpr const char* kBoth = "tctx.reader.schema-both-values";
  SceneBuilder s("schema-" + name, "the schema version " + schema, Program::kSlot);
  s.schema(other);
  require_plain_child(s, {.message = with_schema(other), .library = {}, .requirement = kBoth});
  publish(s.script(), with_schema(schema).encoded());
  s.schema(schema);
  const Record r = numbered_record(1);
  s.ask(
      about_thread(attach(s.script(), r.encoded()),
                   {claim(kBoth, {accept(ids_content(r))}, "the schema version is not accepted")}));
  return std::move(s).scene();
}

Scene without_entries() {
  SceneBuilder s("schema-missing", "a process context without the threadlocal entries",
                 Program::kSlot);
  s.schema({});
  auto& b = s.script();
  publish(b, service("ctxconf-threads").encoded());
  const Record r;
  const Attached a = attach(b, r.encoded());
  auto c = claim("tctx.reader.defers-without-keys", not_used(),
                 "the variable is read without any reference data");
  c.never = {r.trace_id, r.span_id};
  s.ask(about_thread(a, {std::move(c)}));
  return std::move(s).scene();
}

Scene late_entries() {
  SceneBuilder s("schema-late", "the threadlocal entries come with the second update",
                 Program::kSlot);
  s.rests_on(Premise::kUpdate);
  s.rests_on(Premise::kUpdateInPlace);
  auto& b = s.script();
  require_plain_child(s, {.message = reference_data({})});
  const puppet::Bytes first = service("ctxconf-threads").encoded();
  const Published p = publish(b, first);
  const Record r = numbered_record(1);
  const Attached a = attach(b, r.encoded());
  Question look;
  look.about = Question::About::kThread;
  s.ask(look);
  const puppet::Bytes second = service("ctxconf-threads-2").encoded();
  update(b, p, place(b, second), second.size());
  s.ask(look);
  const puppet::Bytes third = reference_data({}).encoded();
  update(b, p, place(b, third), third.size());
  Question q =
      about_thread(a, {claim("tctx.reader.late-reference-data", {accept(ids_content(r))},
                             "the variable is not looked for when its entries have come")});
  q.attempts = kAttempts;
  s.ask(std::move(q));
  return std::move(s).scene();
}

// No naming call announces the update.
Scene new_name() {
  constexpr const char* kRefreshes = "tctx.reader.unknown-index-refreshes";
  SceneBuilder s("key-map-grows", "a name is added, and a record uses it at once", Program::kSlot);
  s.rests_on(Premise::kUpdate);
  s.rests_on(Premise::kUpdateInPlace);
  auto& b = s.script();
  const Published p = publish(b, reference_data({"http_route"}).encoded());
  Record r = numbered_record(1);
  r.entries = {{0, "/cart"}};
  Question known = about_thread(attach(b, r.encoded()), {});
  known.premise =
      claim("tctx.reader.index-by-position", {accept(record_content(r, {{"http_route", "/cart"}}))},
            "the reader does not report a plain attribute");
  s.ask(std::move(known));
  const puppet::Bytes longer = reference_data({"http_route", "user_id"}).encoded();
  update(b, p, place(b, longer), longer.size());
  r = numbered_record(2);
  r.entries = {{0, "/cart"}, {1, "42"}};
  s.ask(about_thread(
      attach(b, r.encoded()),
      {claim(kRefreshes, {accept(record_content(r, {{"http_route", "/cart"}, {"user_id", "42"}}))},
             "an index that is not in the known key map does not make the reader read it again")}));
  return std::move(s).scene();
}

// Names after an odd element keep their positions: a shift would give another name or none.
Record routed() {
  Record out = numbered_record(1);
  out.entries = {{0, "/cart"}, {3, "GET"}};
  return out;
}

Scene odd_key_map(const std::string& name, const std::string& about, const Message& message) {
  SceneBuilder s = begin_names("key-map-" + name, about, message);
  s.ask(about_thread(
      attach(s.script(), routed().encoded()),
      {claim("tctx.reader.index-by-position",
             {accept(record_content(routed(), {{"http_route", "/cart"}, {"http_method", "GET"}}))},
             "names after an odd element of the key map are shifted")}));
  return std::move(s).scene();
}

// A reader may refuse such a key map as a whole.
Scene number_in_key_map() {
  constexpr const char* kPosition = "tctx.reader.index-by-position";
  Message message = reference_data({"http_route", "a", "b", "http_method", "user_agent"});
  message.number_at = 1;
  SceneBuilder s = begin_names("key-map-number", "a number in the key map", message);
  const std::string both =
      record_content(routed(), {{"http_route", "/cart"}, {"http_method", "GET"}});
  AnswerClaim uses = claim(kPosition, {accept(both)}, "a key map with a number is not used");
  uses.info = true;
  s.ask(about_thread(attach(s.script(), routed().encoded()),
                     {claim(kPosition, {accept(both), accept(record_content(routed(), {}))},
                            "names after an odd element of the key map are shifted"),
                      std::move(uses)}));
  return std::move(s).scene();
}

Scene no_key_map() {
  Message message = reference_data({});
  message.no_key_map = true;
  SceneBuilder s =
      begin_names("key-map-missing",
                  "a schema version without a key map, and a record with an attribute", message);
  Record r = numbered_record(1);
  r.entries = {{0, "/cart"}};
  auto nameless = not_used();
  nameless.push_back(accept(R"({"names":{}})"));
  s.ask(about_thread(attach(s.script(), r.encoded()),
                     {claim("tctx.reader.key-map-missing", {accept(ids_content(r))},
                            "without a key map the ids are lost too"),
                      claim("tctx.reader.unknown-index-ignored", std::move(nameless),
                            "without a key map an attribute has a name")}));
  return std::move(s).scene();
}

Scene long_key_map() {
  std::vector<std::string> names;
  names.reserve(300);
  for (int i = 0; i < 300; ++i) names.push_back("key" + std::to_string(i));
  SceneBuilder s = begin_names("key-map-of-300", "a key map of 300 names", reference_data(names));
  Record r = numbered_record(1);
  r.entries = {{0, "first"}, {255, "last"}};
  auto any = not_used();
  for (const Pairs& named :
       {Pairs{{"key0", "first"}, {"key255", "last"}}, Pairs{{"key0", "first"}}, Pairs{}}) {
    any.push_back(accept(record_content(r, named)));
  }
  s.ask(about_thread(attach(s.script(), r.encoded()),
                     {claim("tctx.reader.key-map-over-256", std::move(any),
                            "a key map with too many names gives wrong ones")}));
  return std::move(s).scene();
}

Scene child_with_other_names() {
  constexpr const char* kOwnNames = "tctx.reader.fork-key-map";
  SceneBuilder s("key-map-of-a-child",
                 "a forked child with a key map of its own, and one without a context",
                 Program::kSlot);
  auto& b = s.script();
  publish(b, reference_data({"parents_name"}).encoded());
  Record r = numbered_record(1);
  r.entries = {{0, "value"}};
  const Attached a = attach(b, r.encoded());
  Question parents = about_thread(a, {});
  parents.premise = claim("tctx.reader.index-by-position",
                          {accept(record_content(r, {{"parents_name", "value"}}))},
                          "the reader does not report a plain attribute");
  s.ask(std::move(parents));
  const Value silent = b.fork();
  Attached silents = a;
  silents.thread = silent;
  Question none = about_thread(
      silents, {claim(kOwnNames, no_context(),
                      "a child without a context is given the key map of its parent")});
  none.process = silent;
  s.ask(std::move(none));
  const Value child = b.fork();
  b.by(child);
  publish(b, reference_data({"childs_name"}).encoded());
  r = numbered_record(2);
  r.entries = {{0, "value"}};
  Attached childs = attach(b, r.encoded());
  childs.thread = child;
  b.by_first();
  Question own = about_thread(
      childs, {claim(kOwnNames, {accept(record_content(r, {{"childs_name", "value"}}))},
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
  auto& all = out.scenes;
  constexpr const char* kUnknown = "tctx.reader.schema-unknown";
  all.push_back(
      other_schema("go", "tctx.reader.schema-other-mechanism", with_schema("go_pprof_labels_v1")));
  all.push_back(other_schema("tls-v2", kUnknown, with_schema("tls_v2")));
  Message empty = reference_data({});
  empty.attributes = {{"threadlocal.schema_version", ""}};
  empty.schema.clear();
  all.push_back(other_schema("empty", kUnknown, empty));
  Message number = reference_data({});
  number.schema_number = 1;
  all.push_back(other_schema("number", kUnknown, number));
  all.push_back(known_schema("tlsdesc-v1-dev", kTlsdescV1, kTlsV1));
  all.push_back(known_schema("tls-v1", kTlsV1, kTlsdescV1));
  all.push_back(without_entries());
  all.push_back(late_entries());
  all.push_back(new_name());
  all.push_back(odd_key_map("empty-name", "an empty name in the key map",
                            reference_data({"http_route", "", "b", "http_method"})));
  all.push_back(odd_key_map("name-twice", "a name that is twice in the key map",
                            reference_data({"http_route", "b", "b", "http_method"})));
  all.push_back(number_in_key_map());
  all.push_back(no_key_map());
  all.push_back(long_key_map());
  all.push_back(child_with_other_names());
  return out;
}

}  // namespace ctxconf::conformance::reader
