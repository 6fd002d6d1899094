#include "conformance/rules/conventions.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "conformance/text/ascii.h"

namespace ctxconf::conformance {
namespace {

constexpr auto kNames = std::to_array<std::string_view>({
    "browser.brands",
    "browser.language",
    "browser.mobile",
    "browser.platform",
    "cloud.account.id",
    "cloud.availability_zone",
    "cloud.platform",
    "cloud.provider",
    "cloud.region",
    "cloud.resource_id",
    "container.command",
    "container.command_args",
    "container.command_line",
    "container.id",
    "container.image.id",
    "container.image.name",
    "container.image.repo_digests",
    "container.image.tag",
    "container.image.tags",
    "container.name",
    "container.runtime",
    "deployment.environment",
    "deployment.environment.name",
    "deployment.id",
    "deployment.name",
    "device.id",
    "device.manufacturer",
    "device.model.identifier",
    "device.model.name",
    "faas.instance",
    "faas.max_memory",
    "faas.name",
    "faas.version",
    "host.arch",
    "host.id",
    "host.image.id",
    "host.image.name",
    "host.image.version",
    "host.ip",
    "host.mac",
    "host.name",
    "host.type",
    "k8s.cluster.name",
    "k8s.cluster.uid",
    "k8s.container.name",
    "k8s.container.restart_count",
    "k8s.cronjob.name",
    "k8s.cronjob.uid",
    "k8s.daemonset.name",
    "k8s.daemonset.uid",
    "k8s.deployment.name",
    "k8s.deployment.uid",
    "k8s.job.name",
    "k8s.job.uid",
    "k8s.namespace.name",
    "k8s.node.name",
    "k8s.node.uid",
    "k8s.pod.name",
    "k8s.pod.uid",
    "k8s.replicaset.name",
    "k8s.replicaset.uid",
    "k8s.statefulset.name",
    "k8s.statefulset.uid",
    "os.build_id",
    "os.description",
    "os.name",
    "os.type",
    "os.version",
    "process.command",
    "process.command_args",
    "process.command_line",
    "process.creation.time",
    "process.executable.build_id.gnu",
    "process.executable.name",
    "process.executable.path",
    "process.owner",
    "process.parent_pid",
    "process.pid",
    "process.runtime.description",
    "process.runtime.name",
    "process.runtime.version",
    "process.title",
    "process.vpid",
    "process.working_directory",
    "service.criticality",
    "service.instance.id",
    "service.name",
    "service.namespace",
    "service.peer.name",
    "service.peer.namespace",
    "service.version",
    "telemetry.distro.name",
    "telemetry.distro.version",
    "telemetry.sdk.language",
    "telemetry.sdk.name",
    "telemetry.sdk.version",
    "threadlocal.attribute_key_map",
    "threadlocal.schema_version",
    "vcs.ref.head.name",
    "vcs.ref.head.revision",
    "vcs.repository.name",
    "vcs.repository.url.full",
    "webengine.description",
    "webengine.name",
    "webengine.version",
});

constexpr std::size_t kShortest = 10;  // shorter keys do not resemble others
constexpr std::size_t kLongest = 64;

std::string folded(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c == '.' || c == '_' || c == '-' || c == ' ') continue;
    out += lower_case(c);
  }
  return out;
}

// One letter too many, too few, other, or two neighbours exchanged.
bool one_slip(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  if (b.size() - a.size() > 1) return false;
  const auto at = static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  const auto rest = [](std::string_view s, std::size_t n) {
    return s.substr(std::min(n, s.size()));
  };
  if (a.size() < b.size()) return rest(a, at) == rest(b, at + 1);
  if (at == a.size()) return false;
  if (rest(a, at + 1) == rest(b, at + 1)) return true;
  return at + 1 < a.size() && a[at] == b[at + 1] && a[at + 1] == b[at] &&
         rest(a, at + 2) == rest(b, at + 2);
}

}  // namespace

bool is_same_name(std::string_view a, std::string_view b) {
  return std::max(a.size(), b.size()) <= kLongest && folded(a) == folded(b);
}

std::string_view conventional_name_near(std::string_view key) {
  if (key.size() > kLongest || std::ranges::find(kNames, key) != kNames.end()) return {};
  const std::string fold = folded(key);
  for (const auto name : kNames) {
    const std::string other = folded(name);
    if (fold == other) return name;
  }
  // A slip of the pen keeps the separators; an own name of a user rarely does.
  for (const auto name : kNames) {
    if (name.size() >= kShortest && std::ranges::count(key, '.') == std::ranges::count(name, '.') &&
        one_slip(key, name)) {
      return name;
    }
  }
  return {};
}

}  // namespace ctxconf::conformance
