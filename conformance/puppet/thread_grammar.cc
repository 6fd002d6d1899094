#include "conformance/puppet/thread_grammar.h"

#include <algorithm>
#include <array>
#include <utility>

#include "conformance/puppet/kernel_numbers.h"
#include "conformance/puppet/steps.h"
#include "sys/native_arch.h"

namespace ctxconf::conformance::puppet {
namespace {

constexpr std::uint64_t kValidAt = 24;
constexpr std::uint64_t kSizeAt = 26;
// What comes before the variable in a thread of the scripted process.
constexpr std::uint64_t kBlockRoom = 232;
constexpr std::size_t kStoredAtOnce = 32;
constexpr std::uint64_t kNowhere = 0x10000;
constexpr std::uint64_t kSignal = 12;  // SIGUSR2

constexpr auto kThreadProductions = std::to_array<Production>({
    {"slot.unused", "tctx.tls.dynsym-exported"},
    {"reference.tlsdesc", "tctx.refdata.schema-version-value"},
    {"reference.tls", "open.tctx.schema-version-now"},
    {"reference.other", "open.tctx.unknown-schema"},
    {"reference.later", "tctx.refdata.schema-version-present"},
    {"reference.no-map", "tctx.refdata.key-map-present"},
    {"reference.empty-map", "tctx.refdata.key-map-present"},
    {"reference.full-map", "open.tctx.map-capacity"},
    {"reference.map-first", "tctx.refdata.in-attributes"},
    {"reference.before-others", "tctx.refdata.in-attributes"},
    {"reference.names-added", "tctx.keymap.never-removed"},
    {"thread.first", "tctx.tls.per-thread"},
    {"thread.other", "tctx.tls.per-thread"},
    {"thread.own-block", "tctx.tls.per-thread"},
    {"thread.again", "tctx.tls.fresh-thread-null"},
    {"thread.running", "open.tctx.must-be-stopped"},
    {"switch.pointer", "tctx.attach.one-switch"},
    {"switch.null-first", "open.tctx.gap-during-switch"},
    {"switch.release", "tctx.attach.complete-before-visible"},
    {"switch.exchange", "tctx.attach.complete-before-visible"},
    {"switch.fence", "tctx.attach.compiler-fences"},
    {"switch.valid-byte", "tctx.attach.fixed-record-pointer"},
    {"switch.first-of-fixed", "tctx.attach.fixed-record-pointer"},
    {"switch.at-once", "tctx.attach.no-change-while-visible"},
    {"record.ids", "tctx.record.ids-both-or-neither"},
    {"record.no-ids", "open.tctx.attributes-without-trace"},
    {"record.flags", "open.tctx.trace-flag-bits"},
    {"record.no-attributes", "tctx.record.attrs-data-size"},
    {"record.attributes", "tctx.attrs.entry-format"},
    {"record.full", "tctx.record.recommended-size"},
    {"record.key-again", "tctx.attrs.last-occurrence-wins"},
    {"record.empty-value", "open.tctx.empty-value"},
    {"record.long-value", "tctx.attrs.entry-format"},
    {"record.last-index", "tctx.attrs.key-in-map"},
    {"record.spare", "tctx.record.layout"},
    {"record.leftovers", "tctx.record.layout"},
    {"memory.mapping", "tctx.record.contiguous"},
    {"memory.border", "tctx.record.contiguous"},
    {"memory.two-mappings", "tctx.record.contiguous"},
    {"memory.heap", "tctx.record.contiguous"},
    {"memory.stack", "tctx.record.contiguous"},
    {"memory.file", "tctx.record.contiguous"},
    {"memory.block", "tctx.record.contiguous"},
    {"memory.read-only", "tctx.record.contiguous"},
    {"memory.shared", "tctx.record.contiguous"},
    {"memory.even", "open.tctx.alignment"},
    {"write.fields", "tctx.attach.complete-before-visible"},
    {"write.parts", "tctx.attach.complete-before-visible"},
    {"write.whole", "tctx.attach.complete-before-visible"},
    {"write.copied", "tctx.attach.complete-before-visible"},
    {"write.by-kernel", "tctx.attach.complete-before-visible"},
    {"write.by-another", "open.tctx.moving-records"},
    {"attach.nested", "tctx.attach.restores-outer"},
    {"attach.reused", "tctx.attach.record-outlives-slot"},
    {"retired.kept", "tctx.attach.record-outlives-slot"},
    {"retired.cleared", "tctx.attach.one-switch"},
    {"retired.overwritten", "tctx.attach.record-outlives-slot"},
    {"retired.unmapped", "tctx.attach.record-outlives-slot"},
    {"attach.in-handler", "open.tctx.handlers"},
    {"detach.null", "tctx.detach.hidden"},
    {"detach.outer", "tctx.attach.restores-outer"},
    {"detach.valid-byte", "tctx.detach.hidden"},
    {"append", "tctx.append.size-last"},
    {"append.after-shrink", "open.tctx.append-after-shrink"},
    {"shrink", "tctx.shrink.size-before-tail"},
    {"moved", "open.tctx.moving-records"},
    {"shared", "open.tctx.moving-records"},
    {"exit.null", "tctx.exit.no-dangling"},
    {"exit.valid-byte", "tctx.exit.no-dangling"},
    {"exit.attached", "open.tctx.thread-exit"},
    {"exit.freed-later", "tctx.exit.no-dangling"},
    {"fork.attached", "open.tctx.fork"},
    {"fork.attached-shared", "open.tctx.fork"},
    {"fork.by-thread", "open.tctx.fork"},
    {"fork.child-attaches", "tctx.fork.inherited-record"},
    {"fork.child-detaches", "open.tctx.fork"},
    {"withdrawn.attached", "open.tctx.switching-off"},
});

// Steps that make a record.
constexpr std::array kParts = {"trace id", "span id",   "flags", "size",
                               "entries",  "leftovers", "whole", "valid"};

Bytes part_of(const Bytes& bytes, std::size_t from, std::size_t to) {
  return {bytes.begin() + static_cast<std::ptrdiff_t>(from),
          bytes.begin() + static_cast<std::ptrdiff_t>(to)};
}

std::uint64_t number_of(std::byte b) { return std::to_integer<std::uint64_t>(b); }

// The ends of entries, beginning with the end of the fixed part.
std::vector<std::size_t> borders_of(const Bytes& record) {
  std::vector<std::size_t> out = {kRecordHead};
  while (record.size() - out.back() >= 2) {
    out.push_back(out.back() + 2 + number_of(record[out.back() + 1]));
  }
  return out;
}

void set_size(Bytes& record, std::size_t end) {
  record.resize(end);
  const std::size_t size = end - kRecordHead;
  record[kSizeAt] = static_cast<std::byte>(size & 0xffU);
  record[kSizeAt + 1] = static_cast<std::byte>(size >> 8U);
}

}  // namespace

std::span<const Production> thread_productions() { return kThreadProductions; }

void ThreadScript::by(const Thread& thread) {
  if (thread.actor) {
    builder_.by(*thread.actor);
  } else if (state_.child) {
    builder_.by(*state_.child);
  } else {
    builder_.by_first();
  }
}

// Between two steps a look finds nothing wrong, and the program may end there.
void ThreadScript::step(Rng& rng) {
  if (rng.one_in(12)) builder_.look();
  if (!state_.child) may_end_();
}

ThreadScript::Thread* ThreadScript::thread_of(const ThreadAct& act) {
  const auto it = state_.threads.find(act.thread);
  return it == state_.threads.end() ? nullptr : &it->second;
}

ThreadScript::Thread& ThreadScript::start(const ThreadAct& act) {
  if (Thread* known = thread_of(act)) return *known;
  Thread& t = state_.threads[act.thread];
  t.in_place = act.in_place;
  use(act.thread == 0 ? "thread.first" : "thread.other");
  if (state_.ended.contains(act.thread)) use("thread.again");
  if (act.thread == 0) return t;
  builder_.by_first();
  t.actor = builder_.thread();
  const auto set_pointer = sys::thread_pointer_call();
  if (!set_pointer || !act.own_block) return t;
  use("thread.own-block");
  t.block = builder_.map_anonymous(kPage, kReadWrite, kPrivate);
  builder_.store(*t.block + kPage / 2, 8, *t.block + kPage / 2);
  builder_.by(*t.actor);
  builder_.syscall(set_pointer->nr, {set_pointer->code, *t.block + kPage / 2});
  return t;
}

ThreadScript::Held ThreadScript::get_memory(const ThreadAct& act, const Thread& t,
                                            std::uint64_t need, Rng& rng) {
  Held out;
  out.memory = act.memory;
  const std::uint64_t block = t.block ? kPage / 4 : kBlockRoom;
  const auto in_block = [](const Held& held) { return held.memory == Memory::kBlock; };
  if (out.memory == Memory::kBlock &&
      (need > block || std::ranges::any_of(t.held, in_block) ||
       (t.retired && in_block(*t.retired)) || (state_.child && t.actor))) {
    out.memory = Memory::kMapping;
  }
  if (out.memory == Memory::kReadOnly && t.in_place) out.memory = Memory::kMapping;
  out.room = need;
  out.buffer_size = whole_pages(need) + kPage;
  const std::uint64_t pages = whole_pages(need);
  const std::uint64_t over = 2 + 2 * rng.below(std::min<std::uint64_t>(need, 600) / 2 - 1);
  std::uint64_t at = 2 * rng.below((out.buffer_size - need) / 2);
  switch (out.memory) {
    case Memory::kMapping:
    case Memory::kReadOnly:
      out.buffer = builder_.map_anonymous(out.buffer_size, kReadWrite, kPrivate);
      use(out.memory == Memory::kMapping ? "memory.mapping" : "memory.read-only");
      break;
    case Memory::kShared:
      use("memory.shared");
      out.buffer = builder_.map_anonymous(out.buffer_size, kReadWrite, kShared);
      break;
    case Memory::kBorder:
      use("memory.border");
      out.buffer = builder_.map_anonymous(out.buffer_size, kReadWrite, kPrivate);
      at = kPage - over;
      break;
    case Memory::kTwoMappings: {
      use("memory.two-mappings");
      out.buffer = builder_.map_anonymous(out.buffer_size, kReadWrite, kPrivate);
      const Value fd = builder_.memfd("second", kCloexec);
      builder_.truncate(fd, pages);
      Map half;
      half.size = pages;
      half.prot = kReadWrite;
      half.flags = kPrivate | kFixed;
      half.fd = fd;
      half.at = *out.buffer + kPage;
      builder_.map(half);
      builder_.close(fd);
      at = kPage - over;
      break;
    }
    case Memory::kStack:
      use("memory.stack");
      out.buffer =
          builder_.map_anonymous(out.buffer_size, kReadWrite, kPrivate | kGrowsDown | kStackFlag);
      break;
    case Memory::kFile: {
      use("memory.file");
      const Value fd = builder_.memfd("data", kCloexec);
      builder_.truncate(fd, out.buffer_size);
      out.buffer = builder_.map_file(fd, out.buffer_size, kReadWrite, kPrivate);
      builder_.close(fd);
      break;
    }
    case Memory::kHeap: {
      use("memory.heap");
      const Value now = builder_.syscall(kBrk, {Value(0)});
      builder_.syscall(kBrk, {now + (need + 16) / 16 * 16});
      out.at = now;
      return out;
    }
    case Memory::kBlock:
      use("memory.block");
      by(t);
      out.at = t.block ? *t.block + 64 : builder_.slot_address() - (kBlockRoom + 8);
      return out;
  }
  if (at % 4 != 0) use("memory.even");
  if (act.record.flaw == Flaw::kOddAddress) ++at;
  if (act.record.flaw == Flaw::kBeyondMapping) {
    // Another mapping may follow.
    builder_.protect(*out.buffer + (out.buffer_size - kPage), kPage, 0);
    at = 0;
  }
  out.at = *out.buffer + at;
  return out;
}

void ThreadScript::note_content(const ThreadAct& act, const Bytes& bytes) {
  use(act.record.ids ? "record.ids" : "record.no-ids");
  if (number_of(bytes[25]) != 0) use("record.flags");
  const bool entries = bytes.size() > kRecordHead;
  use(entries ? "record.attributes" : "record.no-attributes");
  if (bytes.size() == kLargestRecord) use("record.full");
  if (act.record.flaw != Flaw::kNone || !entries) return;
  std::set<std::uint64_t> keys;
  const auto borders = borders_of(bytes);
  for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
    const auto key = number_of(bytes[borders[i]]);
    if (!keys.insert(key).second) use("record.key-again");
    if (key + 1 == state_.names) use("record.last-index");
    if (borders[i + 1] - borders[i] == 2) use("record.empty-value");
    if (borders[i + 1] - borders[i] > 129) use("record.long-value");
  }
}

