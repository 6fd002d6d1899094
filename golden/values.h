// Converts attribute values, messages and single protobuf fields from and to the JSON of vectors
// and their sources.
#pragma once

#include <string>

#include "golden/members.h"
#include "golden/vector.h"

namespace ctxconf::golden {

// `where` names the value in a mistake; `error` keeps the first mistake.
AnyValue value_from(const Json& json, const std::string& where, std::string& error);

// Encodes a payload: {"resource": [PAIR...], "attributes": [PAIR...]}, {"wire": [FIELD...]} or
// {"hex": "..."}.
Bytes encode_payload(Members payload);

// {"resource": {KEY: VALUE}, "attributes": {KEY: VALUE}}
ProcessContent process_content_from(Members expect);
OrderedJson to_json_value(const ProcessContent& content);

}  // namespace ctxconf::golden
