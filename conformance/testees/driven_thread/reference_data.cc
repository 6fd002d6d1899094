#include "conformance/testees/driven_thread/reference_data.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "conformance/testees/writer/program.h"
#include "conformance/testees/writer/protobuf.h"

namespace ctxconf::testees {

using adapter::refuse;

namespace {

constexpr Choice kBadReferenceData[] = {
    {"tctx.refdata.before-first-record", "attaches a record before there is reference data"},
    {"tctx.attach.matches-context:no-key-map", "publishes no key map, and writes no attributes"},
    {"tctx.keymap.survives-other-updates", "drops the key map in other updates"},
    {"tctx.keymap.survives-other-updates:at-once", "loses a name that comes during another update"},
    {"tctx.keymap.survives-other-updates:pairs", "drops the key map in updates of pairs alone"},
    {"tctx.keymap.survives-other-updates:publication",
     "has no key map any more after another publication"},
    {"tctx.attach.matches-context:full-map", "has 230 names and takes no others"},
    {"tctx.attach.matches-context:255-names", "has 255 names and takes no others"},
    {"tctx.fork.inherited-record:renamed", "has another name in front of the key map of a child"},
    {"tctx.fork.inherited-record:unnamed", "has no names in the key map of a child"},
    {"tctx.keymap.stable-across-republish", "begins a new key map after a withdrawal"},
    {"tctx.keymap.stable-across-republish:replaced",
     "has another name in front of the key map when it publishes again"},
    {"tctx.keymap.append-updates-context", "publishes the first names only"},
    {"tctx.keymap.update-protocol", "overwrites the message without zero"},
    {"tctx.keymap.single-writer", "gives two threads the same index"},
    {"tctx.keymap.single-writer:left-out", "leaves out names that come at once, but for the first"},
    {"tctx.keymap.at-most-256", "checks the number of names once for several"},
    {"tctx.keymap.index-not-wrapped", "gives index 256 as 0"},
    {"pctx.update.visible:names-alone", "publishes new names without the Resource"},
    {"pctx.update.visible:names-first-resource", "publishes new names with the first Resource"},
    {"pctx.update.visible:names-without-pairs", "publishes new names without the extra pairs"},
};

constexpr Choice kGoodReferenceData[] = {
    {"reference-data-later", "publishes reference data with the first name"},
    {"names-in-the-same-update", "appends a name in each update"},
    {"starts-anew-without-records", "begins a new key map when nothing is attached"},
    {"fixed-names", "has three names and takes no others"},
    {"names-at-start", "has three names at the start"},
    {"refuses-names", "refuses a name for which there is no index"},
    {"begins-anew",
     "hides what is attached, and has a new mapping and key map, where it publishes again"},
};

}  // namespace

const Choices kReferenceDataChoices{kBadReferenceData, kGoodReferenceData};

namespace {

constexpr int kManyThreads = 5;
constexpr std::size_t kFewerNames = 230;
constexpr std::size_t kRoom = 1024;  // for each message, so that the next one fits

// It declares that it takes kMostNames.
std::size_t names_taken() {
  if (is_bad("tctx.attach.matches-context:full-map")) return kFewerNames;
  if (is_bad("tctx.attach.matches-context:255-names")) return kMostNames - 1;
  return SIZE_MAX;
}

}  // namespace

Process::Process() {
  if (is_bad("tctx.attrs.length-not-wrapped")) {  // their indexes are those of every letter
    for (int i = 0; i < 128; ++i) names_.push_back("early_" + std::to_string(i));
  }
  if (is_good("names-at-start") || is_good("fixed-names")) {
    names_ = {"http_route", "user_tier", "db_table"};
  }
}

Reply Process::publish(const json& request) {
  const std::lock_guard guard(lock_);
  first_resource_ = resource_ = attributes_of(request);
  pairs_ = pairs_of(request.value("attributes", json::array()));
  again_ = is_published();
  if (again_ && is_bad("tctx.keymap.stable-across-republish:replaced")) {
    names_.insert(names_.begin(), "published_again");
  }
  if (again_ && is_good("begins-anew")) {
    withdraw();
    names_.clear();
  }
  send(is_good("reference-data-later") && names_.empty() ? without_threads() : whole());
  return json();
}

Reply Process::update(const json& request) {
  std::unique_lock guard(lock_);
  if (!is_published()) return refuse("failed", "nothing is published");
  if (request.contains("resource")) resource_ = attributes_of(request);
  if (request.contains("attributes")) pairs_ = pairs_of(request["attributes"]);
  if (is_good("names-in-the-same-update")) {
    names_.push_back("with_update_" + std::to_string(names_.size()));
  }
  if (is_bad("tctx.keymap.survives-other-updates:at-once")) return update_late(guard);
  const bool forgets = is_bad("tctx.keymap.survives-other-updates") ||
                       (is_bad("tctx.keymap.survives-other-updates:pairs") &&
                        request.contains("attributes") && !request.contains("resource"));
  send(forgets ? without_threads() : whole());
  said_ = !forgets;
  return json();
}

Reply Process::drop(bool attached) {
  const std::lock_guard guard(lock_);
  if (!is_published()) return refuse("failed", "nothing is published");
  withdraw();
  const bool starts_anew = is_bad("tctx.keymap.stable-across-republish") ||
                           (is_good("starts-anew-without-records") && !attached);
  if (starts_anew) names_.clear();
  return json();
}

void Process::withdraw() {
  set_timestamp(region_, 0);
  if (munmap(region_.at, region_.size) != 0) die("munmap");
  region_ = {};
}

std::vector<int> Process::indexes_of(const std::vector<std::string>& names) {
  if (is_bad("tctx.keymap.single-writer") && threads_ >= kManyThreads) {
    return indexes_without_lock(names);
  }
  std::unique_lock guard(lock_);
  const bool is_beside = !names.empty() && names.front().starts_with("name_beside");
  if (is_beside && is_bad("tctx.keymap.survives-other-updates:at-once")) {
    all_there_.wait_for(guard, std::chrono::seconds(1), [&] { return encoded_; });
  }
  std::vector<int> out;
  const bool checks_once = is_bad("tctx.keymap.at-most-256");
  const bool room = names_.size() < kMostNames;
  const auto is_first_of_many = [&](const std::string& name) {
    return std::ranges::none_of(names_, [&](const std::string& other) {
      return other.starts_with("name_of_writer") && name.starts_with("name_of_writer");
    });
  };
  bool news = !said_ && !is_good("reference-data-later");
  for (const auto& name : names) {
    const auto it = std::ranges::find(names_, name);
    if (it != names_.end()) {
      out.push_back(static_cast<int>(it - names_.begin()));
    } else if (is_good("fixed-names") || names_.size() >= names_taken() ||
               (is_bad("tctx.keymap.single-writer:left-out") && !is_first_of_many(name))) {
      out.push_back(-1);
    } else if (checks_once ? room : names_.size() < kMostNames) {
      out.push_back(names_.size() < kMostNames ? static_cast<int>(names_.size()) : -1);
      names_.push_back(name);
      all_there_.notify_all();
      news = true;
    } else {
      out.push_back(is_bad("tctx.keymap.index-not-wrapped") ? 0 : -1);  // 256 as a byte
    }
  }
  const bool once = is_bad("tctx.keymap.append-updates-context") && published_names_ > 0;
  if (news && is_published() && !once) {
    send(with_new_names());
    said_ = true;
    published_names_ = names_.size();
  }
  return out;
}

void Process::say_now() {
  const std::lock_guard guard(lock_);
  if (said_ || !is_published()) return;
  send(whole());
  said_ = true;
}

void Process::publish_in_child(const json& request) {
  region_ = {};
  resource_ = attributes_of(request);
  pairs_.clear();
  if (is_bad("tctx.fork.inherited-record:renamed")) names_.insert(names_.begin(), "child_pid");
  if (is_bad("tctx.fork.inherited-record:unnamed")) names_.clear();
  send(whole());
}

Reply Process::update_late(std::unique_lock<std::mutex>& guard) {
  const Bytes encoded = whole();
  const std::size_t before = names_.size();
  encoded_ = true;
  all_there_.notify_all();
  all_there_.wait_for(guard, std::chrono::seconds(1), [&] { return names_.size() > before; });
  encoded_ = false;
  send(encoded);
  return json();
}

std::vector<int> Process::indexes_without_lock(const std::vector<std::string>& names) {
  std::unique_lock guard(lock_);
  const auto wait_for_all = [&](int& arrived) {
    ++arrived;
    all_there_.notify_all();
    all_there_.wait_for(guard, std::chrono::seconds(1), [&] { return arrived >= threads_; });
  };
  const std::size_t first = names_.size();
  wait_for_all(took_index_);
  names_.resize(std::max(names_.size(), first + names.size()));
  std::vector<int> out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    names_[first + i] = names[i];
    out.push_back(static_cast<int>(first + i));
  }
  wait_for_all(wrote_name_);
  if (is_published() && published_names_ != names_.size()) {
    send(whole());
    said_ = true;
    published_names_ = names_.size();
  }
  return out;
}