// Uses one store if there is one of that width.
void ThreadScript::store_piece(const Held& held, const Bytes& bytes, std::size_t from,
                               std::size_t to, CopyHow how) {
  if (from >= to) return;
  const Bytes piece = part_of(bytes, from, to);
  const bool one =
      how != CopyHow::kBytes && piece.size() <= 16 && (piece.size() & (piece.size() - 1)) == 0;
  if (one) {
    builder_.store_bytes(held.at + from, piece);
  } else {
    builder_.write(held.at + from, piece, how);
  }
}

// Steps that make a record that is not valid yet; "valid" comes after all of them.
void ThreadScript::write_record(Steps& steps, const ThreadAct& act, const Held& held,
                                const Bytes& bytes) {
  const auto piece = [this, &act, &held, &bytes, &steps](const char* name, std::size_t from,
                                                         std::size_t to) {
    steps.add(name, [this, &act, &held, &bytes, from, to] {
      store_piece(held, bytes, from, to, act.how);
    });
  };
  const bool by_kernel = act.how == CopyHow::kPipe || act.how == CopyHow::kProcessVm;
  if (by_kernel) use("write.by-kernel");
  const auto writing = act.record.flaw == Flaw::kRootSpanId ? Writing::kWhole : act.writing;
  switch (writing) {
    case Writing::kFields:
      use("write.fields");
      piece("trace id", 0, 16);
      piece("span id", 16, kValidAt);
      piece("flags", kValidAt + 1, kSizeAt);
      piece("size", kSizeAt, kRecordHead);
      piece("entries", kRecordHead, bytes.size());
      break;
    case Writing::kParts:
      use("write.parts");
      piece("trace id", 0, kValidAt);
      piece("flags", kValidAt + 1, kRecordHead);
      piece("entries", kRecordHead, bytes.size());
      break;
    case Writing::kWhole:
    case Writing::kCopied:
      use(writing == Writing::kWhole ? "write.whole" : "write.copied");
      steps.add("whole", [this, &act, &held, &bytes, writing] {
        Bytes hidden = bytes;
        if (act.record.flaw != Flaw::kRootSpanId) hidden[kValidAt] = std::byte{0};
        if (writing == Writing::kWhole) {
          builder_.write(held.at, hidden, act.how);
          return;
        }
        if (!state_.scratch) {
          state_.scratch = builder_.map_anonymous(kPage, kReadWrite, kPrivate);
        }
        builder_.write(*state_.scratch, hidden);
        builder_.copy(held.at, *state_.scratch, hidden.size(), act.how);
      });
      break;
  }
  if (act.spare > 0) use("record.spare");
  if (act.spare > 0 && act.leftovers) {
    use("record.leftovers");
    steps.add("leftovers", [this, &act, &held, &bytes] {
      const std::uint64_t left = held.room - bytes.size();
      builder_.fill(held.at + bytes.size(), std::min(left, act.spare), bytes_of("\x02\x07left"),
                    CopyHow::kVector);
    });
  }
  if (act.record.flaw == Flaw::kRootSpanId) return;
  steps.add("valid", [this, &held, &bytes] {
    builder_.store(held.at + kValidAt, 1, number_of(bytes[kValidAt]));
  });
  for (const char* first : {"trace id", "span id", "flags", "size", "entries", "whole"}) {
    if (act.in_place || first == std::string_view("whole")) steps.order(first, "valid");
  }
}

