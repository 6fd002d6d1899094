// A script of the scripted process: JSON lines.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "conformance/puppet/script.h"
#include "fuzz/agree.h"

namespace {

using namespace ctxconf::conformance::puppet;
using namespace ctxconf::fuzz;

// The lines that hold something, by a second way to cut them.
std::vector<std::size_t> slow_line_numbers(std::string_view text) {
  std::vector<std::size_t> out;
  std::string line;
  std::size_t number = 1;
  const auto ended = [&] {
    if (!line.empty() && line.front() != '#') out.push_back(number);
    line.clear();
  };
  for (const char c : text) {
    if (c == '\n') {
      ended();
      ++number;
    } else {
      line += c;
    }
  }
  ended();
  return out;
}

void check_value(const Value& value) {
  FUZZ_CHECK(value.terms().size() <= kMaxTerms);
  const auto again = value_from(to_string(value));
  FUZZ_CHECK(again.has_value());
  FUZZ_CHECK(*again == value);
}

void check_values(const Operation& operation) {
  if (const auto* o = std::get_if<Store>(&operation.what)) {
    check_value(o->at);
    check_value(o->value);
    FUZZ_CHECK(o->bytes.empty() || o->bytes.size() == o->width);
  } else if (const auto* m = std::get_if<Map>(&operation.what)) {
    check_value(m->size);
    check_value(m->offset);
    check_value(m->at);
  } else if (const auto* r = std::get_if<Repeat>(&operation.what)) {
    FUZZ_CHECK(r->stores.size() % 4 == 0);
    for (const Value& v : r->stores) check_value(v);
  } else if (const auto* s = std::get_if<SystemCall>(&operation.what)) {
    FUZZ_CHECK(s->args.size() <= 6);
    for (const Value& v : s->args) check_value(v);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = text_of(data, size);
  std::vector<std::size_t> lines;
  const auto [script, again] = check_read_again(
      text,
      [&](std::string_view t) {
        return script_from_json(t, t.data() == text.data() ? &lines : nullptr);
      },
      [](const Script& s) { return to_json(s); });
  if (!script) {
    FUZZ_CHECK(!script.error().text.empty());
    FUZZ_CHECK(script.error().line <= slow_line_numbers(text).size() + size + 1);
    return 0;
  }
  FUZZ_CHECK(*again == *script);
  FUZZ_CHECK(!check(*script));
  const auto used = slow_line_numbers(text);
  FUZZ_CHECK(used.size() == lines.size() + 1);  // the first line has the version
  for (std::size_t i = 0; i < lines.size(); ++i) FUZZ_CHECK(lines[i] == used[i + 1]);
  FUZZ_CHECK(lines.size() == script->operations.size());
  for (const Operation& operation : script->operations) {
    check_values(operation);
    // An operation alone is one line.
    FUZZ_CHECK(to_json(operation).find('\n') == std::string::npos);
  }
  return 0;
}
