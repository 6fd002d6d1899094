#include "conformance/report/operation_figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <vector>

#include "conformance/report/escape.h"
#include "conformance/report/wording.h"
#include "conformance/text/counts.h"

namespace ctxconf::conformance {
namespace {

using Kind = PictureStep::Kind;

constexpr int kWidth = 820;
constexpr int kFirstLane = 32;
constexpr int kLaneStep = 17;
constexpr int kTextAt = kFirstLane + static_cast<int>(kLanes.size()) * kLaneStep;
constexpr int kHeadRow = 20;
constexpr int kStateRow = 28;
constexpr int kStepRow = 42;
constexpr int kStepRowWithoutLocation = 28;
constexpr int kLineRow = 17;
constexpr std::size_t kMostChanges = kLanes.size();
constexpr std::size_t kLongestLine = 96;  // that fits next to the lanes

int lane_x(Lane lane) { return kFirstLane + static_cast<int>(lane) * kLaneStep; }

std::string_view name_of(Lane lane) {
  switch (lane) {
    case Lane::kSignature:
      return "signature";
    case Lane::kVersion:
      return "version";
    case Lane::kSize:
      return "payload size";
    case Lane::kTimestamp:
      return "timestamp";
    case Lane::kPointer:
      return "payload pointer";
    case Lane::kPayload:
      return "payload bytes";
    case Lane::kCalls:
      return "system call";
  }
  return "";
}

std::string_view meaning_of(Lane lane) {
  switch (lane) {
    case Lane::kSignature:
      return "says that this is a context";
    case Lane::kVersion:
      return "of the layout";
    case Lane::kSize:
      return "how long the payload is";
    case Lane::kTimestamp:
      return "0: do not read";
    case Lane::kPointer:
      return "where the payload is";
    case Lane::kPayload:
      return "the attributes themselves";
    case Lane::kCalls:
      return "what the kernel is asked for";
  }
  return "";
}

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::kStore:
      return "store";
    case Kind::kPayload:
      return "payload changed";
    case Kind::kCall:
      return "system call";
    case Kind::kFork:
      return "new process";
    case Kind::kMissing:
      return "missing";
  }
  return "";
}

std::string finds_text(Finds finds, bool is_update) {
  switch (finds) {
    case Finds::kUnknown:
      return "the header was not seen";
    case Finds::kNoMemory:
      return "a reader finds no context: it has no memory yet";
    case Finds::kNoTimestamp:
      return "a reader finds no context: the timestamp is 0";
    case Finds::kNoContext:
      return "a reader finds no context: no valid header";
    case Finds::kOld:
      return "a reader finds the old context";
    case Finds::kNew:
      return is_update ? "a reader finds the new context" : "a reader finds the context";
    case Finds::kNeither:
      return is_update ? "a reader may mix the old with the new" : "a reader finds it unfinished";
  }
  return "";
}

std::string change_text(const PictureStep::Change& change) {
  if (change.was == change.is) return fmt::format("{} again", quote(change.is, 40));
  return fmt::format("{} → {}", quote(change.was, 40), quote(change.is, 40));
}

bool is_again(const PictureStep& step) {
  return std::ranges::all_of(step.changes, [](const auto& c) { return c.was == c.is; });
}

std::span<const PictureStep::Change> shown_changes(const PictureStep& step) {
  return std::span(step.changes).first(std::min(step.changes.size(), kMostChanges));
}

// One line per change.
std::vector<std::string> lines_of(const PictureStep& step) {
  std::vector<std::string> out;
  for (const auto& change : shown_changes(step)) {
    const bool hash = change.lane == Lane::kPayload;
    out.push_back(fmt::format(
        "{} <tspan class=\"small\">{}{}</tspan>", change_text(change), name_of(change.lane),
        hash ? " by their hash" + (step.text.empty() ? "" : ", " + quote(step.text, 60)) : ""));
  }
  if (out.empty()) out.push_back(quote(step.text, 100));
  return out;
}

// The offsets at which characters begin.
std::vector<std::size_t> characters_of(std::string_view text) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0U) != 0x80U) out.push_back(i);
  }
  return out;
}

// "ctx.cc:118 in publish(…)"
std::string without_parameters(const std::string& location) {
  const std::size_t close = location.rfind(')');
  std::size_t depth = 0;
  for (std::size_t i = close == location.npos ? 0 : close + 1; i > 0; --i) {
    const char c = location[i - 1];
    if (c == ')') ++depth;
    if (c == '(' && depth-- == 1) return location.substr(0, i) + "…" + location.substr(close);
  }
  return location;
}