void ThreadScript::retire(const ThreadAct& act, Thread& t, Held held) {
  using Retiring = ThreadAct::Retiring;
  if (held.shared) return;
  by(t);
  if (act.retiring == Retiring::kUnmapped && held.buffer) {
    use("retired.unmapped");
    builder_.unmap(*held.buffer, held.buffer_size);
    return;
  }
  if (held.memory == Memory::kReadOnly) return;
  switch (act.retiring) {
    case Retiring::kCleared:
      use("retired.cleared");
      builder_.store(held.at + kValidAt, 1, 0);
      break;
    case Retiring::kOverwritten:
      use("retired.overwritten");
      builder_.fill(held.at, held.bytes.size(), bytes_of("\xcc"), CopyHow::kRepBytes);
      break;
    default:
      use("retired.kept");
  }
  t.retired = std::move(held);
}

// The attributes are elsewhere, and their address is where they should begin.
void ThreadScript::put_aside(const Held& held, const Bytes& bytes) {
  const Bytes entries = part_of(bytes, kRecordHead, bytes.size());
  const Value aside = builder_.map_anonymous(kPage, kReadWrite, kPrivate) + 192;
  builder_.write(aside, entries);
  builder_.fill(held.at + kRecordHead, entries.size());
  builder_.store(held.at + kRecordHead, 8, aside);
}