Process::Pairs Process::attributes_of(const json& request) {
  if (!request.contains("resource")) return {};
  return pairs_of(request["resource"].at("attributes"));
}

Process::Pairs Process::pairs_of(const json& attributes) {
  Pairs out;
  for (const auto& a : attributes) {
    out.emplace_back(a.at("key"), a.at("value").value("stringValue", ""));
  }
  return out;
}

Bytes Process::without_threads() const {
  Bytes attributes;
  for (const auto& [key, value] : resource_) attributes += field(1, pair(key, text(value)));
  Bytes out = field(1, attributes);
  for (const auto& [key, value] : pairs_) out += field(2, pair(key, text(value)));
  return out;
}

Bytes Process::with_new_names() {
  if (is_bad("pctx.update.visible:names-alone")) resource_.clear();
  if (is_bad("pctx.update.visible:names-first-resource")) resource_ = first_resource_;
  if (is_bad("pctx.update.visible:names-without-pairs")) pairs_.clear();
  return whole();
}

Bytes Process::whole() const {
  Bytes elements;
  const bool once = is_bad("tctx.keymap.append-updates-context") && published_names_ > 0;
  for (std::size_t i = 0; i < (once ? published_names_ : names_.size()); ++i) {
    elements += field(1, text(names_[i]));
  }
  if (again_ && is_bad("tctx.keymap.survives-other-updates:publication")) return without_threads();
  Bytes with_schema =
      without_threads() + field(2, pair("threadlocal.schema_version", text("tlsdesc_v1_dev")));
  if (is_bad("tctx.attach.matches-context:no-key-map")) return with_schema;
  return with_schema + field(2, pair("threadlocal.attribute_key_map", field(5, elements)));
}

void Process::send(const Bytes& bytes) {
  if (is_published()) return rewrite(bytes);
  region_ = publish_in_room(bytes);
}

// Messages are never freed: a reader may still copy the one before.
Region Process::publish_in_room(const Bytes& bytes) {
  payload_ = on_heap(bytes, kRoom);
  const Region r = make_region();
  publish_in(r, payload_);
  return r;
}

void Process::rewrite(const Bytes& bytes) {
  if (is_bad("tctx.keymap.update-protocol") && bytes.size() < kRoom) {
    // It overwrites the old message, of which the new one is a continuation.
    copy_to(payload_.at, bytes);
    store<std::uint32_t>(region_.at + kSizeAt, static_cast<std::uint32_t>(bytes.size()));
    set_timestamp(region_, next_timestamp());
    set_name(region_);
    return;
  }
  payload_ = on_heap(bytes, kRoom);
  testees::update(region_, payload_);
}

}  // namespace ctxconf::testees