// A location in one line that fits. The least useful parts go first: parameters, then the middle.
std::string cut(const std::string& location) {
  std::string line = inert(location, kTextLimit);
  if (characters_of(line).size() > kLongestLine) line = without_parameters(line);
  if (const auto begins = characters_of(line); begins.size() > kLongestLine) {
    constexpr std::size_t kHalf = kLongestLine / 2;
    line = line.substr(0, begins[kHalf]) + "…" + line.substr(begins[begins.size() - kHalf + 1]);
  }
  return escape(line, Escape::kXmlAttribute, std::string_view::npos);
}

// The thread of all steps, or 0 if there are several.
std::int32_t only_thread(const OperationPicture& picture) {
  std::int32_t out = 0;
  for (const PictureStep& step : picture.steps) {
    if (step.tid == 0) continue;
    if (out != 0 && step.tid != out) return 0;
    out = step.tid;
  }
  return out;
}

class Figure {
 public:
  Figure(const OperationPicture& picture, std::string_view wrong)
      : picture_(picture), wrong_(wrong), thread_(only_thread(picture)) {}

  std::string write() {
    const std::string_view name = picture_.is_update ? "update" : "publication";
    out_ += fmt::format(
        "<figure class=\"operation\">\n<figcaption><strong>{}</strong> of the header at "
        "{:#x}{}, one row for each step of the program, from top to bottom</figcaption>\n",
        picture_.is_update ? "Update" : "Publication", picture_.header,
        thread_ == 0 ? "" : fmt::format(" by thread {}", thread_));
    explain();
    const std::string drawing = draw();
    out_ += fmt::format(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Picture of the {0}\">"
        "<svg class=\"operation\" width=\"{1}\" height=\"{2}\" viewBox=\"0 0 {1} {2}\" "
        "role=\"img\" "
        "aria-label=\"{3}\"><desc>{4} The table below has the same in "
        "words.</desc>\n{5}</svg></div>\n",
        name, kWidth, y_ + 4, label(), window_text(), drawing);
    legend();
    table();
    out_ += "</figure>\n";
    return std::move(out_);
  }

 private:
  std::string label() const {
    std::string out = fmt::format("{} in {}", picture_.is_update ? "Update" : "Publication",
                                  counted(picture_.steps.size(), "step"));
    if (const auto bad = wrong_step()) out += fmt::format(", step {} is wrong", *bad);
    return out;
  }

  std::uint64_t number(std::size_t index) const { return picture_.steps_before + index + 1; }

  std::optional<std::uint64_t> wrong_step() const {
    const auto bad = std::ranges::find(picture_.steps, true, &PictureStep::wrong);
    if (bad == picture_.steps.end()) return std::nullopt;
    return number(static_cast<std::size_t>(bad - picture_.steps.begin()));
  }

  // The first sequence of steps after which a reader finds `finds`.
  std::string between(Finds finds) const {
    const auto& steps = picture_.steps;
    const auto first = std::ranges::find(steps, finds, &PictureStep::finds);
    if (first == steps.end()) return {};
    const auto last =
        std::find_if(first, steps.end(), [&](const PictureStep& s) { return s.finds != finds; });
    const std::uint64_t from = number(static_cast<std::size_t>(first - steps.begin()));
    if (last == steps.end()) return fmt::format("From step {} on", from);
    return fmt::format("Between steps {} and {}", from,
                       number(static_cast<std::size_t>(last - steps.begin())));
  }

  std::string window_text() const {
    std::string out;
    if (picture_.before == Finds::kNoTimestamp) {
      const auto end = std::ranges::find_if(
          picture_.steps, [](const PictureStep& s) { return s.finds != Finds::kNoTimestamp; });
      if (end != picture_.steps.end()) {
        out = fmt::format("Until step {} the timestamp is 0, and a reader finds no context.",
                          number(static_cast<std::size_t>(end - picture_.steps.begin())));
      }
    } else if (const auto zero = between(Finds::kNoTimestamp); !zero.empty()) {
      out = fmt::format("{} the timestamp is 0: a reader finds no context and tries again later.",
                        zero);
    }
    if (const auto mixed = between(Finds::kNeither); !mixed.empty()) {
      out += fmt::format("{}{} {}.", out.empty() ? "" : " ", mixed,
                         finds_text(Finds::kNeither, picture_.is_update));
    }
    return out;
  }