void ThreadScript::store_slot(const ThreadAct& act, const Thread& t, const Held& held) {
  by(t);
  if (held.memory == Memory::kReadOnly && held.buffer) {
    builder_.protect(*held.buffer, held.buffer_size, kRead);
  }
  if (act.fence) {
    use("switch.fence");
    builder_.fence(*act.fence);
  }
  if (act.order == StoreOrder::kRelease) use("switch.release");
  if (act.order == StoreOrder::kSeqCst) use("switch.exchange");
  builder_.slot(act.record.flaw == Flaw::kNowhere ? Value(kNowhere) : held.at, act.order);
}

// The slot points to it: what happens to the previous record.
void ThreadScript::hold(const ThreadAct& act, Thread& t, Held held) {
  if (act.nested && !t.held.empty()) {
    use("attach.nested");
  } else if (!t.held.empty()) {
    Held before = std::move(t.held.back());
    t.held.pop_back();
    retire(act, t, std::move(before));
  }
  if (act.record.flaw == Flaw::kReleased) {
    by(t);
    builder_.unmap(*held.buffer, held.buffer_size);
    held.shared = true;  // nobody changes it any more
  }
  t.shrunk = false;
  t.held.push_back(std::move(held));
}

void ThreadScript::attach(const ThreadAct& a, Thread& t, Rng& rng) {
  ThreadAct act = a;
  act.in_place = false;
  Bytes bytes = encode(act.record, state_.names);
  note_content(act, bytes);
  use("switch.pointer");
  const std::uint64_t need = bytes.size() + act.spare;
  const bool again =
      act.reused && act.record.flaw == Flaw::kNone && t.retired && t.retired->room >= bytes.size();
  Held held;
  Steps steps;
  if (again) {
    use("attach.reused");
    held = *std::exchange(t.retired, std::nullopt);
    held.inherited = false;
  } else {
    steps.add("place", [&] { held = get_memory(act, t, need, rng); });
  }
  write_record(steps, act, held, bytes);
  if (act.record.flaw == Flaw::kPointer) {
    steps.add("pointer", [&] { put_aside(held, bytes); });
  }
  if (act.null_first) {
    use("switch.null-first");
    steps.add("null", [&] {
      by(t);
      builder_.slot(0);
    });
  }
  steps.add("slot", [&] { store_slot(act, t, held); });
  for (const char* part : kParts) {
    steps.order("place", part);
    steps.order(part, "pointer");
    steps.order(part, "slot");
  }
  for (const char* first : {"place", "pointer", "null"}) steps.order(first, "slot");
  const bool by_another = act.by_another && t.actor && !state_.child;
  if (by_another) use("write.by-another");
  steps.make(rng, [&] {
    if (by_another && rng.one_in(2)) {
      builder_.by_first();
    } else {
      by(t);
    }
    step(rng);
  });
  if (state_.child) use("fork.child-attaches");
  attached_ = true;
  held.bytes = std::move(bytes);
  hold(act, t, std::move(held));
}

