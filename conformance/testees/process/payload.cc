// Cases about the payload: which message it is, and how it is encoded.
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "conformance/testees/process/topics.h"
#include "conformance/testees/process/usual.h"
#include "conformance/testees/writer/header.h"
#include "conformance/testees/writer/program.h"
#include "conformance/testees/writer/protobuf.h"

namespace ctxconf::testees {
namespace {

Bytes message_with_entity(const Bytes& entity) {
  return message(resource(usual_resource()) + field(3, entity), usual_attributes());
}

void bad_process_context_message() { publish_and_hold(resource(usual_resource())); }

void bad_field_numbers() {
  publish_and_hold(field(2, resource(usual_resource())) + joined(1, usual_attributes()));
}

void bad_resource_keys_unique() {
  publish_and_hold(message_with({pair("service.name", text("named-by-the-user"))}));
}

void bad_attribute_keys_unique() {
  const Bytes schema = pair("threadlocal.schema_version", text("go_pprof_labels_v1"));
  std::vector<Bytes> attributes = with(usual_attributes(), {schema});
  const Region r = publish(message(resource(usual_resource()), attributes));
  pause();
  attributes.push_back(schema);
  update(r, on_heap(message(resource(usual_resource()), attributes)));
  hold(r);
}

void bad_nested_keys_unique() {
  publish_and_hold(message_with({pair(
      "ctxconf.list", list({pair("a", text("1")), pair("b", text("2")), pair("a", text("3"))}))}));
}

void bad_utf8() {
  Bytes value = "x";
  while (value.size() < 4096) value += "\xc3\xa9";
  value.resize(4096);
  publish_and_hold(message_with({pair("ctxconf.text", text(value))}));
}

void bad_utf8_surrogates() {
  publish_and_hold(message_with({pair("ctxconf.text", text("\xed\xa0\xbd\xed\xb8\x80"))}));
}

void bad_no_dictionary_references() {
  publish_and_hold(message_with({pair("ctxconf.text", text("a")) + varint_field(3, 7)}));
}

void bad_entity_keys_exist() {
  publish_and_hold(message_with_entity(entity("service", {"service.name", "host.id"})));
}

void bad_entity_keys_exist_description() {
  publish_and_hold(message_with_entity(entity("service", {"service.name"}, {"host.id"})));
}

void bad_entity_type() { publish_and_hold(message_with_entity(entity("", {"service.name"}))); }

void bad_entity_id_keys() {
  publish_and_hold(message_with_entity(entity("service", {}, {"service.version"})));
}

void bad_utf8_large() { publish_and_hold(large_message("caf\xc3")); }

void bad_semantic_conventions() {
  auto pairs = usual_resource();
  pairs.front() = pair("serviceName", text("ctxconf-testee"));
  publish_and_hold(message(resource(pairs), usual_attributes()));
}

void bad_resource_matches_sdk() {
  Bytes value(16384 + 3, 'x');
  value.resize(value.size() & 0x3fff);  // what fits into two bytes of a varint
  auto pairs = usual_resource();
  pairs[1] = pair("service.version", text(value));
  publish_and_hold(message(resource(pairs), usual_attributes()));
}

void good_field_order() {
  std::vector<Bytes> pairs;
  for (const auto& [key, value] :
       {std::pair{"service.version", "1.0.0"}, std::pair{"service.name", "ctxconf-testee"}}) {
    pairs.push_back(field(2, text(value)) + field(1, key));
  }
  publish_and_hold(joined(2, usual_attributes()) + field(1, resource(pairs)));
}

void good_split_messages() {
  const auto pairs = usual_resource();
  Bytes bytes;
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    bytes += field(1, resource({pairs[i], pairs[i + 1]}));
    bytes += field(2, pair("ctxconf.part" + std::to_string(i), integer(1)));
  }
  // A value in two parts: the later string replaces the earlier one.
  bytes += field(2, field(1, "ctxconf.split") + field(2, text("a")) + field(2, text("b")));
  publish_and_hold(bytes);
}

void good_longer_varints() {
  const auto long_pair = [](const Bytes& key, const Bytes& any) {
    return field(1, key, 2) + field(2, any, 5);
  };
  const Bytes resource_bytes =
      field(1, long_pair("service.name", field(1, "ctxconf-testee", 3)), 4) +
      field(1, long_pair("ctxconf.small", varint_field(3, 5, 10)), 2);
  publish_and_hold(field(1, resource_bytes, 5) + joined(2, usual_attributes()));
}

void good_unknown_fields() {
  publish_and_hold(usual_message() + field(15, "later") + varint_field(3000, 1));
}

void good_unknown_nested_fields() {
  const Bytes fixed32 = varint(21 << 3 | 5) + Bytes("\x01\x02\x03\x04", 4);
  const auto odd = [](const Bytes& key) {
    return pair(key, text("a") + field(90, "later")) + field(77, "later");
  };
  publish_and_hold(message(resource(with(usual_resource(), {odd("ctxconf.text")})) + fixed32,
                           with(usual_attributes(), {odd("ctxconf.other")})));
}

void good_no_attributes() { publish_and_hold(message(resource(usual_resource()), {})); }

void good_no_resource() { publish_and_hold(joined(2, usual_attributes())); }

void good_empty_resource() { publish_and_hold(field(1, "")); }

void good_entity() {
  publish_and_hold(message_with_entity(
      entity("service", {"service.instance.id"}, {"service.name", "service.version"})));
}

void good_entity_of_own_type() {
  publish_and_hold(message_with_entity(entity("ctxconf.testee", {"service.instance.id"})));
}

void good_payload_large() {
  const Region r = publish(large_message("end"));
  for (int i = 0; i < 3; ++i) {
    pause();
    update(r, on_heap(large_message("end")));
  }
  hold(r);
}

void good_split_resource() {
  const auto pairs = usual_resource();
  Bytes bytes;
  for (const auto& p : pairs) bytes += field(1, resource({p}));
  publish_and_hold(bytes);
}

void good_key_in_both() {
  publish_and_hold(
      message(resource(usual_resource()),
              with(usual_attributes(), {pair("service.name", text("ctxconf-testee"))})));
}

void good_bytes_value() {
  Bytes all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(255 - i));
  publish_and_hold(message_with({pair("ctxconf.bytes", raw(all))}));
}

