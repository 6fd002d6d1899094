// How a reader finds the mapping: pctx.reader.name-* and what may stand in the way.
#include <string>
#include <utility>

#include "conformance/reader/publish.h"
#include "conformance/reader/scenes.h"

namespace ctxconf::conformance::reader {
namespace {

Scene memfd_unnamed() {
  const Message message = service("name-memfd");
  SceneBuilder s("name-memfd", "a memfd without a name of its mapping: /memfd:OTEL_CTX (deleted)");
  const Published p = publish(s.script(), message.encoded(), {.names = false});
  s.ask(about_process(p, {claim("pctx.reader.name-memfd", {accept(message.content())},
                                "a mapping named /memfd:OTEL_CTX (deleted) is not found")}));
  return std::move(s).scene();
}

}  // namespace

SceneGroup name_scenes() {
  SceneGroup out;
  out.name = "names";
  out.scenes.push_back(memfd_unnamed());
  return out;
}

}  // namespace ctxconf::conformance::reader