// A record that stays at its address, and is hidden by its valid byte while it changes.
void ThreadScript::refill(const ThreadAct& a, Thread& t, Rng& rng) {
  ThreadAct act = a;
  act.in_place = true;
  act.spare = 0;
  Bytes bytes = encode(act.record, state_.names);
  note_content(act, bytes);
  if (act.turned) return change_ids(act, t, bytes);
  const bool first = t.held.empty();
  if (act.at_once && act.record.flaw == Flaw::kNone && !first && !t.hidden) {
    return switch_at_once(t, bytes);
  }
  Steps steps;
  Held held;
  if (first) {
    use("switch.first-of-fixed");
    steps.add("place", [&] {
      held = get_memory(act, t, std::max<std::uint64_t>(kLargestRecord, bytes.size()), rng);
    });
    steps.add("slot", [&] {
      by(t);
      builder_.slot(held.at, act.order);
    });
    steps.order("place", "slot");
  } else {
    use("switch.valid-byte");
    held = t.held.back();
    if (!t.hidden) {
      steps.add("place", [&] { builder_.store(held.at + kValidAt, 1, 0, act.order); });
    }
  }
  write_record(steps, act, held, bytes);
  if (act.fence) {
    use("switch.fence");
    steps.add("fence", [&] { builder_.fence(*act.fence); });
    steps.order("fence", "valid");
  }
  for (const char* part : kParts) steps.order("place", part);
  steps.make(rng, [&] {
    by(t);
    step(rng);
  });
  if (state_.child) use("fork.child-attaches");
  attached_ = true;
  t.hidden = false;
  t.shrunk = false;
  held.bytes = std::move(bytes);
  if (first) {
    t.held.push_back(std::move(held));
  } else {
    t.held.back() = std::move(held);
  }
}

