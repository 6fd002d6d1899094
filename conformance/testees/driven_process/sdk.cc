#include "conformance/testees/driven_process/sdk.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/testees/writer/memory.h"

namespace ctxconf::testees {

using adapter::numbered;
using adapter::refuse;

namespace {

constexpr Choice kBadSdk[] = {
    {"pctx.payload.default-resource", "publishes the second Resource"},
    {"pctx.payload.default-resource:empties", "empties the Resource when there is a second"},
    {"pctx.payload.default-resource:withdraws", "withdraws when there is a second Resource"},
    {"pctx.payload.resource-matches-sdk:first-at-once",
     "publishes another name when first publications come at once"},
    {"pctx.publish.existing-becomes-update", "unmaps the context when it is published again"},
    {"pctx.publish.singleton", "publishes twice when two threads do so at once"},
    {"pctx.publish.singleton:second-sdk", "has a second SDK with its own context"},
    {"pctx.publish.on-init", "publishes nothing, because there is no span yet"},
    {"pctx.publish.available-while-idle", "withdraws when the main thread blocks"},
    {"pctx.publish.available-while-idle:stopped", "withdraws when it goes on after a stop"},
    {"pctx.publish.available-while-idle:reverts", "publishes the first Resource after an update"},
    {"pctx.update.same-mapping", "makes each update in a new mapping"},
    {"pctx.update.same-mapping:without-zero", "does the same, without zero in the old one"},
    {"pctx.update.same-mapping:elsewhere", "does the same, and leaves the old mapping"},
    {"pctx.update.visible", "ignores updates"},
    {"pctx.update.visible:extra-pairs", "ignores updates of the extra pairs"},
    {"pctx.update.visible:pairs-lost", "loses the extra pairs in an update of the Resource"},
    {"pctx.update.visible:second-publish", "ignores a second publication"},
    {"pctx.update.visible:same-name", "ignores a publication with the name that is published"},
    {"pctx.update.visible:publish-after-drop", "ignores a publication after a withdrawal"},
    {"pctx.update.visible:publish-after-zero",
     "ignores a publication after a withdrawal that left the mapping"},
    {"pctx.update.visible:field-2", "moves the Resource to field 2 in an update"},
    {"pctx.update.visible:second-publish-field-2", "does so when it publishes again"},
    {"pctx.update.visible:at-once", "ignores updates that come at once"},
    {"pctx.update.visible:at-once-renewed", "renews the timestamp for each of them, and no more"},
    {"pctx.update.visible:churn", "ignores many updates"},
    {"pctx.update.visible:churn-last", "ignores the last of many updates"},
    {"pctx.update.visible:first-at-once", "ignores first publications that come at once"},
    {"pctx.update.visible:same-time", "ignores an update if the clock has not gone on"},
    {"pctx.update.visible:large", "ignores updates to more than 64 KiB"},
    {"pctx.update.visible:resource-reset",
     "publishes the first Resource in an update of the extra pairs"},
    {"pctx.update.visible:beside-a-child", "ignores updates while it has a child"},
    {"pctx.update.visible:drop", "ignores withdrawals"},
    {"pctx.update.visible:drop-renews", "renews the timestamp when it is to withdraw"},
    {"pctx.update.visible:drop-empties", "publishes an empty Resource when it is to withdraw"},
    {"pctx.update.complete-state:second-publish",
     "keeps the extra pairs of an earlier publication"},
    {"pctx.update.one-writer-at-a-time", "lets two threads make one update"},
    {"pctx.update.one-writer-at-a-time:mixed", "mixes the content of two updates"},
};

constexpr Choice kGoodSdk[] = {
    {"default", "does what is asked"},
    {"refuses-second-publish", "refuses a second publication"},
    {"background", "publishes in a thread that runs later"},
    {"never-withdraws", "cannot withdraw"},
    {"merged-updates", "makes one update of several at once"},
    {"heartbeat", "publishes the same again and again"},
};

}  // namespace

const Choices kSdkChoices{kBadSdk, kGoodSdk};

namespace {

constexpr const char* kHandedOver = "CTXCONF_HANDED_OVER";

}  // namespace

Sdk::Sdk() {
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap");
  shared_ = new (memory) Shared;
}

Reply Sdk::publish(const json& request) {
  const std::lock_guard guard(lock_);
  if (request.value("sdk", 1) == 2) {
    if (is_bad("pctx.publish.singleton:second-sdk"))
      return second_.publish(encode(given({}, request)));
  } else if (is_good("refuses-second-publish") && context_.exists()) {
    return refuse("rejected", "there is a context");
  }
  if (is_good("no-extra-pairs") && !request.value("attributes", json::array()).empty()) {
    return refuse("rejected", "it takes no pairs outside the Resource");
  }
  if (is_bad("pctx.publish.on-init")) return json();  // there is no span yet
  if (is_bad("pctx.update.visible:second-publish") && context_.exists()) return json();
  if (is_bad("pctx.update.visible:same-name") && context_.exists() && !content_.resource.empty() &&
      request["resource"]["attributes"][0] == content_.resource[0]) {
    return json();
  }
  const bool ignores = is_bad("pctx.update.visible:publish-after-drop") ||
                       is_bad("pctx.update.visible:publish-after-zero");
  if (ignores && dropped_) return json();
  publisher_ = getpid();
  const bool keeps = is_bad("pctx.update.complete-state:second-publish") && context_.exists();
  content_ = given(keeps ? Content{json::array(), content_.attributes} : Content{}, request);
  change_extra_pairs(content_.attributes);
  if (dropped_ && is_bad("pctx.payload.extra-keys-in-attributes:after-drop")) {
    content_.attributes = json::array();
  }
  if (is_bad("pctx.update.visible:kinds-as-text")) leave_out(content_.resource, is_not_text);
  if (first_.resource.empty()) first_ = content_;
  const bool moves = is_bad("pctx.update.visible:second-publish-field-2") && context_.exists();
  if (is_good("background")) {
    std::thread([this] {
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      const std::lock_guard later(lock_);
      (void)context_.publish(encode(content_));
    }).detach();
    return json();
  }
  if (is_bad("pctx.publish.existing-becomes-update") && context_.exists()) context_.remove();
  return with_taken(request, context_.publish(encode(moves ? in_field_2(content_) : content_)));
}

Reply Sdk::update(const json& request, const Gate& gate) {
  const std::lock_guard guard(lock_);
  return update_locked(request, gate);
}

Reply Sdk::churn(const json& request) {
  if (is_bad("pctx.update.visible:churn")) return json();
  const std::lock_guard guard(lock_);
  const auto iterations = request.at("iterations").get<std::uint64_t>();
  const bool skips_last = is_bad("pctx.update.visible:churn-last") && iterations > 1;
  for (std::uint64_t i = 1; i + (skips_last ? 1 : 0) <= iterations; ++i) {
    content_.resource =
        json::array({text("service.name", numbered("churn", i)),
                     text("ctxconf.churn", numbered(std::string(i % 256, 'x'), i))});
    if (auto reply = context_.update(encode(content_), /*in_bulk=*/true); !reply) return reply;
  }
  return json();
}

Reply Sdk::drop() {
  const std::lock_guard guard(lock_);
  if (is_bad("pctx.update.visible:drop")) return json();
  if (is_bad("pctx.update.visible:drop-renews")) return context_.update(encode(content_));
  if (is_bad("pctx.update.visible:drop-empties")) return context_.update(encode({}));
  dropped_ = true;
  context_.drop();
  return json();
}

Reply Sdk::second_resource(const json& request) {
  // The last provider owns the context.
  if (is_bad("pctx.payload.default-resource:empties")) {
    return update({{"resource", {{"attributes", json::array()}}}});
  }
  if (is_bad("pctx.payload.default-resource:withdraws")) return drop();
  if (!is_bad("pctx.payload.default-resource")) return json();
  return update({{"resource", request.at("resource")}});
}

void Sdk::main_thread_blocks() {
  const bool reverts = is_bad("pctx.publish.available-while-idle:reverts");
  if (!reverts && !is_bad("pctx.publish.available-while-idle")) return;
  std::thread([this, reverts] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (reverts) {
      (void)update({{"resource", {{"attributes", first_.resource}}}});
    } else {
      (void)drop();
    }
  }).detach();
}

