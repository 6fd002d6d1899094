#include "conformance/testees/writer/protobuf.h"

#include <cstring>

namespace ctxconf::testees {

Bytes varint(std::uint64_t value, std::size_t at_least) {
  Bytes out;
  while (value >= 0x80 || out.size() + 1 < at_least) {
    out.push_back(static_cast<char>(0x80 | (value & 0x7f)));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
  return out;
}

Bytes field(std::uint32_t number, const Bytes& content, std::size_t length_bytes) {
  return varint(number << 3 | 2) + varint(content.size(), length_bytes) + content;
}
Bytes varint_field(std::uint32_t number, std::uint64_t value, std::size_t at_least) {
  return varint(number << 3) + varint(value, at_least);
}

Bytes joined(std::uint32_t number, const std::vector<Bytes>& messages) {
  Bytes out;
  for (const auto& m : messages) out += field(number, m);
  return out;
}

// AnyValue
Bytes text(const Bytes& value) { return field(1, value); }
Bytes boolean(bool value) { return varint_field(2, value ? 1 : 0); }
Bytes integer(std::int64_t value) { return varint_field(3, static_cast<std::uint64_t>(value)); }
Bytes number(double value) {
  Bytes out = varint(4 << 3 | 1);
  out.resize(out.size() + sizeof value);
  std::memcpy(out.data() + out.size() - sizeof value, &value, sizeof value);
  return out;
}
Bytes array(const std::vector<Bytes>& values) { return field(5, joined(1, values)); }
Bytes list(const std::vector<Bytes>& pairs) { return field(6, joined(1, pairs)); }
Bytes raw(const Bytes& value) { return field(7, value); }

// KeyValue
Bytes pair(const Bytes& key, const Bytes& any_value) { return field(1, key) + field(2, any_value); }

// Resource
Bytes resource(const std::vector<Bytes>& pairs) { return joined(1, pairs); }

// EntityRef
Bytes entity(const Bytes& type, const std::vector<Bytes>& id_keys,
             const std::vector<Bytes>& description_keys) {
  return (type.empty() ? Bytes() : field(2, type)) + joined(3, id_keys) +
         joined(4, description_keys);
}

// ProcessContext
Bytes message(const Bytes& resource_bytes, const std::vector<Bytes>& pairs) {
  return field(1, resource_bytes) + joined(2, pairs);
}

}  // namespace ctxconf::testees