void ThreadScript::change_ids(const ThreadAct& act, Thread& t, const Bytes& bytes) {
  if (t.held.empty() || t.hidden) return;
  Held& held = t.held.back();
  by(t);
  store_piece(held, bytes, 0, 16, act.how);
  builder_.look();
  store_piece(held, bytes, 16, kValidAt, act.how);
  std::copy_n(bytes.begin(), kValidAt, held.bytes.begin());
}

// Whenever the thread is stopped, it has the old ids or the new ones.
void ThreadScript::switch_at_once(Thread& t, const Bytes& bytes) {
  use("switch.at-once");
  Held& held = t.held.back();
  std::copy_n(bytes.begin(), kSizeAt, held.bytes.begin());
  Bytes beginning = held.bytes;
  beginning.resize(kStoredAtOnce);
  by(t);
  builder_.store_bytes(held.at, beginning);
}

void ThreadScript::detach(const ThreadAct& act, Thread& t) {
  if (t.held.empty() || t.hidden) return;
  by(t);
  if (state_.child) use("fork.child-detaches");
  if (t.in_place) {
    use("detach.valid-byte");
    builder_.store(t.held.back().at + kValidAt, 1, 0, act.order);
    t.hidden = true;
    return;
  }
  Held before = std::move(t.held.back());
  t.held.pop_back();
  use(t.held.empty() ? "detach.null" : "detach.outer");
  builder_.slot(t.held.empty() ? Value(0) : t.held.back().at, act.order);
  retire(act, t, std::move(before));
}

void ThreadScript::attach_in_handler(const ThreadAct& act, Thread& t, Rng& rng) {
  use("attach.in-handler");
  builder_.by_first();
  builder_.handle(kSignal, SignalAction::kServe);
  builder_.signal(kSignal, *t.actor);
  ThreadAct inner = act;
  inner.nested = true;
  attach(inner, t, rng);
  builder_.look();
  detach(inner, t);
  by(t);
  builder_.return_from_handler();
}

void ThreadScript::fork(const ThreadAct& act, const Thread& t) {
  if (state_.child || !t.actor) return;
  use("fork.by-thread");
  by(t);
  const Value pid = builder_.fork();
  builder_.by(pid);
  if (act.null_first) builder_.slot(0);
  builder_.look();
  builder_.exit(0);
  by(t);
  builder_.wait(pid);
}