void Sdk::begin_heartbeat() {
  if (!is_good("heartbeat")) return;
  std::thread([this] {
    for (;;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      const std::lock_guard guard(lock_);
      if (context_.exists()) (void)context_.update(encode(content_));
    }
  }).detach();
}

void Sdk::watch_for_stops() {
  if (!is_bad("pctx.publish.available-while-idle:stopped")) return;
  static Sdk* self = this;
  struct sigaction action = {};
  action.sa_handler = [](int) { (void)self->drop(); };
  action.sa_flags = SA_RESTART;
  sigaction(SIGCONT, &action, nullptr);
}

Reply Sdk::parallel(const json& all) {
  json requests = json::array();  // no choice here depends on the children
  for (const json& r : all) {
    if (r.at("op") != "process.fork") requests.push_back(r);
  }
  if (!at_once(requests)) {
    for (const json& r : requests) {
      const auto op = r.at("op").get<std::string>();
      auto reply = op == "process.publish" ? publish(r) : op == "process.drop" ? drop() : update(r);
      if (!reply) return reply;
    }
  }
  return json{{"results", std::vector<json>(all.size(), json{{"ok", true}})}};
}

void Sdk::in_child(const json& child) {
  children_ = 0;
  const bool updates = child.at("do") == "update";
  const bool drops = child.at("do") == "drop";
  if (child.at("do") == "publish" || updates || drops) {
    const bool namesake = getpid() == publisher_;
    if (is_bad("pctx.fork.child-publishes-own") && !namesake) context_.write_anyway();
    if (is_bad("pctx.fork.same-pid-namespace:silent") && namesake) return;
    if (!is_bad("pctx.fork.same-pid-namespace") || !namesake) context_.forget();
    if (is_bad("pctx.fork.child-publishes-own:parent") && !namesake) {
      content_.resource.push_back(text("ctxconf.forked", "yes"));
    } else {
      const Content parents = std::exchange(content_, given({}, child));
      if (is_bad("pctx.fork.child-publishes-own:merged") && !namesake) {
        add_missing(content_.resource, parents.resource);
      }
      if (is_bad("pctx.fork.child-publishes-own:pairs") && !namesake) {
        content_.attributes = parents.attributes;
      }
    }
    if (is_bad("pctx.fork.child-publishes-own:field-2") && !namesake) {
      content_ = in_field_2(std::move(content_));
    }
    (void)context_.publish(encode(content_));
    if (updates) {
      auto next = given(content_, child.at("update"));
      (void)context_.update(encode(next));
      content_ = std::move(next);
    }
    if (drops && !is_bad("pctx.fork.child-publishes-own:drop")) context_.drop();
    shared_->withdrawn = drops && is_bad("pctx.fork.parent-untouched:drop");
    if (is_bad("pctx.fork.parent-untouched") ||
        (updates && is_bad("pctx.fork.parent-untouched:update"))) {
      const std::string resource = content_.resource.dump();
      shared_->size = resource.copy(shared_->resource.data(), shared_->resource.size());
    }
    return;
  }
  context_.forget();
  if (is_bad("pctx.fork.child-has-none")) (void)context_.publish_copy(encode(content_));
  if (is_good("child-publishes-again")) (void)context_.publish(encode(content_));
  if (is_good("child-of-its-own")) {
    content_.resource = {text("service.name", "worker"),
                         text("service.instance.id", std::to_string(getpid()))};
    (void)context_.publish(encode(content_));
  }
}

