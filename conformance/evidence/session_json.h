// How sessions stand in a recording (timeline.h).
#pragma once

#include "conformance/evidence/session.h"
#include "conformance/text/json_text.h"

namespace ctxconf::conformance {

nlohmann::ordered_json json_of(const Session& s);
nlohmann::ordered_json json_of(const SkippedCheck& s);
Session session_from(const JsonReader& in);
SkippedCheck skipped_check_from(const JsonReader& in);

}  // namespace ctxconf::conformance
