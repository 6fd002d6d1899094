#include "conformance/report/sample_runs.h"

#include <cstdlib>
#include <utility>

#include "conformance/verdict/exit_code.h"

namespace ctxconf::conformance {
namespace {

using std::string_literals::operator""s;

Requirement requirement(int otep, std::string revision, std::string id, std::string anchor,
                        std::string text, std::string why, Strength strength, Basis basis,
                        Severity severity) {
  Requirement out;
  out.otep = otep;
  out.revision = std::move(revision);
  out.id = std::move(id);
  out.anchor = std::move(anchor);
  out.text = std::move(text);
  out.why = std::move(why);
  out.strength = strength;
  out.basis = basis;
  out.severity = severity;
  out.level = Level::kSnapshot;
  out.modes = {Mode::kAttach, Mode::kWrap, Mode::kRun};
  return out;
}

Specification process_requirements() {
  const auto make = [](std::string id, std::string anchor, std::string text, std::string why,
                       Strength strength, Basis basis, Severity severity) {
    return requirement(4719, "2026-04-07", std::move(id), std::move(anchor), std::move(text),
                       std::move(why), strength, basis, severity);
  };
  Specification out;
  out.otep = 4719;
  out.revision = "2026-04-07";
  out.requirements = {
      make("pctx.header.version", "header-structure", "the version is 2",
           "readers skip a version they do not know", Strength::kMust, Basis::kTable,
           Severity::kError),
      make("pctx.header.signature", "header-structure", "the signature is OTEL_CTX",
           "readers look for it", Strength::kMust, Basis::kTable, Severity::kError),
      make("pctx.update.zero-timestamp-first", "updating-protocol",
           "an update stores 0 into the timestamp before it changes any other header field",
           "a reader that copies between these stores gets new bytes with the old length",
           Strength::kMust, Basis::kStep, Severity::kError),
      make("pctx.publish.footprint", "memory-overhead", "a context takes one or two pages",
           "every process pays for it", Strength::kShould, Basis::kImplied, Severity::kWarning),
      make("pctx.payload.semantic-conventions", "payload-format", "keys follow the conventions",
           "readers join on them", Strength::kMay, Basis::kKeyword, Severity::kInfo),
      make("pctx.update.payload-moves", "updating-protocol", "an update may move the payload",
           "readers follow the pointer", Strength::kMay, Basis::kKeyword, Severity::kError),
  };
  return out;
}

Specification thread_requirements() {
  Specification out;
  out.otep = 4947;
  out.revision = "2026-07-17";
  out.requirements = {
      requirement(4947, "2026-07-17", "tctx.tls.is-pointer", "thread-local-variable",
                  "the variable holds a pointer", "readers follow it", Strength::kMust,
                  Basis::kKeyword, Severity::kError),
      requirement(4947, "2026-07-17", "tctx.record.layout", "thread-local-context-record",
                  "the record has 28 bytes", "readers copy that much", Strength::kMust,
                  Basis::kTable, Severity::kError)};
  return out;
}

Finding finding(const std::string& id, ImageKey image, std::string name, Outcome outcome,
                std::string saw) {
  Finding out;
  out.requirement = id;
  out.image = image;
  out.image_name = std::move(name);
  out.outcome = outcome;
  out.saw = std::move(saw);
  out.level = "snapshot";
  return out;
}

constexpr ImageKey kApp = {.pid = 4242, .image = 1};

RequirementResult result(const std::string& id, Outcome outcome, std::string saw) {
  RequirementResult out;
  out.requirement = sample_catalogue().find(id);
  out.outcome = outcome;
  out.findings = {finding(id, kApp, "4242#1 /opt/shop/checkout", outcome, std::move(saw))};
  return out;
}

ImageSummary image(ImageKey key, std::string executable, bool published) {
  ImageSummary out;
  out.key = key;
  out.parent = 4000;
  out.command_line = {executable, "--port", "80 80"};
  out.executable = std::move(executable);
  out.libc = "musl 1.2.3";
  out.ending = "exited 0";
  out.published = published;
  if (published) out.context = "service.name=checkout, 3 more";
  out.snapshots = 7;
  return out;
}

Hexdump header_dump() {
  Hexdump out;
  out.title = "header at 0x7f1200000000";
  out.address = 0x7f1200000000;
  for (const char c : "OTEL_CTX\0\0\0\0\x14\0\0\0\xde\0\0\0\0\0\0\0"s) {
    out.bytes.push_back(static_cast<std::uint8_t>(c));
  }
  out.marks = {{.offset = 8, .length = 4, .label = "version: 0, want 2"}};
  out.expected.emplace();
  out.expected->vector = "pctx/sample";
  for (const char c : "OTEL_CTX\2\0\0\0\x14\0\0\0\xaa\0\0\0\0\0\0\0"s) {
    out.expected->bytes.push_back(static_cast<std::uint8_t>(c));
  }
  out.expected->masks = {
      {.offset = 12, .length = 4, .name = "payload_size", .rule = "bytes of the message"},
      {.offset = 16, .length = 8, .name = "timestamp", .rule = "not 0"}};
  return out;
}

// The size changes after the new timestamp.
OperationPicture broken_update() {
  using Kind = PictureStep::Kind;
  OperationPicture out;
  out.is_update = true;
  out.header = 0x7f1200000000;
  out.before = Finds::kOld;
  const auto add = [&out](Kind kind, Finds finds, std::vector<PictureStep::Change> changes,
                          std::string text = {}) {
    out.steps.push_back({.kind = kind,
                         .changes = std::move(changes),
                         .text = std::move(text),
                         .at = "process_ctx.rs:118 in publish_update",
                         .tid = 4243,
                         .finds = finds});
  };
  add(Kind::kStore, Finds::kNoTimestamp, {{Lane::kTimestamp, "111", "0"}});
  add(Kind::kStore, Finds::kNoTimestamp, {{Lane::kSignature, "\"OTEL_CTX\"", "\"OTEL_CTX\""}});
  add(Kind::kStore, Finds::kNoTimestamp, {{Lane::kPointer, "0x…4ac8a0", "0x…4aced0"}});
  add(Kind::kFork, Finds::kNoTimestamp, {}, "fork");
  add(Kind::kStore, Finds::kNeither, {{Lane::kTimestamp, "0", "222"}});
  add(Kind::kStore, Finds::kNew, {{Lane::kSize, "260", "282"}});
  out.steps.back().wrong = true;
  add(Kind::kCall, Finds::kNew, {}, "prctl(PR_SET_VMA, \"OTEL_CTX\")");
  return out;
}

OperationPicture publication() {
  using Kind = PictureStep::Kind;
  OperationPicture out;
  out.header = 0x7f1200000000;
  out.before = Finds::kNoMemory;
  out.steps = {{.kind = Kind::kCall,
                .changes = {},
                .text = "mmap, 4096 bytes",
                .at = "",
                .tid = 4243,
                .finds = Finds::kNoTimestamp},
               {.kind = Kind::kStore,
                .changes = {{Lane::kSignature, "zeros", "\"OTEL_CTX\""},
                            {Lane::kVersion, "0", "2"},
                            {Lane::kTimestamp, "0", "111"}},
                .text = "",
                .at = "process_ctx.rs:80 in publish",
                .tid = 4243,
                .finds = Finds::kNew}};
  return out;
}

RunResult base() {
  RunResult run;
  run.suite_version = "0.1.0";
  run.suite_commit = "abcdef1";
  run.spec.revisions = {{4719, "2026-04-07"}, {4947, "2026-07-17"}};
  run.mode = "wrap";
  run.command_line = {"ctxconf", "wrap", "--only", "pctx.*", "--for=3s", "--", "./app", "--only"};
  run.target = {"./app", "--only"};
  run.kernel = "6.12.1";
  run.arch = "x86_64";
  run.libc = "musl 1.2.3";
  run.suite_libc = "glibc 2.36";
  run.level = "stores";
  run.started_at = "2026-01-02T03:04:05Z";
  run.seconds = 1.25;
  run.host = {{.name = "ptrace", .available = true, .detail = "seized a child", .remedy = ""},
              {.name = "procmap-query",
               .available = false,
               .detail = "ioctl: Inappropriate ioctl for device",
               .remedy = "Linux 6.11"}};
  run.source = {.root = "/home/me/shop", .program = "app", .expectations = ""};
  run.target_ending = "exited 3";
  run.target_ended = {.how = TargetEnd::How::kExited, .number = 3};
  run.again = "ctxconf wrap --for=3s -- ./app --only";
  return run;
}

}  // namespace

const Catalogue& sample_catalogue() {
  static const Catalogue catalogue = [] {
    auto made = Catalogue::from({process_requirements(), thread_requirements()});
    if (!made) std::abort();
    return *std::move(made);
  }();
  return catalogue;
}

RunResult ordinary_run() {
  RunResult run = base();
  run.images = {image({.pid = 4242, .image = 0}, "/bin/sh", false),
                image(kApp, "/opt/shop/checkout", true)};
  run.images[0].ending = "replaced by exec";
  run.images[0].notes = {"memory cannot be read: EPERM"};

  RequirementResult version = result("pctx.header.version", Outcome::kFail, "version is 0");
  version.findings[0].signature = "version is not 2";
  version.findings[0].at = "src/process_ctx.rs:118 in publish_update, thread 4243";
  version.findings[0].code = {{.function = "core::sync::atomic::AtomicU32::store",
                               .source_file = "/rustc/library/core/src/sync/atomic.rs",
                               .source_line = 2000,
                               .module = "/opt/shop/checkout",
                               .offset = 0x1234},
                              {.function = "publish_update",
                               .source_file = "/home/me/shop/src/process ctx.rs",
                               .source_line = 118,
                               .module = "/opt/shop/checkout",
                               .offset = 0x5678,
                               .path = "src/process ctx.rs"}};
  version.findings[0].evidence = {"7f1200000000-7f1200001000 rw-p 00000000 00:01 7 /memfd:OTEL_CTX",
                                  "little endian 0, big endian 0"};
  version.findings[0].hexdumps = {header_dump()};
  version.findings[0].operation = broken_update();
  RequirementResult warned =
      result("pctx.publish.footprint", Outcome::kWarn, "9 pages are mapped for the context");
  RequirementResult told = result("pctx.payload.semantic-conventions", Outcome::kInfo,
                                  "the key servicename is in no convention");
  RequirementResult first =
      result("pctx.update.zero-timestamp-first", Outcome::kUnobservable, "no update was seen");
  first.findings[0].remedy = "let the program change its context while it is watched";
  RequirementResult moves =
      result("pctx.update.payload-moves", Outcome::kUnobservable, "no update was seen");
  moves.findings[0].remedy = first.findings[0].remedy;
  RequirementResult tls =
      result("tctx.tls.is-pointer", Outcome::kNa, "the program has no thread context");
  tls.findings[0].na_reason = NaReason::kCapability;
  run.results = {std::move(version), result("pctx.header.signature", Outcome::kPass, ""),
                 std::move(first),   std::move(warned),
                 std::move(told),    std::move(moves),
                 std::move(tls)};
  run.operations = {
      {.image = kApp, .image_name = "4242#1 /opt/shop/checkout", .picture = publication()}};
  run.trace_path = "out/traces/4242 a.trace";
  run.exit_code = 1;
  run.exit_reason = "1 requirement failed";
  run.totals = count(run);
  return run;
}

RunResult silent_run() {
  RunResult run = base();
  run.images = {image(kApp, "/opt/shop/checkout", false)};
  for (const char* id : {"pctx.header.version", "pctx.header.signature"}) {
    run.results.push_back(result(id, Outcome::kUnobservable, "no context was published"));
  }
  run.exit_code = 4;
  run.exit_reason = "nothing could be judged";
  run.totals = count(run);
  return run;
}

RunResult run_of_two_images() {
  RunResult run = ordinary_run();
  const ImageKey twin = {.pid = 5000, .image = 0};
  const ImageKey third = {.pid = 5001, .image = 0};
  run.images.push_back(image(twin, "/opt/shop/checkout", true));
  run.images.push_back(image(third, "/opt/shop/cart", true));
  RequirementResult& version = run.results.front();
  Finding same = version.findings.front();
  same.image = twin;
  same.image_name = "5000 /opt/shop/checkout";
  version.findings.push_back(std::move(same));
  version.findings.push_back(
      finding("pctx.header.version", third, "5001 /opt/shop/cart", Outcome::kWarn, "version is 1"));
  version.findings.push_back(finding("pctx.header.version", {.pid = 4242, .image = 0},
                                     "4242 /bin/sh", Outcome::kUnobservable, "no context"));
  return run;
}

RunResult run_with_expectations() {
  RunResult run = ordinary_run();
  run.results[0].expected = Expected::kAsExpected;
  run.results[0].expectation_note = "issue=https://example.com/7 until=2030-01-01";
  run.source->expectations = "ci/expect.txt";
  run.expectation_problems = {
      {.line = 3,
       .exit_code = 5,
       .text = "pctx.header.signature is listed as fail and passed",
       .mend = "ctxconf expect prune expect.txt"},
      {.line = 4, .exit_code = 0, .text = "tctx.a is unobservable now", .mend = ""}};
  run.floor = {{.requirement = "pctx.update.visible",
                .why = "judged in base.json, as pass",
                .now = "unobservable: no update was seen",
                .remedy = "update the context"}};
  run.exit_code = 5;
  run.exit_reason = "the expectations file is stale";
  run.totals = count(run);
  return run;
}

std::string hostile_text() {
  return "\x1b]0;own\x07\x1b[2J\r\n</script><b a='1' "
         "c=\"2\">&amp;]]>\0\xff\xc3(\u202e\u200b\xed\xa0\x80\xc2\x9bm\\xff|`*_#"
         "--><!--<img src=https://evil.example/a onerror=alert(1)>[a](https://evil.example/b)"
         "\n```\n~~~\n</pre></details>\n@everyone \\|"s;
}

namespace {

void make_hostile(OperationPicture& picture, const std::string& text) {
  for (PictureStep& step : picture.steps) {
    step.text = step.at = text;
    for (PictureStep::Change& change : step.changes) change.was = text;
  }
}

}  // namespace

RunResult hostile_run() {
  RunResult run = run_of_two_images();
  const std::string bad = hostile_text();
  const std::string long_one = bad + std::string(std::size_t{1} << 20, 'A') + bad;
  for (ImageSummary& image : run.images) {
    image.executable = image.path = bad;
    image.command_line = {bad, long_one};
    image.context = long_one;
    image.libc = bad;
    image.ending = bad;
    image.notes = {bad};
  }
  for (RequirementResult& r : run.results) {
    r.expectation_note = bad;
    for (Finding& f : r.findings) {
      f.image_name = bad;
      f.saw = long_one;
      f.signature = bad;
      f.at = bad;
      f.code = {{.function = long_one,
                 .source_file = long_one,
                 .source_line = UINT32_MAX,
                 .module = long_one,
                 .offset = UINT64_MAX,
                 .path = r.requirement->id.starts_with("tctx") ? long_one : bad}};
      f.remedy = bad;
      f.level = bad;
      f.evidence = {bad, long_one};
      Hexdump dump;
      dump.title = bad;
      dump.address = UINT64_MAX - 7;
      dump.bytes.assign(bad.begin(), bad.end());
      dump.marks = {{.offset = 0, .length = UINT64_MAX, .label = bad},
                    {.offset = UINT64_MAX, .length = UINT64_MAX, .label = bad},
                    {.offset = 3, .length = 0, .label = bad}};
      dump.expected = {
          .vector = bad,
          .bytes = dump.bytes,
          .masks = {{.offset = UINT64_MAX, .length = UINT64_MAX, .name = bad, .rule = bad},
                    {.offset = 1, .length = UINT64_MAX, .name = bad, .rule = bad}}};
      f.hexdumps = {dump};
      if (f.operation) make_hostile(*f.operation, bad);
    }
  }
  for (OperationSummary& operation : run.operations) {
    operation.image_name = bad;
    make_hostile(operation.picture, bad);
  }
  run.suite_version = run.suite_commit = run.mode = run.kernel = run.arch = bad;
  run.libc = run.suite_libc = bad;
  run.level = run.started_at = run.again = run.seed = run.trace_path = run.exit_reason = bad;
  for (auto& r : run.results) r.trace_path = bad;
  run.partial = true;
  run.reading = Reading::kStrict;
  run.command_line = {bad, bad, bad};
  run.target = {bad};
  run.notes = {long_one};
  run.injections = {bad};
  run.problems = {{.outcome = Outcome::kCrash, .image = kApp, .text = long_one}};
  run.faults = {{.step = bad,
                 .fault = bad,
                 .outcome = Outcome::kFail,
                 .requirements = {bad},
                 .text = bad,
                 .output = long_one,
                 .session = 1,
                 .options = {bad, bad}}};
  run.source = {.root = bad, .program = bad, .expectations = bad};
  run.target_ending = bad;
  run.target_ended = {.how = TargetEnd::How::kKilled, .number = 6};
  run.spec.revisions = {{4719, bad}};
  run.host = {{.name = bad, .available = false, .detail = bad, .remedy = bad},
              {.name = bad, .available = true, .detail = bad, .remedy = bad}};
  run.expectation_problems = {{.line = 1, .exit_code = 2, .text = bad, .mend = bad}};
  run.floor = {{.requirement = bad, .why = bad, .now = bad, .remedy = bad}};
  return run;
}

RunResult huge_run() {
  RunResult run = ordinary_run();
  const std::string text(5000, '\x01');
  Finding large = run.results[0].findings[0];
  large.image_name = large.saw = large.signature = large.at = large.remedy = text;
  large.evidence.assign(1000, text.substr(0, 600));
  Hexdump dump;
  dump.title = text;
  dump.bytes.assign(100'000, 0xff);
  dump.marks.assign(100, {.offset = 90'000, .length = 100, .label = text});
  dump.expected = {.vector = text,
                   .bytes = dump.bytes,
                   .masks = std::vector<Hexdump::Expected::Mask>(
                       100, {.offset = 0, .length = 1, .name = text, .rule = text})};
  large.hexdumps.assign(3, dump);
  Finding small = run.results[0].findings[0];
  small.hexdumps.clear();
  large.code.assign(100, {.function = text, .source_file = text, .module = text});
  for (RequirementResult& r : run.results) {
    r.outcome = Outcome::kFail;
    r.findings.assign(2000, small);
    r.findings[0] = large;
  }
  run.images.assign(2000, run.images[1]);
  for (std::size_t i = 0; i < run.images.size(); ++i) {
    run.images[i].key.pid = static_cast<std::int32_t>(i + 1);
  }
  run.notes.assign(2000, text);
  run.expectation_problems.assign(2000, {.line = 1, .exit_code = 1, .text = text, .mend = text});
  run.floor.assign(2000, {.requirement = text, .why = text, .now = text, .remedy = text});
  run.totals = count(run);
  return run;
}

}  // namespace ctxconf::conformance
