// The slot of the thread that asks. Each program says where it comes from.
#pragma once

namespace ctxconf::testees {

void** slot();

}  // namespace ctxconf::testees