  void explain() {
    if (const auto bad = wrong_step()) {
      const PictureStep& step = picture_.steps[*bad - 1 - picture_.steps_before];
      out_ += fmt::format("<p class=\"wrong\"><strong>✗ Step {} is {}</strong>{}{}{}</p>\n", *bad,
                          step.kind == Kind::kMissing ? "missing" : "wrong",
                          wrong_.empty() ? "" : ": ", quote(wrong_, 600),
                          step.at.empty() ? "" : fmt::format(" <code>{}</code>", cut(step.at)));
    }
    out_ += fmt::format(
        "<p>Another process, a reader, may copy the header and then the payload that it points at "
        "between any two of these steps. {}</p>\n",
        window_text());
  }

  void legend() {
    out_ += "<p class=\"legend\"><span class=\"store\">●</span> a field gets another value";
    const auto any = [&](auto&& is) { return std::ranges::any_of(picture_.steps, is); };
    if (any([](const PictureStep& s) { return s.kind == Kind::kStore && is_again(s); })) {
      out_ += " · <span class=\"store\">○</span> the same value is stored again";
    }
    if (any([](const PictureStep& s) { return s.kind == Kind::kCall; })) {
      out_ += " · <span class=\"call\">■</span> a system call";
    }
    if (any([](const PictureStep& s) { return s.kind == Kind::kFork; })) {
      out_ += " · <span class=\"fork\">◆</span> a new process";
    }
    out_ += " · <span class=\"shaded\">shaded</span>: the timestamp is 0";
    if (wrong_step()) out_ += " · <span class=\"wrong\">✗ what is wrong</span>";
    out_ += "</p>\n";
  }

  // The result is hostile.
  std::string where(const PictureStep& step) const {
    if (step.tid == 0 || thread_ != 0) return step.at;
    return fmt::format("{}{}thread {}", step.at, step.at.empty() ? "" : ", ", step.tid);
  }

  // ---- the drawing

  std::string draw() {
    heads();
    state(picture_.before);
    gap(picture_.steps_before, "earlier steps");
    for (std::size_t i = 0; i < picture_.steps.size(); ++i) {
      const PictureStep& s = picture_.steps[i];
      step(s, number(i));
      if (s.finds != now_) state(s.finds);
    }
    gap(picture_.steps_behind, "later steps");
    close_state();
    std::string lines;
    for (const Lane lane : kLanes) {
      const int head = (static_cast<int>(lane) + 1) * kHeadRow - 6;
      lines +=
          fmt::format("<line class=\"lane\" x1=\"{0}\" y1=\"{1}\" x2=\"{0}\" y2=\"{2}\"></line>",
                      lane_x(lane), head, y_);
    }
    return bands_ + lines + "\n" + marks_;
  }

  void heads() {
    for (const Lane lane : kLanes) {
      y_ += kHeadRow;
      marks_ += fmt::format(
          "<text class=\"head\" x=\"{}\" y=\"{}\">{} <tspan class=\"muted\">{}</tspan></text>",
          lane_x(lane) + 7, y_ - 5, name_of(lane), meaning_of(lane));
    }
    marks_ += "\n";
    y_ += 6;
  }

  void close_state() {
    const std::string_view css = now_ == Finds::kNoTimestamp ? "zero"
                                 : now_ == Finds::kNeither   ? "mixed"
                                                             : "";
    if (!css.empty() && y_ > since_) {
      bands_ +=
          fmt::format("<rect class=\"{}\" x=\"0\" y=\"{}\" width=\"{}\" height=\"{}\"></rect>", css,
                      since_, kWidth, y_ - since_);
    }
    since_ = y_;
  }

  // What a reader finds from this step on.
  void state(Finds finds) {
    if (y_ > since_) close_state();
    now_ = finds;
    since_ = y_;
    marks_ += fmt::format("<text class=\"state{}\" x=\"{}\" y=\"{}\">{}</text>\n",
                          finds == Finds::kNeither ? " wrong" : "", kTextAt, y_ + 19,
                          finds_text(finds, picture_.is_update));
    y_ += kStateRow;
  }

  void gap(std::uint64_t steps, std::string_view what) {
    if (steps == 0) return;
    marks_ += fmt::format("<text class=\"muted\" x=\"{}\" y=\"{}\">… {} {} are left out</text>\n",
                          kTextAt, y_ + 17, steps, what);
    y_ += kStateRow;
  }

