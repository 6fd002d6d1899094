// Templates of nlohmann's library that most sources use. Builds with clang precompile this for
// those sources and compile the templates once, optimised: without optimisation, a third of the
// time that ctxconf runs goes to JSON.
#pragma once

#include <nlohmann/json.hpp>

// The names in `detail` are not part of the library's interface.
#if NLOHMANN_JSON_VERSION_MAJOR == 3 && NLOHMANN_JSON_VERSION_MINOR == 11
#define CTXCONF_JSON_READER(KEYWORD, ITERATOR)                                     \
  KEYWORD template class nlohmann::detail::lexer<                                  \
      nlohmann::json, nlohmann::detail::iterator_input_adapter<ITERATOR>>;         \
  KEYWORD template class nlohmann::detail::lexer<                                  \
      nlohmann::ordered_json, nlohmann::detail::iterator_input_adapter<ITERATOR>>; \
  KEYWORD template class nlohmann::detail::parser<                                 \
      nlohmann::json, nlohmann::detail::iterator_input_adapter<ITERATOR>>;         \
  KEYWORD template class nlohmann::detail::parser<                                 \
      nlohmann::ordered_json, nlohmann::detail::iterator_input_adapter<ITERATOR>>
#define CTXCONF_JSON_DETAILS(KEYWORD)                                                   \
  KEYWORD template class nlohmann::detail::serializer<nlohmann::json>;                  \
  KEYWORD template class nlohmann::detail::serializer<nlohmann::ordered_json>;          \
  KEYWORD template class nlohmann::detail::json_sax_dom_parser<nlohmann::json>;         \
  KEYWORD template class nlohmann::detail::json_sax_dom_parser<nlohmann::ordered_json>; \
  CTXCONF_JSON_READER(KEYWORD, const char*);                                            \
  CTXCONF_JSON_READER(KEYWORD, std::string::const_iterator);
#else
#define CTXCONF_JSON_DETAILS(KEYWORD)
#endif

#define CTXCONF_JSON_INSTANCES(KEYWORD)                       \
  CTXCONF_JSON_DETAILS(KEYWORD)                               \
  KEYWORD template class std::vector<nlohmann::json>;         \
  KEYWORD template class std::vector<nlohmann::ordered_json>; \
  KEYWORD template class nlohmann::basic_json<>;              \
  KEYWORD template class nlohmann::basic_json<nlohmann::ordered_map>

CTXCONF_JSON_INSTANCES(extern);
