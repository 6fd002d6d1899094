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

namespace puppet = ctxconf::conformance::puppet;
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
    } else if (!line.empty() || (c != ' ' && c != '\t' && c != '\r')) {
      line += c;
    }
  }
  ended();
  return out;
}

void check_script_value(const puppet::Value& value) {
  FUZZ_CHECK(value.terms().size() <= puppet::kMaxTerms);
  const auto again = puppet::value_from(puppet::to_string(value));
  FUZZ_CHECK(again.has_value());
  FUZZ_CHECK(*again == value);
}

void check_script_values(const puppet::Operation& operation) {
  if (const auto* o = std::get_if<puppet::Store>(&operation.what)) {
    check_script_value(o->at);
    check_script_value(o->value);
    FUZZ_CHECK(o->bytes.empty() || o->bytes.size() == o->width);
  } else if (const auto* m = std::get_if<puppet::Map>(&operation.what)) {
    check_script_value(m->size);
    check_script_value(m->offset);
    check_script_value(m->at);
  } else if (const auto* r = std::get_if<puppet::Repeat>(&operation.what)) {
    FUZZ_CHECK(r->stores.size() % 4 == 0);
    for (const puppet::Value& v : r->stores) check_script_value(v);
  } else if (const auto* s = std::get_if<puppet::SystemCall>(&operation.what)) {
    FUZZ_CHECK(s->args.size() <= 6);
    for (const puppet::Value& v : s->args) check_script_value(v);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = text_of(data, size);
  std::vector<std::size_t> lines;
  const auto [script, again] = check_read_again(
      text,
      [&](std::string_view t) {
        return puppet::script_from_json(t, t.data() == text.data() ? &lines : nullptr);
      },
      [](const puppet::Script& s) { return puppet::to_json(s); });
  if (!script) {
    FUZZ_CHECK(!script.error().text.empty());
    FUZZ_CHECK(script.error().line <= slow_line_numbers(text).size() + size + 1);
    return 0;
  }
  FUZZ_CHECK(*again == *script);
  FUZZ_CHECK(!puppet::check(*script));
  const auto used = slow_line_numbers(text);
  FUZZ_CHECK(used.size() == lines.size() + 1);  // the first line has the version
  for (std::size_t i = 0; i < lines.size(); ++i) FUZZ_CHECK(lines[i] == used[i + 1]);
  FUZZ_CHECK(lines.size() == script->operations.size());
  for (const puppet::Operation& operation : script->operations) {
    check_script_values(operation);
    // An operation alone is one line.
    FUZZ_CHECK(puppet::to_json(operation).find('\n') == std::string::npos);
  }
  return 0;
}