void good_value_kinds() {
  const Bytes inner = list({pair("a", integer(1)), pair("b", list({pair("a", integer(2))}))});
  publish_and_hold(message_with({
      pair("ctxconf.text", text("gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf")),
      pair("ctxconf.true", boolean(true)),
      pair("ctxconf.negative", integer(-5)),
      pair("ctxconf.double", number(0.5)),
      pair("ctxconf.array", array({text("a"), text("a"), inner, inner, Bytes()})),
      pair("ctxconf.list", inner),
      pair("ctxconf.bytes", raw(Bytes(3, '\0'))),
      pair("ctxconf.nothing", Bytes()),
      Bytes(field(1, "ctxconf.absent")),
  }));
}

void good_many_attributes() {
  std::vector<Bytes> pairs;
  for (const std::size_t size : {0, 1, 127, 128, 16383, 16384}) {
    pairs.push_back(pair("ctxconf.text" + std::to_string(size), text(Bytes(size, 'x'))));
  }
  for (int i = 0; i < 300; ++i) {
    pairs.push_back(pair("ctxconf.n" + std::to_string(i), integer(i)));
  }
  publish_and_hold(message_with(pairs));
}

void good_own_names() {
  publish_and_hold(message_with({pair("acme.warehouse.aisle", text("7")),
                                 pair("Lagerhalle", text("Nord")), pair("x", text("y"))}));
}

constexpr Case kBadPayload[] = {
    {"pctx.payload.process-context-message", "publishes a bare Resource",
     bad_process_context_message},
    {"pctx.payload.field-numbers", "exchanges fields 1 and 2", bad_field_numbers},
    {"pctx.payload.resource-keys-unique", "has service.name twice", bad_resource_keys_unique},
    {"pctx.payload.attribute-keys-unique", "adds threadlocal.schema_version again with each update",
     bad_attribute_keys_unique},
    {"pctx.payload.nested-keys-unique", "has a list with the key a twice", bad_nested_keys_unique},
    {"pctx.payload.utf8", "cuts a value in the middle of a character", bad_utf8},
    {"pctx.payload.utf8:surrogates", "encodes a character as two surrogates", bad_utf8_surrogates},
    {"pctx.payload.utf8:large", "cuts a character at the end of 2.5 MiB", bad_utf8_large},
    {"pctx.payload.no-dictionary-references", "sets key_strindex", bad_no_dictionary_references},
    {"pctx.payload.entity-keys-exist", "names host.id in id_keys, which is not an attribute",
     bad_entity_keys_exist},
    {"pctx.payload.entity-keys-exist:description", "names host.id in description_keys",
     bad_entity_keys_exist_description},
    {"pctx.payload.entity-type", "has an entity without a type", bad_entity_type},
    {"pctx.payload.entity-id-keys", "has an entity without id_keys", bad_entity_id_keys},
    {"pctx.payload.semantic-conventions", "writes serviceName", bad_semantic_conventions},
    {"pctx.payload.resource-matches-sdk", "cuts service.version from 16387 bytes to 3",
     bad_resource_matches_sdk},
};

constexpr Case kGoodPayload[] = {
    {"field-order", "writes field 2 before 1, and values before keys", good_field_order},
    {"split-messages", "splits the Resource into three parts with field 2 between them",
     good_split_messages},
    {"longer-varints", "writes lengths and numbers in more bytes than needed", good_longer_varints},
    {"unknown-fields", "has further fields on the top level", good_unknown_fields},
    {"unknown-nested-fields", "has further fields in nested messages", good_unknown_nested_fields},
    {"no-attributes", "has no field 2", good_no_attributes},
    {"no-resource", "has no field 1", good_no_resource},
    {"empty-resource", "writes an empty Resource in two bytes", good_empty_resource},
    {"entity", "has an entity whose keys all exist", good_entity},
    {"entity-of-own-type", "has an entity of a type that the user made up",
     good_entity_of_own_type},
    {"payload-large", "announces 2.5 MiB four times", good_payload_large},
    {"split-resource", "writes one field 1 for each attribute", good_split_resource},
    {"key-in-both", "has service.name in the Resource and in field 2", good_key_in_both},
    {"bytes-value", "has a bytes value with every byte there is", good_bytes_value},
    {"value-kinds", "has one attribute of each kind", good_value_kinds},
    {"many-attributes", "has 300 attributes, and strings of 0 to 16384 bytes",
     good_many_attributes},
    {"own-names", "has attribute names that the user made up", good_own_names},
};

}  // namespace

const Topic kPayloadCases{kBadPayload, kGoodPayload};

}  // namespace ctxconf::testees
