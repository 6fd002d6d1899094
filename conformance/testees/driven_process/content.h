// What the process context of the adapter contains.
#pragma once

#include <string>

#include "conformance/testees/adapter_loop.h"
#include "conformance/testees/writer/choice.h"

namespace ctxconf::testees {

using adapter::json;
using adapter::Reply;

extern const Choices kContentChoices;

json text(const std::string& key, const std::string& value);
// Turns an integer into text.
void make_text(json& value);

struct Content {
  json resource = json::array();
  json attributes = json::array();
};

std::string encode(Content content);

// Returns `content` with what a request changes.
Content given(Content content, const json& request);
void leave_out(json& resource, bool (*is_left_out)(const json& value));
bool is_not_text(const json& value);
// Makes the changes that this program makes only in updates; the Resource replaces `before`.
void change_update(json& resource, json before);
// Adds those of `others` whose keys are not in `resource`.
void add_missing(json& resource, const json& others);
// Changes the pairs next to the Resource: this SDK has another place, with other types, for them.
void change_extra_pairs(json& pairs);

// Whether the SDK takes few keys, and says so.
bool has_few_keys();
// The same content, with the Resource in field 2.
Content in_field_2(Content content);
// Adds to a reply what it says about the Resource in its request.
Reply with_taken(const json& request, Reply reply);

}  // namespace ctxconf::testees
