// Encodes the messages of a process context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ctxconf::testees {

using Bytes = std::string;

Bytes varint(std::uint64_t value, std::size_t at_least = 1);

// A length-delimited field: a string, bytes or a message.
Bytes field(std::uint32_t number, const Bytes& content, std::size_t length_bytes = 1);
Bytes varint_field(std::uint32_t number, std::uint64_t value, std::size_t at_least = 1);
Bytes joined(std::uint32_t number, const std::vector<Bytes>& messages);

// AnyValue
Bytes text(const Bytes& value);
Bytes boolean(bool value);
Bytes integer(std::int64_t value);
Bytes number(double value);
Bytes array(const std::vector<Bytes>& values);
Bytes list(const std::vector<Bytes>& pairs);
Bytes raw(const Bytes& value);

// KeyValue
Bytes pair(const Bytes& key, const Bytes& any_value);

// Resource
Bytes resource(const std::vector<Bytes>& pairs);

// EntityRef
Bytes entity(const Bytes& type, const std::vector<Bytes>& id_keys,
             const std::vector<Bytes>& description_keys = {});

// ProcessContext
Bytes message(const Bytes& resource_bytes, const std::vector<Bytes>& pairs);

}  // namespace ctxconf::testees
