// The one thing in which an adapter is wrong or unusual, and the tables of such things.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string_view>

namespace ctxconf::testees {

// `mutants.py` reads the tables, so a line of them begins with the name.
struct Choice {
  // The name of a legal adapter, or the requirement that a broken one breaks. A second way to break
  // it has a suffix.
  const char* name;
  const char* about;  // what it does
};

// The choices of one topic.
struct Choices {
  std::span<const Choice> bad;
  std::span<const Choice> good;
};

inline std::string_view chosen_bad;
inline std::string_view chosen_good;

// These are cheap enough to be asked in the middle of an update that is single-stepped.
inline bool is_bad(std::string_view name) { return chosen_bad == name; }
inline bool is_good(std::string_view name) { return chosen_good == name; }
inline bool breaks(std::string_view requirement) {
  return chosen_bad.starts_with(requirement) &&
         (chosen_bad.size() == requirement.size() || chosen_bad[requirement.size()] == ':');
}

// False: there is no such choice.
inline bool choose(std::string_view option, std::string_view name,
                   std::initializer_list<Choices> topics) {
  const auto has = [&](std::span<const Choice> choices) {
    return std::ranges::any_of(choices, [&](const Choice& c) { return name == c.name; });
  };
  const bool bad = option == "--bad";
  if (!bad && option != "--good") return false;
  if (std::ranges::none_of(topics, [&](const Choices& t) { return has(bad ? t.bad : t.good); })) {
    return false;
  }
  (bad ? chosen_bad : chosen_good) = name;
  return true;
}

}  // namespace ctxconf::testees
