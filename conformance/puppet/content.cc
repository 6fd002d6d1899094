#include "conformance/puppet/content.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

namespace ctxconf::conformance::puppet {
namespace {

constexpr unsigned kVarint = 0;
constexpr unsigned kFixed64 = 1;
constexpr unsigned kLength = 2;

void put(Bytes& out, const Bytes& more) { out.insert(out.end(), more.begin(), more.end()); }

Bytes varint(std::uint64_t value, unsigned padding = 0) {
  Bytes out;
  for (; value >= 0x80; value >>= 7U) out.push_back(static_cast<std::byte>(value | 0x80U));
  out.push_back(static_cast<std::byte>(value));
  while (padding > 0 && out.size() < 10) {
    out.back() |= std::byte{0x80};
    out.push_back(std::byte{0});
    --padding;
  }
  return out;
}

Bytes tag(unsigned field, unsigned type) { return varint(std::uint64_t{field} << 3U | type); }

Bytes block(unsigned field, const Bytes& bytes, unsigned padding = 0) {
  Bytes out = tag(field, kLength);
  // Most decoders read at most five bytes of a length.
  const Bytes shortest = varint(bytes.size());
  put(out, varint(bytes.size(),
                  static_cast<unsigned>(std::min<std::size_t>(padding, 5 - shortest.size()))));
  put(out, bytes);
  return out;
}

Bytes number(unsigned field, std::uint64_t value, unsigned padding = 0) {
  Bytes out = tag(field, kVarint);
  put(out, varint(value, padding));
  return out;
}

Bytes double_value(double value) {
  Bytes out = tag(4, kFixed64);
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (unsigned i = 0; i < 8; ++i) out.push_back(static_cast<std::byte>(bits >> (8 * i)));
  return out;
}

Bytes pair_of(const Pair& pair, unsigned padding) {
  Bytes out = block(1, bytes_of(pair.key), padding);
  put(out, block(2, pair.value, padding));
  if (pair.key_index) put(out, number(3, *pair.key_index));
  return out;
}

std::string text(Rng& rng) {
  static const std::vector<std::string> kWords = {"checkout",
                                                  "1.27.3-rc1",
                                                  "",
                                                  "prod",
                                                  "eu-west-1",
                                                  "na\u00efve caf\u00e9",
                                                  "\u6771\u4eac",
                                                  "\U0001f680 launch",
                                                  "a b\tc",
                                                  "192.0.2.17",
                                                  "x",
                                                  "7f3c9a52-6b1e-4d0f-8a77-2f9be0c4d161"};
  std::string out = rng.pick(kWords);
  if (rng.one_in(12)) {
    static const std::vector<std::size_t> kSizes = {127, 128, 255, 256, 1000, 4096};
    out.assign(rng.pick(kSizes), static_cast<char>('a' + rng.below(26)));
  }
  return out;
}

Bytes any_value(Rng& rng, unsigned depth) {
  switch (rng.below(depth < 2 ? 9 : 7)) {
    case 0:
    case 1:
    case 2:
      return string_value(text(rng));
    case 3:
      return number(2, rng.below(2));  // bool
    case 4:
      return number(3, rng.one_in(2) ? rng.below(100000) : rng.next());  // int, also negative
    case 5: {
      static const std::vector<double> kDoubles = {0, 1.5, -2.25e300, 3.14159};
      return double_value(rng.pick(kDoubles));
    }
    case 6: {
      Bytes raw;
      for (auto n = rng.below(24); n > 0; --n) raw.push_back(static_cast<std::byte>(rng.next()));
      return block(7, raw);
    }
    case 7: {  // array
      Bytes values;
      for (auto n = rng.below(4); n > 0; --n) put(values, block(1, any_value(rng, depth + 1)));
      return block(5, values);
    }
    default: {  // key-value list
      Bytes values;
      const auto count = rng.below(4);
      for (std::uint64_t i = 0; i < count; ++i) {
        put(values, block(1, pair_of({"k" + std::to_string(i), any_value(rng, depth + 1), {}}, 0)));
      }
      return block(6, values);
    }
  }
}

Bytes names_value(const std::vector<std::string>& names) {
  Bytes values;
  for (const auto& name : names) put(values, block(1, string_value(name)));
  return block(5, values);
}

Content with_reference(Content content) {
  const Reference r = *std::exchange(content.reference, std::nullopt);
  std::vector<Pair> pairs;
  if (!r.no_schema) {
    pairs.push_back({"threadlocal.schema_version",
                     r.schema_value.empty() ? string_value(r.schema) : r.schema_value,
                     {}});
  }
  if (r.keys && !r.no_map) {
    pairs.push_back({"threadlocal.attribute_key_map",
                     r.map_value.empty() ? names_value(*r.keys) : r.map_value,
                     {}});
  }
  if (r.map_first) std::ranges::reverse(pairs);
  if (r.in_resource) content.has_resource = true;
  auto& to = r.in_resource ? content.resource : content.attributes;
  to.insert(r.before_others && !r.in_resource ? to.begin() : to.end(), pairs.begin(), pairs.end());
  return content;
}

}  // namespace

Bytes string_value(std::string_view text) { return block(1, bytes_of(text)); }

Bytes encode(const Content& content) {
  if (content.reference) return encode(with_reference(content));
  Bytes out;
  const auto resource = [&](std::size_t from, std::size_t to, bool last) {
    Bytes inner;
    for (std::size_t i = from; i < to; ++i) {
      put(inner,
          block(1, pair_of(content.resource[i], content.varint_padding), content.varint_padding));
    }
    if (last && content.dropped_count) put(inner, number(2, 3));
    if (last && content.entity && !content.resource.empty()) {
      Bytes entity = block(2, bytes_of("service"));
      put(entity, block(3, bytes_of(content.resource.front().key)));
      put(inner, block(3, entity));
    }
    if (last && content.unknown_fields) put(inner, number(1000, 5));
    put(out, block(1, inner, content.varint_padding));
  };
  const auto attributes = [&] {
    for (const auto& pair : content.attributes) {
      put(out, block(2, pair_of(pair, content.varint_padding), content.varint_padding));
    }
  };
  if (content.attributes_first) attributes();
  if (content.has_resource) {
    const std::size_t all = content.resource.size();
    if (content.split_resource) {
      resource(0, all / 2, false);
      if (content.unknown_fields) put(out, block(77, bytes_of("later revision")));
      resource(all / 2, all, true);
    } else {
      resource(0, all, true);
    }
  }
  if (!content.attributes_first) attributes();
  if (content.unknown_fields) put(out, number(123, 1));
  put(out, content.raw);
  return out;
}

Content legal_content(Rng& rng) {
  Content out;
  static const std::vector<std::string> kKnown = {"service.name",
                                                  "service.version",
                                                  "service.instance.id",
                                                  "service.namespace",
                                                  "telemetry.sdk.name",
                                                  "telemetry.sdk.language",
                                                  "telemetry.sdk.version",
                                                  "host.name",
                                                  "deployment.environment.name",
                                                  "process.pid",
                                                  "os.type"};
  std::vector<std::string> keys = kKnown;
  const auto own = rng.one_in(6) ? rng.below(60) : rng.below(6);
  for (std::uint64_t i = 0; i < own; ++i) keys.push_back("com.example.n" + std::to_string(i));
  if (rng.one_in(5)) keys.push_back("com.example.\u30ad\u30fc");
  for (std::size_t i = keys.size(); i > 1; --i) std::swap(keys[i - 1], keys[rng.below(i)]);
  const auto count = rng.below(keys.size() + 1);
  for (std::size_t i = 0; i < count; ++i) {
    Pair pair;
    pair.key = keys[i];
    const bool known = std::ranges::find(kKnown, pair.key) != kKnown.end();
    pair.value = known && pair.key != "process.pid" ? string_value(text(rng)) : any_value(rng, 0);
    out.resource.push_back(pair);
  }
  const auto more = rng.below(5);
  for (std::uint64_t i = 0; i < more; ++i) {
    out.attributes.push_back({"com.example.extra" + std::to_string(i), any_value(rng, 0), {}});
  }
  if (rng.one_in(30)) {  // large
    out.attributes.push_back(
        {"com.example.large", string_value(std::string(20000 + rng.below(60000), 'L')), {}});
  }
  out.has_resource = !out.resource.empty() || out.attributes.empty() || rng.one_in(2);
  out.split_resource = rng.one_in(8);
  out.attributes_first = rng.one_in(4);
  out.unknown_fields = rng.one_in(10);
  out.dropped_count = rng.one_in(10);
  out.entity = rng.one_in(10);
  if (rng.one_in(8)) out.varint_padding = 1 + static_cast<unsigned>(rng.below(3));
  return out;
}

}  // namespace ctxconf::conformance::puppet