void ThreadScript::run(const Thread& t) {
  use("thread.running");
  by(t);
  builder_.later();
  builder_.spin(100'000);
  builder_.look();
  builder_.join();
}

// The entry is after the end until the size covers it.
void ThreadScript::append(const ThreadAct& act, Thread& t, Rng& rng) {
  if (!state_.usable || state_.names == 0 || t.held.empty() || t.hidden) return;
  Held& held = t.held.back();
  if (held.shared || held.memory == Memory::kReadOnly || act.record.attributes.empty()) return;
  RecordPlan added;
  added.attributes = {act.record.attributes.front()};
  const Bytes one = encode(added, state_.names);
  const std::size_t from = held.bytes.size();
  const std::size_t to = from + one.size() - kRecordHead;
  if (to > std::min(held.room, kLargestRecord)) return;
  use(t.shrunk ? "append.after-shrink" : "append");
  Bytes next = held.bytes;
  next.insert(next.end(), one.begin() + kRecordHead, one.end());
  set_size(next, to);
  const auto store_size = [&] {
    builder_.store_bytes(held.at + kSizeAt, part_of(next, kSizeAt, kRecordHead), act.order);
  };
  by(t);
  if (act.turned) {
    store_size();
    builder_.look();
  }
  builder_.write(held.at + from, part_of(next, from, to), act.how);
  step(rng);
  if (act.fence) builder_.fence(*act.fence);
  if (!act.turned) store_size();
  held.bytes = std::move(next);
}

void ThreadScript::shrink(Thread& t, Rng& rng) {
  if (t.held.empty() || t.hidden) return;
  Held& held = t.held.back();
  if (held.shared || held.memory == Memory::kReadOnly) return;
  const auto borders = borders_of(held.bytes);
  if (borders.size() < 2) return;
  use("shrink");
  const std::size_t old_end = held.bytes.size();
  const std::size_t end = borders[rng.below(borders.size() - 1)];
  set_size(held.bytes, end);
  by(t);
  builder_.store_bytes(held.at + kSizeAt, part_of(held.bytes, kSizeAt, kRecordHead));
  step(rng);
  if (rng.one_in(2)) builder_.fill(held.at + end, old_end - end, bytes_of("\xdd"));
  t.shrunk = true;
}

void ThreadScript::give(const ThreadAct& act, Thread& from) {
  if (state_.child || from.in_place || from.held.empty() || act.other == act.thread) return;
  if (from.held.back().memory == Memory::kBlock) return;
  ThreadAct there = act;
  there.thread = act.other;
  there.in_place = false;
  Thread& to = start(there);
  if (to.in_place) return;
  Held held = from.held.back();
  if (act.kind == ThreadAct::Kind::kShare) {
    use("shared");
    held.shared = from.held.back().shared = true;
  } else {
    use("moved");
    from.held.pop_back();
    by(from);
    builder_.slot(from.held.empty() ? Value(0) : from.held.back().at);
  }
  by(to);
  builder_.slot(held.at, act.order);
  hold(act, to, std::move(held));
}

void ThreadScript::end(const ThreadAct& act, Thread& t) {
  if (t.actor) leave(act, t);
}

void ThreadScript::first_ends(const ThreadAct& act) {
  if (const auto first = state_.threads.find(0); first != state_.threads.end()) {
    ThreadAct its = act;
    its.thread = 0;
    return leave(its, first->second);
  }
  builder_.by_first();
  builder_.exit_thread();
}

void ThreadScript::leave(const ThreadAct& act, Thread& t) {
  by(t);
  const bool attached = !t.held.empty() && !t.hidden;
  const bool stays = attached && act.ending == ThreadAct::Ending::kAttached;
  if (stays) {
    use("exit.attached");
  } else if (attached && t.in_place) {
    use("exit.valid-byte");
    builder_.store(t.held.back().at + kValidAt, 1, 0);
  } else if (attached) {
    use("exit.null");
    builder_.slot(0);
  }
  builder_.exit_thread();
  state_.ended.insert(act.thread);
  if (!t.actor) {
    state_.threads.erase(act.thread);
    return;
  }
  builder_.by_first();
  if (stays && act.retiring == ThreadAct::Retiring::kUnmapped && t.held.back().buffer &&
      !t.held.back().shared) {
    use("exit.freed-later");
    builder_.unmap(*t.held.back().buffer, t.held.back().buffer_size);
  }
  if (t.block) builder_.unmap(*t.block, kPage);
  state_.threads.erase(act.thread);
}

void ThreadScript::act(const ThreadAct& act, Rng& rng) {
  using ThreadKind = ThreadAct::Kind;
  if (!slot_) return;
  if (state_.child && act.thread != 0) return;
  if (!state_.child) may_end_();
  if (act.kind == ThreadKind::kAttach) {
    if (!state_.usable) return;
    Thread& t = start(act);
    if (t.in_place) {
      refill(act, t, rng);
    } else if (act.in_handler && t.actor) {
      attach_in_handler(act, t, rng);
    } else {
      attach(act, t, rng);
    }
    return;
  }
  Thread* t = thread_of(act);
  if (t == nullptr) return;
  switch (act.kind) {
    case ThreadKind::kDetach:
      return detach(act, *t);
    case ThreadKind::kAppend:
      return append(act, *t, rng);
    case ThreadKind::kShrink:
      return shrink(*t, rng);
    case ThreadKind::kHandOver:
    case ThreadKind::kShare:
      return give(act, *t);
    case ThreadKind::kFork:
      return fork(act, *t);
    case ThreadKind::kRun:
      return run(*t);
    default:
      return end(act, *t);
  }
}

void ThreadScript::published(const std::optional<Reference>& reference) {
  if (!reference) {
    state_.usable = false;
    state_.silent = true;
    return;
  }
  if (state_.silent) use("reference.later");
  state_.silent = false;
  const Reference& r = *reference;
  use(!r.used ? "reference.other" : r.schema == "tls_v1" ? "reference.tls" : "reference.tlsdesc");
  if (r.map_first) use("reference.map-first");
  if (r.before_others) use("reference.before-others");
  const std::size_t names = r.keys ? r.keys->size() : 0;
  if (!r.keys) use("reference.no-map");
  if (r.keys && names == 0) use("reference.empty-map");
  if (names == 256) use("reference.full-map");
  if (state_.names > 0 && names > state_.names) use("reference.names-added");
  state_.usable = r.used;
  state_.names = names;
}

bool ThreadScript::is_attached() const {
  return std::ranges::any_of(
      state_.threads, [](const auto& t) { return !t.second.held.empty() && !t.second.hidden; });
}

std::vector<ThreadScript::Visible> ThreadScript::visible() const {
  std::vector<Visible> out;
  if (!state_.usable) return out;
  for (const auto& [number, thread] : state_.threads) {
    if (thread.held.empty() || thread.hidden || thread.held.back().inherited) continue;
    out.push_back({.thread = number == 0 && state_.child ? state_.child : thread.actor,
                   .record = thread.held.back().at,
                   .bytes = thread.held.back().bytes});
  }
  return out;
}

void ThreadScript::withdrawn() {
  if (is_attached()) use("withdrawn.attached");
  state_.usable = false;
}

// In shared memory they still belong to the parent.
void ThreadScript::leave_to_parent(Thread& t) {
  const auto is_shared = [](const Held& held) { return held.memory == Memory::kShared; };
  if (t.retired && is_shared(*t.retired)) t.retired.reset();
  if (std::ranges::none_of(t.held, is_shared)) return;
  use("fork.attached-shared");
  for (Held& held : t.held) held.shared = held.shared || is_shared(held);
  if (t.hidden) t.held.clear();
  t.in_place = t.hidden = false;
}

// In a child only the thread that forked continues.
void ThreadScript::begin_child(const Value& pid) {
  parents_.push_back(state_);
  State next;
  next.child = pid;
  if (const auto first = state_.threads.find(0); first != state_.threads.end()) {
    if (!first->second.held.empty() && !first->second.hidden) use("fork.attached");
    Thread& forked = next.threads.emplace(*first).first->second;
    for (Held& held : forked.held) held.inherited = true;
    leave_to_parent(forked);
  }
  state_ = std::move(next);
}

void ThreadScript::end_child() {
  state_ = std::move(parents_.back());
  parents_.pop_back();
}

}  // namespace ctxconf::conformance::puppet
