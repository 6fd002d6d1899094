#include "writer_ref/otel_ctx.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "writer_ref/linux_kernel.h"
#include "writer_ref/publisher.h"

namespace ctxconf::writer {
namespace {

#if defined(__x86_64__) || defined(__i386__)
constexpr std::size_t kLargestPage = 4096;
#else
constexpr std::size_t kLargestPage = 65536;
#endif

// Twice the page size, so that it contains one whole page of its own. In .bss, because memory
// mapped for this would remain when a publication fails.
alignas(State) std::byte arena[2 * kLargestPage];
static_assert(sizeof(State) <= 4096);

struct Home {
  State& state;
  bool own_page;
};

Home home() {
  const auto page = LinuxKernel().page_size();
  const auto start = reinterpret_cast<std::uintptr_t>(arena);
  const bool own_page = page <= kLargestPage;
  const std::size_t skip = own_page ? (page - start % page) % page : 0;
  return {*reinterpret_cast<State*>(arena + skip), own_page};
}

void forked() {
  State& state = home().state;
  state.owner = 0;
  wipe(state);
}

// Calls `action` with the publisher of this process and keeps errno.
template <class Action>
auto with_publisher(Action action) {
  const int kept = errno;
  LinuxKernel kernel;
  const Home h = home();
  Publisher<LinuxKernel> publisher(kernel, h.state, h.own_page, forked);
  auto result = action(publisher);
  errno = kept;
  return result;
}

int report(const otel_ctx_error& result, otel_ctx_error* error) {
  if (error != nullptr) *error = result;
  return result.status;
}

std::span<const std::byte> bytes(const void* payload, size_t size) {
  return {static_cast<const std::byte*>(payload), size};
}

const char* meaning(int status) {
  switch (status) {
    case OTEL_CTX_OK:
      return "ok";
    case OTEL_CTX_BAD_PAYLOAD:
      return "bad payload";
    case OTEL_CTX_NOT_PUBLISHED:
      return "not published";
    case OTEL_CTX_NO_NAME:
      return "no reader could find the context";
    case OTEL_CTX_SYSTEM:
      return "system call failed";
    default:
      return "unknown status";
  }
}

}  // namespace
}  // namespace ctxconf::writer

extern "C" {

int otel_ctx_publish(const void* payload, size_t size, otel_ctx_error* error) {
  using namespace ctxconf::writer;
  return report(with_publisher([&](auto& p) { return p.publish(bytes(payload, size)); }), error);
}

int otel_ctx_update(const void* payload, size_t size, otel_ctx_error* error) {
  using namespace ctxconf::writer;
  return report(with_publisher([&](auto& p) { return p.update(bytes(payload, size)); }), error);
}

int otel_ctx_drop(otel_ctx_error* error) {
  using namespace ctxconf::writer;
  return report(with_publisher([](auto& p) { return p.drop(); }), error);
}

void otel_ctx_get_info(otel_ctx_info* info) {
  using namespace ctxconf::writer;
  *info = with_publisher([](auto& p) { return p.info(); });
}

size_t otel_ctx_describe(const otel_ctx_error* error, char* text, size_t size) {
  using ctxconf::writer::meaning;
  const int kept = errno;
  int length = 0;
  if (error->status == OTEL_CTX_OK) {
    length = snprintf(text, size, "ok");
  } else if (error->sys_errno == 0) {
    length = snprintf(text, size, "%s: %s", meaning(error->status), error->step);
  } else {
    length = snprintf(text, size, "%s: %s: %s", meaning(error->status), error->step,
                      strerror(error->sys_errno));
  }
  errno = kept;
  return length < 0 ? 0 : static_cast<size_t>(length);
}

}  // extern "C"
