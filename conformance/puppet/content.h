// Messages that a legal program publishes.
#pragma once

#include "conformance/puppet/grammar.h"

namespace ctxconf::conformance::puppet {

Content legal_content(Rng& rng);

}  // namespace ctxconf::conformance::puppet