  void step(const PictureStep& s, std::uint64_t number) {
    const int middle = y_ + 16;
    const auto lines = lines_of(s);
    const std::string_view bad = s.wrong ? " wrong" : "";
    marks_ += fmt::format("<text class=\"number{}\" x=\"20\" y=\"{}\">{}</text>", bad, middle + 4,
                          number);
    symbols(s, middle);
    int at = middle + 4;
    for (const std::string& line : lines) {
      marks_ +=
          fmt::format("<text class=\"mono{}\" x=\"{}\" y=\"{}\">{}</text>", bad, kTextAt, at, line);
      at += kLineRow;
    }
    const std::string location = cut(where(s));
    if (!location.empty()) {
      marks_ += fmt::format("<text class=\"small\" x=\"{}\" y=\"{}\">{}</text>", kTextAt, at - 1,
                            location);
    }
    marks_ += "\n";
    y_ += (location.empty() ? kStepRowWithoutLocation : kStepRow) +
          static_cast<int>(lines.size() - 1) * kLineRow;
  }

  void symbols(const PictureStep& s, int y) {
    const auto shown = shown_changes(s);
    if (shown.size() > 1) {
      const auto [first, last] = std::ranges::minmax_element(shown, {}, &PictureStep::Change::lane);
      marks_ += fmt::format(
          "<line class=\"joined{0}\" x1=\"{1}\" y1=\"{3}\" x2=\"{2}\" y2=\"{3}\">"
          "</line>",
          s.wrong ? " wrong" : "", lane_x(first->lane), lane_x(last->lane), y);
    }
    for (const auto& change : shown) {
      const int x = lane_x(change.lane);
      if (s.wrong) {
        cross(x, y);
      } else {
        marks_ += fmt::format("<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"6\"></circle>",
                              change.was == change.is ? "again" : "store", x, y);
      }
    }
    if (!shown.empty()) return;
    const int x = lane_x(Lane::kCalls);
    if (s.wrong) {
      cross(x, y);
    } else if (s.kind == Kind::kFork) {
      marks_ += fmt::format("<path class=\"fork\" d=\"M{} {}l7 7l-7 7l-7 -7z\"></path>", x, y - 7);
    } else {
      marks_ +=
          fmt::format("<rect class=\"call\" x=\"{}\" y=\"{}\" width=\"11\" height=\"11\"></rect>",
                      x - 5, y - 5);
    }
  }

  void cross(int x, int y) {
    marks_ += fmt::format(
        "<circle class=\"wrong\" cx=\"{}\" cy=\"{}\" r=\"9\"></circle><path class=\"cross\" "
        "d=\"M{} {}l8 "
        "8m0 -8l-8 8\"></path>",
        x, y, x - 4, y - 4);
  }

  // ---- the same in words

  void table() {
    out_ += "<details class=\"steps\">\n<summary>The same as a table</summary>\n";
    out_ +=
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Steps as a table\">"
        "<table>\n<thead><tr><th scope=\"col\">step</th><th scope=\"col\">what</th><th "
        "scope=\"col\">change</th><th scope=\"col\">where</th><th scope=\"col\">what a reader "
        "finds after it</th></tr></thead>\n<tbody>\n";
    for (std::size_t i = 0; i < picture_.steps.size(); ++i) {
      const PictureStep& s = picture_.steps[i];
      std::string changes;
      for (const auto& change : shown_changes(s)) {
        changes += fmt::format("{}{} {}", changes.empty() ? "" : ", ", name_of(change.lane),
                               change_text(change));
      }
      if (changes.empty()) changes = quote(s.text, 100);
      out_ += fmt::format(
          "<tr><th scope=\"row\">{}{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
          number(i), s.wrong ? " <strong class=\"wrong\">✗ wrong</strong>" : "", kind_name(s.kind),
          changes, quote(where(s), 500), finds_text(s.finds, picture_.is_update));
    }
    out_ += "</tbody>\n</table></div>\n";
    const std::uint64_t left = picture_.steps_before + picture_.steps_behind;
    if (left > 0) out_ += fmt::format("<p>{} are left out</p>\n", counted(left, "step"));
    out_ += "</details>\n";
  }

  const OperationPicture& picture_;
  std::string_view wrong_;
  std::int32_t thread_ = 0;  // of all steps; 0: each step names its own
  std::string out_;
  std::string bands_;
  std::string marks_;
  int y_ = 0;
  int since_ = 0;
  Finds now_ = Finds::kUnknown;
};

}  // namespace

std::string operation_figure(const OperationPicture& picture, std::string_view wrong) {
  return Figure(picture, wrong).write();
}

}  // namespace ctxconf::conformance
