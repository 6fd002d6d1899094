#include "conformance/testees/process/usual.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <functional>

#include "conformance/testees/writer/program.h"

namespace ctxconf::testees {

std::vector<Bytes> usual_resource() {
  return {pair("service.name", text("ctxconf-testee")),
          pair("service.version", text("1.0.0")),
          pair("service.instance.id", text("5a2f3c1e-9d47-4f1b-8c60-2b7f0e6d9a13")),
          pair("telemetry.sdk.language", text("cpp")),
          pair("telemetry.sdk.name", text("ctxconf")),
          pair("telemetry.sdk.version", text("0.1.0"))};
}
std::vector<Bytes> usual_attributes() { return {pair("ctxconf.example", text("field two"))}; }
Bytes usual_message() { return message(resource(usual_resource()), usual_attributes()); }

std::vector<Bytes> with(std::vector<Bytes> pairs, const std::vector<Bytes>& more) {
  pairs.insert(pairs.end(), more.begin(), more.end());
  return pairs;
}
Bytes message_with(const std::vector<Bytes>& more_in_resource) {
  return message(resource(with(usual_resource(), more_in_resource)), usual_attributes());
}
Bytes numbered_message(int number) {
  return message_with({pair("ctxconf.update", integer(number))});
}
Buffer numbered_payload(int number) { return on_heap(numbered_message(number)); }

Bytes large_message(const Bytes& last_value) {
  auto pairs = usual_resource();
  for (int i = 0; i < 40; ++i) {
    pairs.push_back(pair("ctxconf.large" + std::to_string(i), text(Bytes(1U << 16U, 'x'))));
  }
  pairs.push_back(pair("ctxconf.last", text(last_value)));
  return message(resource(pairs), usual_attributes());
}

Region publish_inline(const Bytes& bytes, std::size_t gap, const Plan& plan) {
  const Region r = make_region(plan);
  publish_in(r, copy_to(r.at + kHeaderSize + gap, bytes));
  return r;
}

Region publish_version(std::uint32_t version) {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  set_fields(r, address_of(payload.at), payload.size, version);
  set_timestamp(r, next_timestamp());
  set_name(r);
  return r;
}

void hold(const Region& r) {
  announce(r);
  wait_for_the_end();
}
void name_and_hold(const Region& r) {
  set_name(r);
  hold(r);
}
void publish_and_hold(const Bytes& bytes, const Plan& plan) { hold(publish(bytes, plan)); }

void withdraw(const Region& r) {
  set_timestamp(r, 0);
  munmap(r.at, r.size);
}

void in_a_process_with_our_memory(std::function<void()> work) {
  alignas(16) static char stack[64 * 1024];
  const auto run = [](void* w) {
    (*static_cast<std::function<void()>*>(w))();
    return 0;
  };
  const pid_t child = clone(run, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &work);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) die("clone");
}

void needs_32_bits() {
  if (sizeof(void*) == 4) return;
  errno = EINVAL;
  cannot_be_shown("this is a 64-bit build");
}

}  // namespace ctxconf::testees
