// What a program under test was given, to compare with what it published.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "conformance/rules/driven_evidence.h"
#include "conformance/verdict/finding.h"

namespace ctxconf::conformance {

// What requests gave so far, as far as that is certain: nothing after a refusal, requests in
// parallel, churn and another copy of the SDK.
struct ExpectedResource {
  std::optional<std::vector<Attribute>> resource;
  std::optional<std::vector<Attribute>> attributes;
  // What was given before and is not given any more, with the last values; since the last certain
  // publication.
  std::vector<Attribute> removed;
  // Nothing was taken of the last Resource that was given.
  bool nothing_taken = false;

  bool is_known() const { return resource && attributes; }
  bool is_removed(std::string_view key) const;
  // Call it for each operation of a session, in order.
  void apply(const DrivenOperation& d);

 private:
  void forget() { *this = {}; }
};

// Those that the SDK has taken, as the adapter says: `taken` and `left_out` in its reply.
std::vector<Attribute> taken_of(std::vector<Attribute> expected, const nlohmann::json& reply);
// Says that it is not applicable, because the SDK sets its keys itself.
Finding nothing_was_taken();

// Whether key, kind and value are the same. The pairs of a key-value list may have another order.
bool is_same(const Attribute& a, const Attribute& b);
const Attribute* find_key(const std::vector<Attribute>& list, std::string_view key);

// "service.name" = "shop" (string); null: "nothing".
std::string shown(const Attribute* a);

// What the process published at the look after an operation.
struct Published {
  const ImageEvidence* image = nullptr;  // null: no snapshot was taken of it
  const Context* context = nullptr;      // a reader's; null: none was there
  const Payload* payload = nullptr;      // of that; null: it does not decode as a whole
  std::size_t contexts = 0;              // that a reader accepts
  bool has_mappings = false;             // anything that is named or looks like a context
  const Context* zeroed = nullptr;       // named, and whole but for its timestamp, which is zero

  const Attribute* find(std::string_view key) const;  // in the Resource, then in field 2
  const Attribute* find_in_resource(std::string_view key) const;
};
Published published_at(const SessionEvidence& session, const ImageView* view);
Published published_at(const SessionEvidence& session, const DrivenOperation& d);

// Distinguishes a publication without a previous context from one that replaces a context: the
// requirements about updates judge the latter.
class FirstPublications {
 public:
  // Call it for each operation of a session, in order, with what was there after it.
  bool begins(const DrivenOperation& d, const Published& now);
  bool published() const { return published_; }  // after the last operation

 private:
  bool published_ = false;
};

// Whether an SDK may leave out the whole attribute, because its API cannot express it or a limit
// may apply. `count`: attributes that were given with it.
bool may_be_left_out(const Attribute& expected, std::size_t count);

// The attributes that showed as they were given. An SDK that published a value of some kind and
// size once can do so again, so none of its limits explains that the next one under this key is
// missing.
class ShownBefore {
 public:
  void add(const ExpectedResource& given, const Published& published);
  bool has_one_like(const Attribute& expected) const;

 private:
  std::map<std::string, Attribute, std::less<>> last_;  // by key
};

// The first given attribute that is not published as it was given; null: all are. What was given in
// addition to the Resource may be in either list. Without `every`, an attribute that may be left
// out is not missed, unless it was `shown` before.
const Attribute* first_missing(const ExpectedResource& expected, const Published& published,
                               bool every = false, const ShownBefore* shown = nullptr);

// What the SDK took of each request with this `op` in a parallel one; empty if that has requests
// other than these and forks.
std::vector<std::vector<Attribute>> resources_at_once(const DrivenOperation& d,
                                                      std::string_view op);
// The same for publications; empty unless all of them were accepted.
std::vector<std::vector<Attribute>> publications_at_once(const DrivenOperation& d);
// Whether every attribute of the first list has a value that one of the lists gives.
bool is_mixture(const std::vector<std::vector<Attribute>>& lists, const Published& published);

// The look at another process right after the operation; null: there was none.
const ImageView* view_of(const DrivenOperation& d, std::int64_t pid);
// Is this member that text?
bool says(const nlohmann::json& object, const char* name, std::string_view text);
// A member of the reply that is a process number; 0: it is none.
std::int64_t pid_member(const nlohmann::json& object, const char* name);

// Judges pctx.payload.resource-matches-sdk for an image with a session, whose requests say what was
// given.
Finding resource_as_given(const ImageEvidence& evidence);

}  // namespace ctxconf::conformance