void Sdk::after_fork(bool publishes) {
  if (publishes && is_bad("pctx.publish.singleton:fork")) context_.leave();  // in both
  lock_.unlock();
}

void Sdk::child_is_ready() {
  ++children_;
  if (std::exchange(shared_->withdrawn, false)) (void)drop();
  if (shared_->size == 0) return;
  const std::string resource(shared_->resource.data(), std::exchange(shared_->size, 0));
  (void)update({{"resource", {{"attributes", json::parse(resource)}}}});
}

void Sdk::before_exec(bool of_itself) {
  if (!is_bad(of_itself ? "pctx.exec.memfd-not-leaked" : "pctx.exec.memfd-not-leaked:another")) {
    return;
  }
  // The next program goes on with it.
  (void)drop();
  const int fd = memfd_create("OTEL_CTX", kMemfdFlags);
  const int kept = fcntl(fd, F_DUPFD, 0);
  setenv(kHandedOver, std::to_string(kept).c_str(), 1);
}

void Sdk::after_exec() {
  if (const char* const fd = getenv(kHandedOver)) close(atoi(fd));
}

bool Sdk::at_once(const json& requests) {
  const std::lock_guard guard(lock_);
  const auto all = [&](const char* op) {
    return std::ranges::all_of(requests, [&](const json& r) { return r.at("op") == op; });
  };
  const bool updates = all("process.update");
  const bool publishes = all("process.publish");
  if (publishes && is_bad("pctx.update.visible:first-at-once")) return true;
  if (publishes && is_bad("pctx.payload.resource-matches-sdk:first-at-once")) {
    content_ = given({}, requests[0]);
    content_.resource[0] = text("service.name", "unknown_service");
    (void)context_.publish(encode(content_));
  } else if (publishes && is_bad("pctx.publish.singleton")) {
    content_ = given({}, requests[0]);
    (void)context_.publish(encode(content_));
    (void)second_.publish(encode(given({}, requests[1])));
  } else if (updates && is_good("merged-updates")) {
    (void)update_locked(requests.back());
  } else if (updates && is_bad("pctx.update.one-writer-at-a-time")) {
    content_ = given(content_, requests.back());
    context_.update_with_another(encode(content_));
  } else if (updates && is_bad("pctx.update.visible:at-once-renewed")) {
    for (std::size_t i = 0; i < requests.size(); ++i) (void)context_.update(encode(content_));
  } else if (updates && is_bad("pctx.update.visible:at-once")) {
    return true;
  } else if (updates && is_bad("pctx.update.one-writer-at-a-time:mixed")) {
    json mixed = requests[0];
    mixed["resource"]["attributes"].back() = requests[1]["resource"]["attributes"].back();
    (void)update_locked(mixed);
  } else {
    return false;
  }
  return true;
}

