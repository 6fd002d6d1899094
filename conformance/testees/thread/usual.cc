#include "conformance/testees/thread/usual.h"

#include <cstdlib>
#include <cstring>

#include "conformance/testees/writer/program.h"

namespace ctxconf::testees {

Names usual_names() { return {"http.route", "http.request.method", "user.id", "enduser.note"}; }

Bytes array_of(const Names& names) {
  std::vector<Bytes> values;
  for (const auto& n : names) values.push_back(text(n));
  return array(values);
}

Bytes version_entry(const Bytes& any_value) {
  return pair("threadlocal.schema_version", any_value);
}
Bytes map_entry(const Bytes& any_value) { return pair("threadlocal.attribute_key_map", any_value); }
std::vector<Bytes> reference_data(const Names& names, const Bytes& version) {
  return {version_entry(text(version)), map_entry(array_of(names))};
}

Bytes context_with(const std::vector<Bytes>& attributes, const std::vector<Bytes>& more_resource) {
  std::vector<Bytes> pairs = {pair("service.name", text("ctxconf-testee")),
                              pair("telemetry.sdk.language", text("cpp")),
                              pair("telemetry.sdk.name", text("ctxconf"))};
  pairs.insert(pairs.end(), more_resource.begin(), more_resource.end());
  return message(resource(pairs), attributes);
}
Bytes usual_message() { return context_with(reference_data(usual_names())); }

Bytes two_bytes(std::size_t value) {
  const auto size = static_cast<std::uint16_t>(value);
  Bytes out(sizeof size, '\0');
  std::memcpy(out.data(), &size, sizeof size);
  return out;
}

std::vector<Record> usual_records() {
  Record main;
  main.entries = {entry(0, "/cart"), entry(1, "GET"), entry(2, "4711")};
  Record sleeper;
  sleeper.span[0] = '\x11';
  sleeper.flags = 0;
  sleeper.entries = {entry(0, "/checkout/payment"), entry(1, "POST")};
  Record busy;
  busy.span[0] = '\x22';
  busy.flags = 3;
  busy.entries = {entry(3, "never sleeps")};
  return {main, sleeper, busy};
}

std::vector<Bytes> bytes_of(const std::vector<Record>& records) {
  std::vector<Bytes> out;
  out.reserve(records.size());
  for (const auto& r : records) out.push_back(r.bytes());
  return out;
}
std::vector<Bytes> usual_bytes() { return bytes_of(usual_records()); }

char* in_block(const Bytes& bytes) {
  constexpr std::size_t kBlock = 4096;
  auto* p = static_cast<char*>(std::aligned_alloc(64, kBlock));
  if (p == nullptr || bytes.size() > kBlock) die("aligned_alloc");
  std::memset(p, 0, kBlock);
  bytes.copy(p, bytes.size());
  return p;
}

}  // namespace ctxconf::testees
