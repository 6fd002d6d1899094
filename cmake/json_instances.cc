#include "cmake/json_instances.h"

CTXCONF_JSON_INSTANCES();