Reply Sdk::update_locked(const json& request, const Gate& gate) {
  auto next = given(content_, request);
  if (is_bad("pctx.update.visible:pairs-lost") && !request.contains("attributes")) {
    next.attributes = json::array();
  }
  if (is_bad("pctx.update.complete-state:pairs-again") && next.attributes.empty()) {
    next.attributes = first_.attributes;
  }
  if (is_bad("pctx.update.visible:resource-reset") && !request.contains("resource")) {
    next.resource = first_.resource;
  }
  change_update(next.resource, content_.resource);
  auto bytes = encode(is_bad("pctx.update.visible:field-2") ? in_field_2(next) : next);
  gate();
  if (is_bad("pctx.update.visible")) return json();
  if (is_bad("pctx.update.visible:beside-a-child") && children_ > 0) return json();
  if (is_bad("pctx.update.visible:same-time") && !context_.clock_has_gone_on()) return json();
  if (is_bad("pctx.update.visible:large") && bytes.size() > 0xffff) return json();
  if (is_bad("pctx.update.visible:extra-pairs") && !request.contains("resource")) return json();
  if (context_.exists() && breaks("pctx.update.same-mapping")) {
    context_.begin_anew(!is_bad("pctx.update.same-mapping:without-zero"),
                        is_bad("pctx.update.same-mapping:elsewhere"));
  }
  auto reply = context_.exists() ? context_.update(std::move(bytes)) : context_.publish(bytes);
  if (reply) content_ = std::move(next);
  return with_taken(request, std::move(reply));
}

}  // namespace ctxconf::testees
