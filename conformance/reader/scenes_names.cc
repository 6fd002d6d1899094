// How a reader finds the mapping of a context, and what may stand in its way.
#include <linux/memfd.h>
#include <sys/mman.h>

#include <string>
#include <utility>
#include <vector>

#include "conformance/reader/publish.h"
#include "conformance/reader/scenes.h"

namespace ctxconf::conformance::reader {
namespace {

using puppet::Value;

constexpr const char* kDecoy = "ctxconf-decoy";

// A complete context under another name.
void publish_decoy(SceneBuilder& s, const std::string& memfd) {
  PublishOptions how;
  how.memfd = memfd;
  how.names = false;
  publish(s.script(), service(kDecoy).encoded(), how);
}

Scene memfd_unnamed() {
  const Message message = service("ctxconf-memfd");
  SceneBuilder s("name-memfd",
                 "a memfd whose mapping has no other name: /memfd:OTEL_CTX (deleted)");
  s.rests_only_on({});
  const Published p =
      publish(s.script(), message.encoded(), {.names = false, .inline_payload = true});
  s.ask(about_process(p, {claim("pctx.reader.name-memfd", found_answers(),
                                "a mapping named /memfd:OTEL_CTX (deleted) is not found")}));
  return std::move(s).scene();
}

Scene memfd_named() {
  const Message message = service("ctxconf-anon-shmem");
  SceneBuilder s("name-anon-shmem", "a named memfd: [anon_shmem:OTEL_CTX]");
  s.needs_host("shmem-names");
  s.rests_only_on({});
  const Published p = publish(s.script(), message.encoded(), {.inline_payload = true});
  s.ask(about_process(p, {claim("pctx.reader.name-anon-shmem", found_answers(),
                                "a mapping named [anon_shmem:OTEL_CTX] is not found")}));
  return std::move(s).scene();
}

Scene anonymous_named() {
  const Message message = service("ctxconf-anon");
  SceneBuilder s("name-anon", "named anonymous memory: [anon:OTEL_CTX]");
  s.needs_host("names");
  PublishOptions how;
  how.anonymous = true;
  how.inline_payload = true;
  s.rests_only_on({});
  const Published p = publish(s.script(), message.encoded(), how);
  s.ask(about_process(p, {claim("pctx.reader.name-anon", found_answers(),
                                "a mapping named [anon:OTEL_CTX] is not found")}));
  return std::move(s).scene();
}

Scene inside_a_path() {
  SceneBuilder s("name-inside-a-path",
                 "complete contexts in files that have the names inside theirs");
  for (const char* name : {"x/memfd:OTEL_CTX", "[anon:OTEL_CTX]", "x [anon_shmem:OTEL_CTX]"}) {
    publish_decoy(s, name);
  }
  Question q;
  q.claims = {claim("pctx.reader.name-prefix-only", or_refused(no_context()),
                    "a context is taken from a mapping whose name only contains the text")};
  q.claims.front().never = {kDecoy};
  s.ask(std::move(q));
  return std::move(s).scene();
}

// A draft of OTEP 4719 told writers to take the permission away: open.pctx.protection.
Scene memfd_read_only() {
  const Message message = service("ctxconf-read-only");
  SceneBuilder s("name-memfd-read-only", "the mapping of the context cannot be written any more");
  PublishOptions how;
  how.names = false;
  how.inline_payload = true;
  const Published p = publish(s.script(), message.encoded(), how);
  s.script().protect(p.header, how.mapping, PROT_READ);
  auto found = claim("pctx.reader.name-memfd", {accept(message.content())},
                     "a mapping that is read-only is not found");
  found.warning = true;
  s.ask(about_process(p, {std::move(found)}));
  return std::move(s).scene();
}

enum class NameKind { kMemfd, kAnonymous, kNamedMemfd };

Scene with_suffix(NameKind kind, const std::string& name) {
  const Message message = service("ctxconf-suffix");
  const std::string kind_name = kind == NameKind::kMemfd       ? "memfd"
                                : kind == NameKind::kAnonymous ? "anon"
                                                               : "anon-shmem";
  const std::string shown = kind == NameKind::kMemfd       ? "/memfd:" + name
                            : kind == NameKind::kAnonymous ? "[anon:" + name + "]"
                                                           : "[anon_shmem:" + name + "]";
  SceneBuilder s("name-suffix-" + kind_name, "a complete context in " + shown);
  PublishOptions how;
  if (kind == NameKind::kMemfd) how.memfd = name;
  if (kind == NameKind::kNamedMemfd) how.memfd = "other";
  how.anonymous = kind == NameKind::kAnonymous;
  how.names = false;
  const Published p = publish(s.script(), message.encoded(), how);
  if (kind != NameKind::kMemfd) {
    s.needs_host(kind == NameKind::kAnonymous ? "names" : "shmem-names");
    s.script().may_fail().name(p.header, how.mapping, name);
  }
  auto either = no_context();
  either.push_back(accept(message.content()));
  s.ask(about_process(p,
                      {claim("pctx.reader.name-suffix", either,
                             "a mapping whose name has a suffix is reported with other content")}));
  return std::move(s).scene();
}

// A mapping named like a context, with nothing in it.
Value empty_candidate(SceneBuilder& s) {
  auto& b = s.script();
  const Value fd = b.memfd("OTEL_CTX", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  b.truncate(fd, kPage);
  const Value at = b.map_file(fd, kPage, kReadWrite, MAP_PRIVATE);
  b.close(fd);
  return at;
}

// One with a header of a version that does not exist.
void candidate_of_another_version(SceneBuilder& s) {
  auto& b = s.script();
  const Value at = empty_candidate(s);
  const Message decoy = service("ctxconf-decoy");
  const puppet::Bytes payload = decoy.encoded();
  const Value there = place(b, payload);
  b.store(at + 8, 4, 99);
  b.store(at + 12, 4, payload.size());
  b.store(at + 24, 8, there);
  b.write(at, puppet::bytes_of("OTEL_CTX"));
  b.store(at + 16, 8, b.clock());
}

// Such a mapping without permissions.
void candidate_without_permissions(SceneBuilder& s) {
  s.script().protect(empty_candidate(s), kPage, PROT_NONE);
}

constexpr const char* kContinues = "pctx.reader.skip-and-continue";

// The kernel maps from high addresses to low ones, so what is mapped later is listed earlier.
Scene beside_a_candidate(bool before) {
  const Message message = service("ctxconf-second");
  SceneBuilder s(before ? "candidate-before" : "candidate-after",
                 "an empty mapping of the same name is listed " +
                     std::string(before ? "before" : "after") + " the context");
  if (!before) empty_candidate(s);
  const Published p = publish(s.script(), message.encoded());
  if (before) empty_candidate(s);
  s.ask(about_process(p, {claim(kContinues, {accept(message.content())},
                                "an empty mapping of the same name hides the context")}));
  return std::move(s).scene();
}

Scene after_a_decoy(const char* name, const std::string& decoy, void (*add)(SceneBuilder&)) {
  const Message message = service("ctxconf-second");
  SceneBuilder s(name, "the context is listed after " + decoy);
  const Published p = publish(s.script(), message.encoded());
  add(s);
  s.ask(about_process(
      p, {claim(kContinues, {accept(message.content())}, decoy + " hides the context")}));
  return std::move(s).scene();
}

Scene two_contexts() {
  SceneBuilder s("two-contexts", "two complete contexts");
  Message first = service("ctxconf-first");
  first.resource.emplace_back("ctxconf.one", "1");
  Message second = service("ctxconf-second");
  second.resource.emplace_back("ctxconf.two", "2");
  const Published p = publish(s.script(), first.encoded());
  publish(s.script(), second.encoded());
  auto any = not_used();
  any.push_back(accept(first.content()));
  any.push_back(accept(second.content()));
  s.ask(about_process(p, {claim("pctx.reader.two-valid-contexts", any,
                                "the attributes of two contexts are mixed")}));
  return std::move(s).scene();
}

Scene file_with_other_content() {
  const Message message = service("ctxconf-in-memory");
  SceneBuilder s("file-content", "the file of the mapping has another complete context");
  auto& b = s.script();
  const puppet::Bytes decoy = service(kDecoy).encoded();
  const Value decoy_at = place(b, decoy);
  const Value fd = b.memfd("OTEL_CTX", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  b.truncate(fd, kPage);
  const Value shared = b.map_file(fd, kPage, kReadWrite, MAP_SHARED);
  const auto lay_out = [&](const Value& header, const Value& payload, std::uint64_t size) {
    b.write(header, puppet::bytes_of("OTEL_CTX"));
    b.store(header + 8, 4, 2);
    b.store(header + 12, 4, size);
    b.store(header + 24, 8, payload);
    b.store(header + 16, 8, b.clock());
  };
  lay_out(shared, decoy_at, decoy.size());
  b.unmap(shared, kPage);
  Published p;
  p.size = message.encoded().size();
  p.header = b.map_file(fd, kPage, kReadWrite, MAP_PRIVATE);
  b.close(fd);
  p.payload = place(b, message.encoded());
  lay_out(p.header, p.payload, p.size);
  auto c = claim("pctx.reader.reads-memory-not-file", {accept(message.content())},
                 "the context is read from the file and not from the memory");
  c.never = {kDecoy};
  s.ask(about_process(p, {c}));
  return std::move(s).scene();
}

Scene many_mappings() {
  const Message message = service("ctxconf-many-mappings");
  SceneBuilder s("many-mappings", "64,000 mappings and long names are listed before the context");
  auto& b = s.script();
  const Published p = publish(b, message.encoded());
  for (int i = 0; i < 8; ++i) {
    const Value fd = b.memfd(std::string(240, static_cast<char>('a' + i)), MFD_CLOEXEC);
    b.truncate(fd, kPage);
    b.map_file(fd, kPage, kReadWrite, MAP_PRIVATE);
    b.close(fd);
  }
  constexpr std::uint64_t kPages = 64'000;
  const Value many = b.map_anonymous(kPages * kPage, kReadWrite, MAP_PRIVATE | MAP_NORESERVE);
  b.may_fail().split(many, kPages * kPage);
  s.ask(about_process(p, {claim("pctx.reader.many-mappings", {accept(message.content())},
                                "the context of a process with very many mappings is not found")}));
  return std::move(s).scene();
}

Scene nothing() {
  SceneBuilder s("no-context", "a process without a context, and one that has ended");
  auto& b = s.script();
  const Value child = b.fork();
  b.by(child).exit();
  b.by_first();
  Question q;
  q.claims = {claim("pctx.reader.no-context", no_context(), "a context where there is none")};
  Question ended = q;
  ended.process = child;
  s.ask(std::move(q));
  s.ask(std::move(ended));
  s.ask_witness({"pctx.reader.no-context"});
  return std::move(s).scene();
}

Scene ends_meanwhile() {
  SceneBuilder s("ends-meanwhile", "the process ends before the header is read");
  const Published p = publish(s.script(), service("ctxconf-ending").encoded());
  Hold end = s.hold("before the header is read", Hold::When::kBefore, p.whole(),
                    [&] { s.script().exit(); });
  Question q = about_process(
      p, {claim("pctx.reader.no-context", not_used(), "the context of a process that has ended")});
  q.holds.push_back(std::move(end));
  s.ask(std::move(q));
  s.ask_witness({"pctx.reader.no-context"});
  return std::move(s).scene();
}

}  // namespace

SceneGroup name_scenes() {
  SceneGroup out;
  out.name = "names";
  out.scenes.push_back(memfd_unnamed());
  out.scenes.push_back(memfd_named());
  out.scenes.push_back(anonymous_named());
  out.scenes.push_back(inside_a_path());
  out.scenes.push_back(with_suffix(NameKind::kMemfd, "OTEL_CTX_2"));
  out.scenes.push_back(with_suffix(NameKind::kAnonymous, "OTEL_CTX-2"));
  out.scenes.push_back(with_suffix(NameKind::kNamedMemfd, "OTEL_CTX 2"));
  out.scenes.push_back(memfd_read_only());
  out.scenes.push_back(beside_a_candidate(true));
  out.scenes.push_back(beside_a_candidate(false));
  out.scenes.push_back(after_a_decoy("candidate-of-another-version",
                                     "a mapping with the same name and another version",
                                     candidate_of_another_version));
  out.scenes.push_back(after_a_decoy("candidate-without-permissions",
                                     "an unreadable mapping with the same name",
                                     candidate_without_permissions));
  out.scenes.push_back(two_contexts());
  out.scenes.push_back(file_with_other_content());
  out.scenes.push_back(nothing());
  out.scenes.push_back(ends_meanwhile());
  out.scenes.push_back(many_mappings());
  return out;
}

}  // namespace ctxconf::conformance::reader
