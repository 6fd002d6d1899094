#include "conformance/puppet/grammar.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <iterator>

#include "conformance/puppet/content.h"
#include "conformance/puppet/kernel_numbers.h"
#include "conformance/puppet/steps.h"
#include "sys/native_arch.h"
#include "sys/processor.h"

namespace ctxconf::conformance::puppet {
namespace {

constexpr std::uint64_t kHeader = 32;
constexpr std::uint64_t kLocked = 0x2000;
constexpr std::uint64_t kPopulate = 0x8000;
constexpr std::uint64_t kSealing = 2;
constexpr std::uint64_t kMremapMayMove = 1;
constexpr std::uint64_t kNoFile = 7;  // RLIMIT_NOFILE

constexpr auto kProductions = std::to_array<Production>({
    {"memfd", "pctx.publish.memfd-first"},
    {"memfd.second-attempt", "pctx.publish.memfd-flags"},
    {"memfd.second-attempt-same", "pctx.publish.fallback-anon-exhausted"},
    {"anonymous", "pctx.publish.fallback-anon-exhausted"},
    {"size.truncate", "pctx.publish.memfd-sized"},
    {"size.truncate-twice", "pctx.publish.memfd-sized"},
    {"size.mapped-first", "pctx.publish.memfd-sized"},
    {"size.fallocate", "pctx.publish.memfd-sized"},
    {"map.one-page", "open.pctx.mapping-size"},
    {"map.several-pages", "open.pctx.mapping-size"},
    {"map.many-pages", "pctx.publish.footprint"},
    {"map.odd-length", "pctx.header.at-mapping-start"},
    {"map.populate", "pctx.publish.mapping-private"},
    {"map.locked", "pctx.publish.mapping-private"},
    {"advise.by-page", "pctx.fork.dontfork"},
    {"advise.more", "pctx.fork.dontfork"},
    {"place.inline", "pctx.header.payload-pointer"},
    {"place.inline-gap", "pctx.header.payload-pointer"},
    {"place.anonymous", "pctx.header.payload-pointer"},
    {"place.shared", "open.pctx.payload-memory"},
    {"place.other-file", "open.pctx.payload-memory"},
    {"place.read-only", "pctx.payload.readable"},
    {"place.two-mappings", "pctx.header.payload-pointer"},
    {"place.before", "pctx.header.payload-pointer"},
    {"place.after", "pctx.header.payload-pointer"},
    {"place.heap", "pctx.header.payload-pointer"},
    {"place.stack", "pctx.header.payload-pointer"},
    {"payload.spare", "pctx.header.payload-size"},
    {"payload.leftovers", "pctx.header.payload-size"},
    {"payload.by-kernel", "pctx.publish.payload-before-timestamp"},
    {"style.fields", "pctx.publish.timestamp-last"},
    {"style.words", "pctx.publish.timestamp-last"},
    {"style.halves", "pctx.publish.timestamp-last"},
    {"style.bytes", "pctx.publish.timestamp-last"},
    {"style.vectors", "pctx.publish.timestamp-last"},
    {"style.copied", "pctx.publish.timestamp-last"},
    {"style.twice", "pctx.publish.timestamp-last"},
    {"timestamp.zero-stored", "pctx.publish.timestamp-single-store"},
    {"timestamp.release", "pctx.publish.fence-before-timestamp"},
    {"timestamp.exchange", "pctx.publish.fence-before-timestamp"},
    {"timestamp.fence", "pctx.publish.fence-before-timestamp"},
    {"timestamp.plain", "pctx.publish.fence-before-timestamp"},
    {"timestamp.plus-one", "pctx.header.timestamp-clock"},
    {"name.early", "pctx.publish.name-after-timestamp"},
    {"name.twice", "pctx.publish.name-always"},
    {"name.header", "pctx.publish.name-whole-mapping"},
    {"name.page", "pctx.publish.name-arguments"},
    {"name.whole", "pctx.publish.name-arguments"},
    {"threads", "open.pctx.writer-races"},
    {"again.new-mapping", "pctx.publish.existing-becomes-update"},
    {"again.same-mapping", "open.pctx.how-to-drop"},
    {"update.new-buffer", "pctx.update.same-mapping"},
    {"update.in-place", "open.pctx.in-place-payload"},
    {"update.unchanged", "open.pctx.update-without-change"},
    {"update.spare", "pctx.update.fields-while-zero"},
    {"update.words", "pctx.update.fields-while-zero"},
    {"update.halves", "pctx.update.fields-while-zero"},
    {"update.bytes", "pctx.update.fields-while-zero"},
    {"update.same-signature", "pctx.update.signature-untouched"},
    {"update.same-size", "pctx.update.fields-while-zero"},
    {"update.name-early", "pctx.update.name-after-timestamp"},
    {"update.name-twice", "pctx.update.name-always"},
    {"update.old-unmapped", "pctx.update.old-payload-until-zero"},
    {"update.old-overwritten", "pctx.update.old-payload-until-zero"},
    {"update.by-others", "open.pctx.writer-races"},
    {"drop.unmapped", "open.pctx.how-to-drop"},
    {"drop.zero-unmapped", "open.pctx.how-to-drop"},
    {"drop.zero", "open.pctx.how-to-drop"},
    {"drop.zero-unnamed", "open.pctx.how-to-drop"},
    {"drop.cleared-unmapped", "open.pctx.how-to-drop"},
    {"drop.payload-released", "pctx.drop.no-dead-payload"},
    {"fork.idle", "pctx.fork.child-has-none"},
    {"fork.vfork", "open.pctx.shared-address-space"},
    {"fork.publishes", "pctx.fork.child-publishes-own"},
    {"exec", "open.pctx.exec"},
    {"exec.other-program", "open.pctx.exec"},
    {"exec.by-thread", "open.pctx.exec"},
    {"exec.attached", "tctx.tls.fresh-thread-null"},
    {"end.first-thread", "pctx.publish.available-while-idle"},
    {"end.exit", "pctx.publish.available-while-idle"},
    {"end.early", "open.pctx.retry-bound"},
    {"end.killed", "open.pctx.retry-bound"},
    {"noise.map", "pctx.publish.name-arguments"},
    {"noise.memfd", "pctx.publish.memfd-name"},
    {"noise.stores", "pctx.header.layout"},
    {"noise.name", "pctx.publish.name-arguments"},
    {"noise.clock", "pctx.header.timestamp-clock"},
    {"noise.advise", "pctx.fork.dontfork"},
    {"noise.look", "reading-protocol"},
    {"noise.thread", "open.pctx.writer-races"},
    {"noise.thread-without-block", "tctx.tls.per-thread"},
    {"noise.signal", "open.tctx.handlers"},
    {"noise.print", "pctx.publish.additive"},
});

// A published context as its writer knows it.
struct Context {
  Value base;
  std::uint64_t pages = 0;
  Value payload;
  std::uint64_t size = 0;
  std::uint64_t room = 0;  // bytes from `payload` on that belong to the writer
  bool writable = true;
  std::optional<Value> buffer;  // a mapping only for the payload
  std::uint64_t buffer_size = 0;
  std::optional<Value> file;  // the file of that mapping, while it is open
  Value stamp;
  Bytes message;
  bool unusual_encoding = false;
  std::vector<std::string> names;  // of the records of its threads
};

class Emission {
 public:
  explicit Emission(Plan& plan, std::vector<Moment>* moments)
      : plan_(plan),
        moments_(moments),
        builder_(plan.slot ? Program::kSlot : Program::kPlain),
        contexts_(builder_, plan.used, [this] { safe_cuts_.push_back(builder_.size()); }) {}

  Script run() {
    for (unsigned i = 0; i < plan_.threads; ++i) threads_.push_back(builder_.thread());
    contexts_.has_slot(plan_.slot);
    acts(plan_.acts);
    if (plan_.exits) {
      use("end.exit");
      builder_.exit(0);
    }
    if (plan_.slot && !contexts_.any_attached()) use("slot.unused");
    Script script = std::move(builder_).script();
    if (plan_.cut) cut(script);
    return script;
  }

 private:
  void use(std::string_view production) { plan_.used.insert(production); }

  void act_by(unsigned others) {
    const auto among = std::min<std::uint64_t>(others, threads_.size());
    const auto who = rng_.below(among + 1);
    if (who == 0) {
      home();
    } else {
      builder_.by(threads_[who - 1]);
    }
  }
  void home() {
    if (child_) {
      builder_.by(*child_);
    } else {
      builder_.by_first();
    }
  }

  // Memory that nothing else uses, to assemble what is stored later.
  Value scratch() {
    if (!scratch_) scratch_ = builder_.map_anonymous(2 * kPage, kReadWrite, kPrivate);
    return *scratch_ + 64;
  }

  void acts(const std::vector<Act>& all) {
    for (const auto& act : all) {
      home();
      rng_ = Rng(act.seed);
      safe_cuts_.push_back(builder_.size());
      switch (act.kind) {
        case Act::Kind::kPublish:
          publish(act.publication);
          break;
        case Act::Kind::kUpdate:
          update(act.update);
          break;
        case Act::Kind::kDrop:
          drop(act.drop);
          break;
        case Act::Kind::kNoise:
          noise(act.noise);
          break;
        case Act::Kind::kLook:
          builder_.look();
          break;
        case Act::Kind::kChild:
          child(act.child);
          break;
        case Act::Kind::kExec:
          exec(act);
          break;
        case Act::Kind::kFirstEnds:
          first_ends(act);
          break;
        case Act::Kind::kWrong:
          wrong(act.wrong);
          break;
        case Act::Kind::kThread:
          contexts_.act(act.thread, rng_);
          break;
      }
      note_moment();
    }
    home();
    builder_.look();
  }

  void note_moment() {
    if (moments_ == nullptr || first_ended_) return;
    home();
    Moment moment;
    moment.operations = builder_.size();
    moment.child = child_;
    moment.unmapped = !context_ && unmapped_;
    if (context_) {
      moment.message = context_->message;
      moment.unusual_encoding = context_->unusual_encoding;
      moment.header = context_->base;
      moment.payload = context_->payload;
      moment.names = context_->names;
      moment.records = contexts_.visible();
    }
    moments_->push_back(std::move(moment));
  }

  void exec(const Act& act) {
    use("exec");
    if (contexts_.is_attached()) use("exec.attached");
    if (act.other_program) {
      use("exec.other-program");
      slot_ = !slot_;
    }
    if (act.by_thread && !threads_.empty()) {
      use("exec.by-thread");
      builder_.by(threads_.front());
    }
    builder_.exec(slot_ ? "slot" : "plain");
    builder_.first_is(Value());
    firsts_.emplace_back(builder_.size(), Value());
    unmapped_ = false;  // what an exec ends is another matter
    contexts_.executed();
    contexts_.has_slot(slot_);
    threads_.clear();
    scratch_.reset();
    context_.reset();
    withdrawn_.reset();
  }

  void first_ends(const Act& act) {
    if (child_) return;
    use("end.first-thread");
    first_ended_ = true;
    const Value heir = builder_.thread();
    contexts_.first_ends(act.thread);
    builder_.first_is(heir);
    firsts_.emplace_back(builder_.size(), heir);
  }

  // Without the variable there are no requirements for it.
  std::optional<Reference> reference_of(const Content& content) const {
    return slot_ ? content.reference : std::nullopt;
  }
  static bool is_unusual(const Content& content) {
    return content.split_resource || content.varint_padding > 0;
  }
  std::vector<std::string> names_of(const Content& content) const {
    const auto reference = reference_of(content);
    return reference && reference->keys ? *reference->keys : std::vector<std::string>();
  }
  Bytes message_of(Content content) const {
    content.reference = reference_of(content);
    return encode(content);
  }

  // A value that the program cannot split without memory, stored piece by piece.
  void store_pieces(const Value& to, const Value& value, unsigned width, Style style) {
    if (style == Style::kBytes || style == Style::kHalves) {
      const Value cell = scratch();
      builder_.store(cell, 8, value);
      if (style == Style::kBytes || width < 8) {
        builder_.copy(to, cell, width, CopyHow::kBytes);
        return;
      }
      const Value low = builder_.load(cell, 4);
      const Value high = builder_.load(cell + 4, 4);
      const bool up = rng_.one_in(2);
      builder_.store(up ? to + 4 : to, 4, up ? high : low);
      builder_.store(up ? to : to + 4, 4, up ? low : high);
      return;
    }
    builder_.store(to, width, value);
  }

  void name_mapping(const Context& c, const Naming& naming) {
    const std::uint64_t size = naming.length == Length::kHeader ? kHeader
                               : naming.length == Length::kPage ? kPage
                                                                : c.pages * kPage;
    use(naming.length == Length::kHeader ? "name.header"
        : naming.length == Length::kPage ? "name.page"
                                         : "name.whole");
    builder_.may_fail();
    builder_.name((naming.payload ? c.payload : c.base) + naming.from * kPage,
                  naming.payload ? kPage : size - std::min(size, naming.from * kPage), naming.text);
  }

  void order_stamp(Steps& steps, const Stamp& stamp) {
    if (stamp.fence) use("timestamp.fence");
    use(stamp.order == StoreOrder::kRelease  ? "timestamp.release"
        : stamp.order == StoreOrder::kSeqCst ? "timestamp.exchange"
                                             : "timestamp.plain");
    steps.order("clock", "timestamp");
  }

  void read_clock(const Stamp& stamp, const Value& old) {
    const Value now = builder_.clock(stamp.clock);
    if (stamp.plus_one) {
      use("timestamp.plus-one");
      stamp_ = old + 1;
    } else if (stamp.repeated) {
      stamp_ = old;
    } else if (stamp.smaller) {
      stamp_ = old - 1000;
    } else if (stamp.constant) {
      stamp_ = *stamp.constant;
    } else {
      stamp_ = now;
    }
  }

  void store_stamp(const Value& base, const Stamp& stamp) {
    if (stamp.fence) builder_.fence(*stamp.fence);
    if (stamp.halves) {
      builder_.store(scratch(), 8, stamp_);
      const Value low = builder_.load(scratch(), 4);
      const Value high = builder_.load(scratch() + 4, 4);
      builder_.store(base + 16, 4, low);
      builder_.store(base + 20, 4, high);
    } else {
      builder_.store(base + 16, 8, stamp_, stamp.order);
    }
  }

  static std::uint64_t swapped(std::uint64_t value, unsigned width) {
    std::uint64_t out = 0;
    for (unsigned i = 0; i < width; ++i) out = out << 8U | ((value >> (8 * i)) & 0xffU);
    return out;
  }

  Value pointer_of(const Publication& p, const Context& c) {
    if (p.nothing) return 0;
    if (p.pointer) return *p.pointer;
    return c.payload + static_cast<std::uint64_t>(p.pointer_error);
  }

  void header_steps(Steps& steps, const Publication& p, Context& c) {
    const std::uint32_t size =
        p.nothing ? 0
        : p.size  ? *p.size
                  : static_cast<std::uint32_t>(static_cast<std::int64_t>(c.size) + p.size_error);
    const std::uint32_t version =
        p.foreign_order ? static_cast<std::uint32_t>(swapped(p.version, 4)) : p.version;
    const std::uint32_t written =
        p.foreign_order ? static_cast<std::uint32_t>(swapped(size, 4)) : size;
    const auto at = [&c, &p](unsigned offset) { return c.base + p.header_at + offset; };
    const Style style = p.style;
    const Bytes signature = bytes_of(p.signature);
    std::uint64_t word = 0;
    for (unsigned i = 0; i < 8; ++i)
      word |= std::to_integer<std::uint64_t>(signature[i]) << (8 * i);
    constexpr std::array kNames = {"style.fields",  "style.words",  "style.halves", "style.bytes",
                                   "style.vectors", "style.copied", "style.twice"};
    use(kNames.at(static_cast<std::size_t>(style)));

    if (style == Style::kVectors) {
      steps.add("signature", [this, at, signature, version, written] {
        Bytes all = signature;
        for (unsigned i = 0; i < 4; ++i) all.push_back(static_cast<std::byte>(version >> (8 * i)));
        for (unsigned i = 0; i < 4; ++i) all.push_back(static_cast<std::byte>(written >> (8 * i)));
        all.resize(kHeader);
        builder_.store_bytes(at(0), all);
      });
      steps.add("pointer", [this, at, &p, &c] { builder_.store(at(24), 8, pointer_of(p, c)); });
      steps.order("signature", "pointer");
      return;
    }
    if (style == Style::kCopied) {
      steps.add("signature", [this, at, word, version, written, &p, &c] {
        const Value from = scratch() + 64;
        builder_.store(from, 8, word);
        builder_.store(from + 8, 4, version);
        builder_.store(from + 12, 4, written);
        builder_.store(from + 16, 8, 0);
        builder_.store(from + 24, 8, pointer_of(p, c));
        builder_.copy(at(0), from, kHeader, p.header_how);
      });
      steps.order("place", "signature");
      return;
    }
    if (style == Style::kWords) {
      steps.add("signature", [this, at, word] { builder_.store(at(0), 8, word); });
      steps.add("size", [this, at, version, written] {
        builder_.store(at(8), 8, std::uint64_t{written} << 32U | version);
      });
      steps.add("pointer", [this, at, &p, &c] { builder_.store(at(24), 8, pointer_of(p, c)); });
      return;
    }
    const auto pieces = [this, at, style](unsigned offset, unsigned width, const Value& value) {
      if (style == Style::kTwice) builder_.store(at(offset), width, 0x5a5a5a5aU);
      store_pieces(at(offset), value, width, style);
    };
    steps.add("signature", [pieces, word] { pieces(0, 8, word); });
    steps.add("version", [pieces, version] { pieces(8, 4, version); });
    steps.add("size", [pieces, written] { pieces(12, 4, written); });
    steps.add("pointer", [this, pieces, &p, &c] { pieces(24, 8, pointer_of(p, c)); });
  }

  void fill_payload(const Publication& p, const Context& c, const Bytes& message) {
    if (p.how == CopyHow::kPipe || p.how == CopyHow::kProcessVm) use("payload.by-kernel");
    if (p.garbage_after && p.spare > 0) {
      use("payload.leftovers");
      builder_.fill(c.payload, c.size + p.spare, bytes_of("\x0a\x7fleft over"), CopyHow::kVector);
    }
    if (!message.empty()) builder_.write(c.payload, message, p.how);
    if (p.location == Location::kReadOnly && c.buffer)
      builder_.protect(*c.buffer, c.buffer_size, kRead);
  }

  void place_payload(const Publication& p, Context& c) {
    const std::uint64_t need = whole_pages(c.size + p.spare + 1);
    c.room = c.size + p.spare;
    switch (p.location) {
      case Location::kInline:
      case Location::kInlineGap:
        c.payload = c.base + p.header_at + kHeader + p.gap;
        return;
      case Location::kBefore:
      case Location::kAfter:
        return;
      case Location::kAnonymous:
      case Location::kReadOnly:
        c.writable = p.location == Location::kAnonymous;
        c.buffer = builder_.map_anonymous(need, kReadWrite, kPrivate);
        break;
      case Location::kShared:
        c.buffer = builder_.map_anonymous(need, kReadWrite, kShared);
        break;
      case Location::kStack:
        c.buffer = builder_.map_anonymous(need, kReadWrite, kPrivate | kGrowsDown | kStackFlag);
        break;
      case Location::kOtherFile: {
        const Value fd = builder_.memfd("attributes", kCloexec);
        builder_.truncate(fd, need);
        c.buffer = builder_.map_file(fd, need, kReadWrite, kShared);
        if (p.keeps_file) {
          c.file = fd;
        } else {
          builder_.close(fd);
        }
        break;
      }
      case Location::kTwoMappings: {
        const std::uint64_t all = need + kPage;
        c.buffer = builder_.map_anonymous(all, kReadWrite, kPrivate);
        Map half;
        half.size = all - kPage;
        half.prot = kReadWrite;
        half.flags = kShared | kFixed;
        half.at = *c.buffer + kPage;
        builder_.map(half);
        c.buffer_size = all;
        const std::uint64_t in_first = std::min<std::uint64_t>(c.size / 2 + 1, kPage);
        c.payload = *c.buffer + (kPage - in_first);
        return;
      }
      case Location::kHeap: {
        const Value now = builder_.syscall(kBrk, {Value(0)});
        builder_.syscall(kBrk, {now + (c.room + 64) / 16 * 16});
        c.payload = now;
        return;
      }
    }
    c.buffer_size = need;
    const std::uint64_t slack = need - c.room;
    c.payload = *c.buffer + (rng_.one_in(2) ? rng_.below(slack) : 0);
  }

  void use_location(Location location) {
    constexpr std::array kNames = {"place.inline",       "place.inline-gap", "place.anonymous",
                                   "place.shared",       "place.other-file", "place.read-only",
                                   "place.two-mappings", "place.before",     "place.after",
                                   "place.heap",         "place.stack"};
    use(kNames.at(static_cast<std::size_t>(location)));
  }

  void get_memory(Steps& steps, const Publication& p, Context& c) {
    const bool adjacent = p.location == Location::kBefore || p.location == Location::kAfter;
    const std::uint64_t buffer = whole_pages(c.size + p.spare + 1);
    const std::uint64_t whole = p.pages * kPage;
    if (adjacent) {
      steps.add("reserve", [this, buffer, whole, &c] {
        region_ = builder_.map_anonymous(buffer + whole, kReadWrite, kPrivate);
        c.buffer_size = buffer;
      });
      steps.order("reserve", "map");
    }
    if (!p.anonymous) {
      use("memfd");
      steps.add("memfd", [this, &p] {
        if (p.refused_first) {
          use(p.retry_same ? "memfd.second-attempt-same" : "memfd.second-attempt");
          refused_memfd(p, /*again=*/false);
          fd_ = builder_.memfd(p.memfd_name, p.retry_same ? p.memfd_flags : kCloexec | kSealing);
        } else {
          fd_ = builder_.memfd(p.memfd_name, p.memfd_flags);
        }
      });
      steps.add("sized", [this, &p, whole] {
        switch (p.sizing) {
          case Sizing::kFallocate:
            use("size.fallocate");
            builder_.syscall(kFallocate, {fd_, 0, 0, whole});
            break;
          case Sizing::kTruncateTwice:
            use("size.truncate-twice");
            builder_.truncate(fd_, kHeader);
            builder_.truncate(fd_, whole);
            break;
          default:
            use(p.sizing == Sizing::kMappedFirst ? "size.mapped-first" : "size.truncate");
            builder_.truncate(fd_, whole);
        }
      });
      steps.add("close", [this, &p] {
        if (p.closed) builder_.close(fd_);
      });
      steps.order("memfd", "sized");
      steps.order("memfd", "map");
      steps.order("map", "close");
      steps.order("sized", "close");
      if (p.sizing == Sizing::kMappedFirst) {
        steps.order("map", "sized");
      } else {
        steps.order("sized", "map");
      }
      for (const char* then : {"signature", "version", "size", "pointer", "zero", "timestamp"}) {
        steps.order("sized", then);
      }
      if (p.map_flags & kPopulate) steps.order("sized", "map");
      steps.order("close", "timestamp");
    } else if (p.refused_first) {
      use("anonymous");
      steps.add("memfd", [this, &p] { refused_memfd(p, /*again=*/true); });
      steps.order("memfd", "map");
    }
    steps.add("map", [this, &p, &c, adjacent, buffer, whole] {
      use(p.pages == 1 ? "map.one-page" : p.pages > 16 ? "map.many-pages" : "map.several-pages");
      if (p.asked != 0) use("map.odd-length");
      if (p.map_flags & kPopulate) use("map.populate");
      if (p.map_flags & kLocked) use("map.locked");
      Map map;
      map.size = p.asked != 0 ? p.asked : whole;
      map.prot = p.prot;
      map.flags = p.map_flags;
      if (!p.anonymous) map.fd = fd_;
      if (adjacent) {
        map.flags |= kFixed;
        map.at = p.location == Location::kBefore ? region_ + buffer : region_;
        const Value mine = p.location == Location::kBefore ? region_ : region_ + whole;
        c.buffer = mine;
        c.payload = p.location == Location::kBefore ? mine + (buffer - c.room) : mine;
      }
      c.base = builder_.map(map);
    });
    steps.add("advise", [this, &p, &c, whole] {
      if (p.advice == 0) return;
      const std::uint64_t to = p.advice_partial ? whole - kPage : whole;
      if (p.advice_by_page && p.pages > 1) {
        use("advise.by-page");
        for (std::uint64_t i = 0; i * kPage < to; ++i) {
          builder_.advise(c.base + i * kPage, kPage, p.advice);
        }
      } else {
        builder_.advise(c.base, to, p.advice);
      }
    });
    steps.order("map", "advise");
    if (p.more_advice != 0) {
      steps.add("more advice", [this, &p, &c, whole] {
        use("advise.more");
        builder_.advise(c.base, whole, p.more_advice);
      });
      steps.order("map", "more advice");
    }
  }

  // For a while no descriptor is free.
  void refused_memfd(const Publication& p, bool again) {
    const Value limits = scratch() + 128;
    builder_.syscall(kPrlimit, {0, kNoFile, 0, limits});
    const Value hard = builder_.load(limits + 8, 8);
    builder_.store(limits + 16, 8, 0);
    builder_.store(limits + 24, 8, hard);
    builder_.syscall(kPrlimit, {0, kNoFile, limits + 16, 0});
    builder_.may_fail();
    builder_.memfd(p.memfd_name, p.memfd_flags);
    if (again) {
      builder_.may_fail();
      builder_.memfd(p.memfd_name, kCloexec | kSealing);
    }
    builder_.syscall(kPrlimit, {0, kNoFile, limits, 0});
  }

  void publish(const Publication& p) {
    const Bytes message = message_of(p.content);
    Context c;
    c.size = message.size();
    c.pages = p.pages;
    c.room = c.size + p.spare;
    const Value old_stamp = context_ ? context_->stamp : last_stamp_;
    const bool again = p.again_in_place && withdrawn_ && withdrawn_->room >= c.size;
    Steps steps(plan_);
    if (again) {
      use("again.same-mapping");
      const auto size = c.size;
      c = *withdrawn_;
      c.size = size;
      if (p.location == Location::kReadOnly && c.buffer) c.writable = false;
    } else {
      if (published_) use("again.new-mapping");
      get_memory(steps, p, c);
      use_location(p.location);
      steps.add("place", [this, &p, &c] { place_payload(p, c); });
      if (p.location == Location::kInline || p.location == Location::kInlineGap ||
          p.location == Location::kBefore || p.location == Location::kAfter) {
        steps.order("map", "place");
        if (!p.anonymous) steps.order("sized", "payload");
      }
      if (p.spare > 0) use("payload.spare");
    }
    steps.add("payload", [this, &p, &c, &message] { fill_payload(p, c, message); });
    steps.order("place", "payload");
    header_steps(steps, p, c);
    if (p.zero_first) {
      use("timestamp.zero-stored");
      steps.add("zero", [this, &p, &c] { builder_.store(c.base + p.header_at + 16, 8, 0); });
    }
    steps.add("clock", [this, &p, &old_stamp] { read_clock(p.stamp, old_stamp); });
    steps.add("timestamp", [this, &p, &c] { store_stamp(c.base + p.header_at, p.stamp); });
    order_stamp(steps, p.stamp);
    for (const char* first : {"map", "advise", "place"}) {
      for (const char* then : {"signature", "version", "size", "pointer", "zero", "timestamp"}) {
        if (first == std::string_view("place") && then != std::string_view("pointer")) continue;
        steps.order(first, then);
      }
    }
    for (const char* first : {"signature", "version", "size", "pointer", "zero", "payload"}) {
      steps.order(first, "timestamp");
      steps.order(first, "name");
    }
    add_namings(steps, p.early, p.late, c, /*update=*/false);
    add_noise(steps, p.noise, "");
    if (p.threads > 0 && !threads_.empty()) use("threads");
    // A named mapping of a process that ends before ftruncate looks like one that never gets a
    // size.
    const bool whole = p.sizing == Sizing::kMappedFirst && !p.early.empty();
    steps.make(rng_, [this, &p, whole] {
      act_by(p.threads);
      if (!child_ && !whole) safe_cuts_.push_back(builder_.size());
    });
    home();
    c.stamp = stamp_;
    last_stamp_ = stamp_;
    c.message = message;
    c.unusual_encoding = is_unusual(p.content);
    c.names = names_of(p.content);
    context_ = c;
    withdrawn_.reset();
    published_ = true;
    contexts_.published(reference_of(p.content));
  }

  void add_namings(Steps& steps, const std::vector<Naming>& early, const std::vector<Naming>& late,
                   const Context& c, bool update) {
    if (!early.empty()) use(update ? "update.name-early" : "name.early");
    if (late.size() > 1) use(update ? "update.name-twice" : "name.twice");
    for (const auto& naming : early) {
      steps.add("early name", [this, &naming, &c] { name_mapping(c, naming); });
    }
    for (const auto& naming : late) {
      steps.add("name", [this, &naming, &c] { name_mapping(c, naming); });
    }
    steps.order("map", "early name");
    steps.order("early name", update ? "window" : "timestamp");
    steps.order("timestamp", "name");
  }

  void add_noise(Steps& steps, unsigned count, const char* before) {
    for (unsigned i = 0; i < count; ++i) {
      steps.add("noise", [this] { noise(static_cast<Noise>(rng_.below(12))); });
    }
    if (*before != 0) steps.order("noise", before);
  }

  // An update while it is made.
  struct Change {
    const Update& how;
    Renewal renewal;  // what there is room for
    Bytes message;
    Context old;
    Context next;
    Value staged;  // where the new message is until it is copied over the old one
  };

  static Renewal possible_renewal(Renewal wanted, const Context& c, std::uint64_t size) {
    const std::uint64_t needed = wanted == Renewal::kSpare ? c.size + size : size;
    const bool reuses = wanted == Renewal::kInPlace || wanted == Renewal::kSpare;
    return reuses && (!c.writable || needed > c.room) ? Renewal::kNewBuffer : wanted;
  }

  // What an update stores between its two timestamps is one step, "window", in which the writer
  // makes no call.
  void update(const Update& u) {
    if (!context_) return;
    const Bytes message = message_of(u.content);
    const Renewal renewal = possible_renewal(u.renewal, *context_, message.size());
    Change change{u, renewal, message, *context_, *context_, {}};
    Steps steps(plan_);
    add_preparation(steps, change);
    if (u.style == Style::kWords) use("update.words");
    if (u.style == Style::kHalves) use("update.halves");
    if (u.style == Style::kBytes) use("update.bytes");
    // Everything that needs a call before it is stored exists before the zero.
    const bool cells = u.style == Style::kBytes || u.style == Style::kHalves || u.stamp.halves;
    if (cells) steps.add("cell", [this] { scratch(); });
    steps.add("clock", [this, &change] { read_clock(change.how.stamp, change.old.stamp); });
    steps.add("window", [this, &change] { store_in_window(change); });
    // What follows the window is in "timestamp", so that namings have one name for it.
    steps.add("timestamp", [] {});
    steps.order("window", "timestamp");
    for (const char* first : {"prepare", "clock", "cell"}) steps.order(first, "window");
    if (u.poisoned_before && change.old.writable) {
      steps.add("poison", [this, &old = change.old] {
        builder_.fill(old.payload, old.size, bytes_of("\xdd"));
      });
      steps.order("poison", "window");
      steps.order("prepare", "poison");
    }
    if (u.moved) {
      steps.add("moved", [this, &change] { move_mapping(change); });
      steps.order("timestamp", "moved");
      steps.order("moved", "name");
    }
    add_release(steps, change);
    add_namings(steps, u.early, u.late, change.next, /*update=*/true);
    add_noise(steps, u.noise, rng_.one_in(2) ? "window" : "");
    if (u.threads > 0 && !threads_.empty()) use("threads");
    steps.make(rng_, [this, &u] {
      act_by(u.threads);
      if (!child_) safe_cuts_.push_back(builder_.size());
    });
    home();
    finish_update(change);
  }

  // Where the new message comes to be before the zero.
  void add_preparation(Steps& steps, Change& change) {
    const Context& old = change.old;
    Context& next = change.next;
    const std::uint64_t size = change.message.size();
    if (change.renewal != Renewal::kUnchanged) next.size = size;
    switch (change.renewal) {
      case Renewal::kUnchanged:
        use("update.unchanged");
        break;
      case Renewal::kInPlace:
        use("update.in-place");
        steps.add("prepare", [this, &change, size] {
          change.staged =
              builder_.map_anonymous(whole_pages(size + 128), kReadWrite, kPrivate) + 96;
          if (!change.how.encoded_in_window) builder_.write(change.staged, change.message);
        });
        break;
      case Renewal::kSpare:
        use("update.spare");
        next.payload = old.payload + old.size;
        next.room = old.room - old.size;
        next.buffer.reset();
        steps.add("prepare", [this, &change] {
          if (!change.how.encoded_in_window) builder_.write(change.next.payload, change.message);
        });
        break;
      case Renewal::kNewBuffer:
        use("update.new-buffer");
        next.room = size;
        next.writable = true;
        steps.add("prepare", [this, &change, &next, size] {
          next.buffer_size = whole_pages(size + 64);
          next.buffer = builder_.map_anonymous(next.buffer_size, kReadWrite, kPrivate);
          next.payload = *next.buffer + 16 * rng_.below(3);
          if (!change.how.encoded_in_window) builder_.write(next.payload, change.message);
        });
        break;
    }
  }

  void store_in_window(const Change& change) {
    const Update& u = change.how;
    const Context& old = change.old;
    if (!u.no_zero) zero(old.base, u);
    if (u.blanked_signature) builder_.store(old.base, 8, 0);
    if (u.encoded_in_window && change.renewal != Renewal::kUnchanged) {
      builder_.write(change.renewal == Renewal::kInPlace ? old.payload : change.next.payload,
                     change.message);
    }
    Steps fields(plan_);
    field_steps(fields, change);
    fields.make(rng_, [this, &u] {
      if (u.threads > 0 && rng_.one_in(4)) {
        use("update.by-others");
        act_by(u.threads);
      }
      if (!child_) safe_cuts_.push_back(builder_.size());
    });
  }

  void field_steps(Steps& fields, const Change& change) {
    const Update& u = change.how;
    const Context& old = change.old;
    const Context& next = change.next;
    const Renewal renewal = change.renewal;
    if (renewal == Renewal::kInPlace && !u.encoded_in_window) {
      fields.add("update copy", [this, &change] {
        builder_.copy(change.old.payload, change.staged, change.message.size(), change.how.how);
      });
    }
    if (next.size != old.size || rng_.one_in(2)) {
      if (next.size == old.size) use("update.same-size");
      fields.add("update size", [this, &old, &next, &u] {
        if (u.style == Style::kWords) {
          builder_.store(old.base + 8, 8, next.size << 32U | 2U);
        } else {
          store_pieces(old.base + 12, next.size, 4, u.style);
        }
      });
    }
    const bool moves = renewal == Renewal::kNewBuffer || renewal == Renewal::kSpare;
    if (moves || rng_.one_in(2)) {
      fields.add("update pointer", [this, &old, &next, &u] {
        store_pieces(old.base + 24, next.payload, 8, u.style);
      });
    }
    const auto sign = [this, &old] { builder_.store_bytes(old.base, bytes_of("OTEL_CTX")); };
    if (u.same_signature) {
      use("update.same-signature");
      fields.add("same signature", sign);
    }
    if (u.blanked_signature) fields.add("signature back", sign);
    fields.add("update timestamp", [this, &old, &u] { store_stamp(old.base, u.stamp); });
    for (const char* first :
         {"update copy", "update size", "update pointer", "same signature", "signature back"}) {
      fields.order(first, "update timestamp");
    }
  }

  void move_mapping(Change& change) {
    const std::uint64_t size = change.old.pages * kPage;
    const Value to = builder_.map_anonymous(size, kReadWrite, kPrivate);
    change.next.base = builder_.remap(change.old.base, size, size, kMremapMayMove | 2, to);
  }

  void add_release(Steps& steps, const Change& change) {
    const Context& old = change.old;
    const Release release = change.how.release;
    const bool gone = change.renewal == Renewal::kNewBuffer;
    if (gone && release == Release::kUnmapped && old.buffer) {
      steps.add("release", [this, &old] {
        use("update.old-unmapped");
        builder_.unmap(*old.buffer, old.buffer_size);
      });
    } else if (gone && release == Release::kOverwritten && old.writable) {
      steps.add("release", [this, &old] {
        use("update.old-overwritten");
        builder_.fill(old.payload, old.size, bytes_of("\xcc"), CopyHow::kRepBytes);
      });
    }
    steps.order("timestamp", "release");
  }

  void finish_update(const Change& change) {
    context_ = change.next;
    context_->stamp = stamp_;
    last_stamp_ = stamp_;
    if (change.renewal == Renewal::kUnchanged) return;
    const Content& content = change.how.content;
    context_->message = change.message;
    context_->unusual_encoding = is_unusual(content);
    context_->names = names_of(content);
    contexts_.published(reference_of(content));
  }

  void zero(const Value& base, const Update& u) {
    if (u.zero_in_halves) {
      builder_.store(base + 16, 4, 0);
      builder_.store(base + 20, 4, 0);
    } else {
      builder_.store(base + 16, 8, 0, u.zero_order);
    }
    if (!sys::processor_of_elf(sys::kNativeMachine).keeps_store_order) builder_.fence();
  }

  void drop(const Drop& d) {
    if (!context_) return;
    const Context c = *context_;
    const auto whole = c.pages * kPage;
    const auto zeroed = [&] { builder_.store(c.base + 16, 8, 0); };
    bool gone = true;
    switch (d.how) {
      case Dropped::kUnmapped:
        use("drop.unmapped");
        builder_.unmap(c.base, whole);
        break;
      case Dropped::kZeroUnmapped:
        use("drop.zero-unmapped");
        zeroed();
        builder_.unmap(c.base, whole);
        break;
      case Dropped::kZero:
        use("drop.zero");
        zeroed();
        gone = false;
        break;
      case Dropped::kZeroUnnamed:
        use("drop.zero-unnamed");
        zeroed();
        builder_.may_fail();
        builder_.name(c.base, whole, std::nullopt);
        gone = false;
        break;
      case Dropped::kClearedUnmapped:
        use("drop.cleared-unmapped");
        zeroed();
        builder_.fill(c.base, kHeader, {std::byte{0}}, CopyHow::kWords);
        builder_.unmap(c.base, whole);
        break;
    }
    const bool release = d.release_payload && c.buffer;
    if (release) {
      use("drop.payload-released");
      builder_.unmap(*c.buffer, c.buffer_size);
    }
    context_.reset();
    unmapped_ = gone;
    contexts_.withdrawn();
    withdrawn_.reset();
    if (!gone && !release && d.how == Dropped::kZero && c.writable) withdrawn_ = c;
    safe_cuts_.push_back(builder_.size());
  }

  void noise(Noise kind) {
    switch (kind) {
      case Noise::kMap: {
        use("noise.map");
        const Value at = builder_.map_anonymous(kPage * (1 + rng_.below(3)), kReadWrite, kPrivate);
        builder_.fill(at, 64, bytes_of("unrelated"), CopyHow::kWords);
        if (rng_.one_in(2)) builder_.unmap(at, kPage);
        return;
      }
      case Noise::kMemfd: {
        use("noise.memfd");
        static const std::vector<std::string> kOthers = {"otel_ctx", "MY_OTEL_CTX", "jit", "OTEL"};
        const Value fd = builder_.memfd(rng_.pick(kOthers), kCloexec);
        builder_.truncate(fd, kPage);
        const Value at =
            builder_.map_file(fd, kPage, kReadWrite, rng_.one_in(2) ? kShared : kPrivate);
        builder_.store(at, 8, 1);
        if (rng_.one_in(2)) builder_.close(fd);
        return;
      }
      case Noise::kStores:
        use("noise.stores");
        builder_.store(scratch() + 512, 8, rng_.next());
        builder_.store_bytes(scratch() + 528, bytes_of("OTEL_CTX"));
        return;
      case Noise::kName: {
        use("noise.name");
        const Value at = builder_.map_anonymous(kPage, kReadWrite, kPrivate);
        builder_.may_fail();
        builder_.name(at, kPage, rng_.one_in(2) ? "heap arena" : "OTEL");
        return;
      }
      case Noise::kClock:
        use("noise.clock");
        builder_.clock(rng_.below(2));
        return;
      case Noise::kVfork:
      case Noise::kFork: {
        const bool vfork = kind == Noise::kVfork && !child_;
        use(vfork ? "fork.vfork" : "fork.idle");
        const Value pid = builder_.fork(vfork ? ForkHow::kVfork : ForkHow::kFork);
        leave(pid, !vfork);
        return;
      }
      case Noise::kAdvise:
        use("noise.advise");
        builder_.advise(scratch() - 64, 2 * kPage, 16);
        return;
      case Noise::kLook:
        use("noise.look");
        builder_.look();
        return;
      case Noise::kThread:
        if (child_ || plan_.alone) return;
        use("noise.thread");
        if (rng_.one_in(3)) {
          use("noise.thread-without-block");
          builder_.thread(/*tls=*/false);
        } else {
          builder_.thread();
        }
        return;
      case Noise::kSignal:
        if (threads_.empty()) return;
        use("noise.signal");
        builder_.handle(10, SignalAction::kIgnore);
        builder_.signal(10, rng_.pick(threads_));
        return;
      case Noise::kPrint:
        use("noise.print");
        builder_.print("working");
        return;
    }
  }

  // The child ends, and the thread that made it waits for it.
  void leave(const Value& pid, bool looks) {
    builder_.by(pid);
    if (looks) builder_.look();
    builder_.exit(0);
    home();
  }

  void child(const std::vector<Act>& its) {
    if (child_) return;
    use("fork.publishes");
    const Value pid = builder_.fork();
    const auto saved_threads = std::exchange(threads_, {});
    const auto saved_context = std::exchange(context_, std::nullopt);
    const auto saved_withdrawn = std::exchange(withdrawn_, std::nullopt);
    const auto saved_scratch = std::exchange(scratch_, std::nullopt);
    const bool saved_published = std::exchange(published_, false);
    const bool saved_unmapped = std::exchange(unmapped_, true);
    const auto cuts = safe_cuts_.size();
    child_ = pid;
    contexts_.begin_child(pid);
    acts(its);
    builder_.exit(0);
    safe_cuts_.resize(cuts);
    child_.reset();
    contexts_.end_child();
    threads_ = saved_threads;
    context_ = saved_context;
    withdrawn_ = saved_withdrawn;
    scratch_ = saved_scratch;
    published_ = saved_published;
    unmapped_ = saved_unmapped;
    home();
    builder_.wait(pid);
    safe_cuts_.push_back(builder_.size());
  }

  // What no legal program does between two acts.
  void wrong(const std::string& what) {
    if (!context_) return;
    Context& c = *context_;
    if (what == "patched") {
      builder_.store(c.payload + (c.size - 1), 1, 0x7e);
    } else if (what == "payload unmapped" && c.buffer) {
      builder_.unmap(*c.buffer, c.buffer_size);
      c.writable = false;
      c.buffer.reset();
    } else if (what == "payload unreadable" && c.buffer) {
      builder_.protect(*c.buffer, c.buffer_size, 0);
      c.writable = false;
    } else if (what == "payload truncated" && c.file) {
      builder_.truncate(*c.file, 0);
      c.writable = false;
      c.buffer.reset();
    } else if (what == "forkable again") {
      builder_.advise(c.base, c.pages * kPage, 11);  // MADV_DOFORK
    } else if (what == "executable") {
      builder_.protect(c.base, c.pages * kPage, 7);
    } else if (what == "size corrected") {
      builder_.store(c.base + 12, 4, c.size - 1);
    } else if (what == "timestamp repeated") {
      c.stamp = c.stamp + 5;
      last_stamp_ = c.stamp;
      builder_.store(c.base + 16, 8, c.stamp);
    }
    builder_.look();
  }

  void cut(Script& script) {
    if (safe_cuts_.empty()) return;
    use("end.early");
    const auto wanted = script.operations.size() * *plan_.cut / 1000;
    auto at = std::ranges::lower_bound(safe_cuts_, wanted);
    if (at == safe_cuts_.end()) --at;
    script.operations.resize(std::min(*at, script.operations.size()));
    Operation end;
    for (const auto& [from, first] : firsts_) {
      if (from > script.operations.size()) break;
      end.on = first.terms().empty() ? "" : first.terms().front().name;
    }
    if (plan_.killed) {
      use("end.killed");
      Operation who;
      who.what = SystemCall{kGetpid, {}};
      who.on = end.on;
      who.as = "own_pid";
      script.operations.push_back(who);
      Signal signal;
      signal.signal = 9;
      signal.to = Value::of("own_pid");
      signal.process = true;
      end.what = signal;
    } else {
      end.what = Exit{rng_.below(3)};
    }
    script.operations.push_back(end);
  }

  Plan& plan_;
  std::vector<Moment>* moments_;
  bool first_ended_ = false;
  bool unmapped_ = true;
  Rng rng_{0};
  Builder builder_;
  ThreadScript contexts_;
  std::vector<Value> threads_;
  std::vector<std::pair<std::size_t, Value>> firsts_;  // from which operation on
  bool slot_ = plan_.slot;
  std::optional<Value> child_;
  std::optional<Value> scratch_;
  std::optional<Context> context_;
  std::optional<Context> withdrawn_;
  bool published_ = false;
  Value region_;
  Value fd_;
  Value stamp_;
  Value last_stamp_;
  std::vector<std::size_t> safe_cuts_;  // operations after which no child is in progress
};

// --- plans ---

Stamp legal_stamp(Rng& rng, bool update) {
  Stamp out;
  out.plus_one = update && rng.one_in(8);
  out.order = rng.one_in(2)   ? StoreOrder::kPlain
              : rng.one_in(2) ? StoreOrder::kRelease
                              : StoreOrder::kSeqCst;
  if (rng.one_in(2)) {
    static const std::vector<FenceKind> kFences = {FenceKind::kCompiler, FenceKind::kRelease,
                                                   FenceKind::kSeqCst};
    out.fence = rng.pick(kFences);
  }
  return out;
}

Publication legal_publication(Rng& rng, const Surroundings& host, bool threads, bool again,
                              Announcement* announced) {
  Publication p;
  static const std::vector<Location> kLocations = {
      Location::kInline, Location::kInline,    Location::kInlineGap, Location::kAnonymous,
      Location::kShared, Location::kOtherFile, Location::kReadOnly,  Location::kTwoMappings,
      Location::kBefore, Location::kAfter,     Location::kHeap,      Location::kStack,
  };
  static const std::vector<CopyHow> kHows = {
      CopyHow::kBytes,  CopyHow::kWords, CopyHow::kRepBytes, CopyHow::kRepWords,
      CopyHow::kVector, CopyHow::kPipe,  CopyHow::kProcessVm};
  p.content = legal_content(rng);
  if (announced != nullptr) p.content.reference = announced->next(rng);
  p.location = rng.pick(kLocations);
  p.how = rng.pick(kHows);
  p.spare = rng.one_in(2) ? rng.below(600) : 0;
  p.garbage_after = rng.one_in(3);
  if (p.location == Location::kInlineGap) p.gap = 1 + rng.below(200);
  const std::uint64_t message = encode(p.content).size();
  if (message > 3000 && (p.how == CopyHow::kBytes)) p.how = CopyHow::kVector;
  const bool in_it = p.location == Location::kInline || p.location == Location::kInlineGap;
  const std::uint64_t least = in_it ? kHeader + p.gap + message + p.spare : kHeader;
  p.pages = whole_pages(least) / kPage;
  if (rng.one_in(3)) p.pages += rng.below(4);
  if (rng.one_in(25)) p.pages += 16;
  if (rng.one_in(4)) p.asked = p.pages * kPage - rng.below(kPage - (least - 1) % kPage);
  p.asked = p.asked < least ? 0 : p.asked;
  if (whole_pages(p.asked) != p.pages * kPage) p.asked = 0;
  if (rng.one_in(8)) p.map_flags |= kPopulate;
  if (rng.one_in(12)) p.map_flags |= kLocked;
  p.refused_first = rng.one_in(10);
  p.retry_same = rng.one_in(2);
  // Nobody finds anonymous memory that has no name.
  if (host.names_anonymous && p.refused_first && rng.one_in(2)) p.anonymous = true;
  const auto sizing = rng.below(10);
  p.sizing = sizing < 6   ? Sizing::kTruncate
             : sizing < 8 ? Sizing::kTruncateTwice
             : sizing < 9 ? Sizing::kMappedFirst
                          : Sizing::kFallocate;
  if (p.map_flags & (kPopulate | kLocked) && p.sizing == Sizing::kMappedFirst) {
    p.sizing = Sizing::kTruncate;
  }
  p.advice_by_page = rng.one_in(4);
  if (rng.one_in(6)) p.more_advice = rng.one_in(2) ? 16 : 3;  // MADV_DONTDUMP, MADV_WILLNEED
  p.style = static_cast<Style>(rng.below(7));
  static const std::vector<CopyHow> kHeaderHows = {
      CopyHow::kBytes, CopyHow::kWords, CopyHow::kRepBytes, CopyHow::kRepWords, CopyHow::kVector};
  p.header_how = rng.pick(kHeaderHows);
  p.zero_first = rng.one_in(3);
  p.stamp = legal_stamp(rng, false);
  const auto naming = [&] {
    Naming n;
    // A part of the mapping would split it; a size that the kernel rounds up to all of it does not.
    if (p.pages == 1) n.length = static_cast<Length>(rng.below(3));
    return n;
  };
  p.late = {naming()};
  if (rng.one_in(6)) p.late.push_back(naming());
  if (rng.one_in(5)) p.early.push_back(naming());
  if (threads && rng.one_in(3)) p.threads = 2;
  if (rng.one_in(2)) p.noise = static_cast<unsigned>(rng.below(4));
  p.again_in_place = again && rng.one_in(2);
  // Nobody can tell such a publication from an update that takes long.
  if (p.again_in_place && p.style == Style::kTwice) p.style = Style::kWords;
  return p;
}

std::vector<Act> legal_acts(Rng& rng, const Surroundings& host, bool threads, bool child,
                            Announcement* announced) {
  std::vector<Act> out;
  const auto rounds = child || rng.one_in(2) ? 1 : 1 + rng.below(3);
  bool withdrawn_in_place = false;
  const auto aside = [&] {
    if (rng.one_in(4)) {
      Act noise = made(Act::Kind::kNoise, rng);
      noise.noise = static_cast<Noise>(rng.below(12));
      out.push_back(noise);
    }
    if (rng.one_in(3)) out.push_back(made(Act::Kind::kLook, rng));
    const auto contexts = announced == nullptr ? 0 : rng.below(child ? 3 : 6);
    std::optional<ThreadAct> before;
    for (std::uint64_t i = 0; i < contexts; ++i) {
      Act next = made(Act::Kind::kThread, rng);
      before = next.thread = legal_thread_act(rng, child, before);
      out.push_back(next);
      if (rng.one_in(3)) out.push_back(made(Act::Kind::kLook, rng));
    }
    if (!child && rng.one_in(25)) {
      Act ends = made(Act::Kind::kFirstEnds, rng);
      ends.thread = legal_thread_act(rng, true);
      out.push_back(ends);
    }
    if (!child && rng.one_in(9)) {
      Act forked = made(Act::Kind::kChild, rng);
      // Otherwise it continues with the record that it had at the fork.
      forked.child = legal_acts(rng, host, false, true, rng.one_in(4) ? nullptr : announced);
      out.push_back(forked);
    }
  };
  for (std::uint64_t round = 0; round < rounds; ++round) {
    aside();
    Act publish = made(Act::Kind::kPublish, rng);
    publish.publication = legal_publication(rng, host, threads, withdrawn_in_place, announced);
    out.push_back(publish);
    aside();
    const auto updates = rng.one_in(2) ? 0 : 1 + rng.below(3);
    for (std::uint64_t i = 0; i < updates; ++i) {
      Act update = made(Act::Kind::kUpdate, rng);
      update.update = legal_update(rng, publish.publication, threads);
      if (announced != nullptr) update.update.content.reference = announced->next(rng);
      // The mapping that is published again keeps its number of pages.
      if (publish.publication.again_in_place) {
        for (auto* namings : {&update.update.early, &update.update.late}) {
          for (auto& n : *namings) n.length = Length::kWhole;
        }
      }
      out.push_back(update);
      aside();
    }
    withdrawn_in_place = false;
    if (round + 1 < rounds || rng.one_in(3)) {
      Act drop = made(Act::Kind::kDrop, rng);
      drop.drop.how = static_cast<Dropped>(rng.below(5));
      drop.drop.release_payload = rng.one_in(2);
      withdrawn_in_place = drop.drop.how == Dropped::kZero && !drop.drop.release_payload;
      out.push_back(drop);
      aside();
    }
    if (!child && rng.one_in(15)) {
      Act exec = made(Act::Kind::kExec, rng);
      exec.other_program = rng.one_in(3);
      exec.by_thread = rng.one_in(3);
      out.push_back(exec);
      withdrawn_in_place = false;
    }
  }
  return out;
}

}  // namespace

Update legal_update(Rng& rng, const Publication& p, bool threads) {
  Update u;
  u.renewal = static_cast<Renewal>(rng.below(4));
  u.content = legal_content(rng);
  u.content.reference = p.content.reference;
  static const std::vector<Style> kStyles = {Style::kFields, Style::kFields, Style::kWords,
                                             Style::kHalves, Style::kBytes};
  u.style = rng.pick(kStyles);
  u.same_signature = rng.one_in(6);
  static const std::vector<CopyHow> kHows = {CopyHow::kBytes, CopyHow::kWords, CopyHow::kRepBytes,
                                             CopyHow::kRepWords, CopyHow::kVector};
  u.how = rng.pick(kHows);
  u.zero_order = rng.one_in(3) ? StoreOrder::kSeqCst : StoreOrder::kPlain;
  u.stamp = legal_stamp(rng, true);
  u.release = static_cast<Release>(rng.below(3));
  const auto naming = [&] {
    Naming n;
    if (p.pages == 1) n.length = static_cast<Length>(rng.below(3));
    return n;
  };
  u.late = {naming()};
  if (rng.one_in(8)) u.late.push_back(naming());
  if (rng.one_in(6)) u.early.push_back(naming());
  if (threads && rng.one_in(4)) u.threads = 2;
  if (rng.one_in(3)) u.noise = static_cast<unsigned>(rng.below(3));
  return u;
}

std::vector<Production> productions() {
  std::vector<Production> out(kProductions.begin(), kProductions.end());
  const auto more = thread_productions();
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

Act made(Act::Kind kind, Rng& rng) {
  Act out;
  out.kind = kind;
  out.seed = rng.next();
  return out;
}

Plan legal_plan(Rng& rng, const Surroundings& host, Threads threads) {
  Plan plan;
  plan.slot = threads == Threads::kAlways || (threads == Threads::kMaybe && rng.one_in(2));
  std::optional<Announcement> announced;
  if (plan.slot) announced.emplace(rng);
  if (rng.one_in(3)) plan.threads = 1 + static_cast<unsigned>(rng.below(3));
  plan.acts = legal_acts(rng, host, plan.threads > 0, false, announced ? &*announced : nullptr);
  plan.exits = rng.one_in(2);
  if (rng.one_in(4)) {
    plan.cut = rng.below(1000);
    plan.killed = rng.one_in(2);
  }
  return plan;
}

Script script_of(Plan& plan, std::vector<Moment>* moments) { return Emission(plan, moments).run(); }

void make_room(Publication& p) {
  const bool in_it = p.location == Location::kInline || p.location == Location::kInlineGap;
  if (!in_it) return;
  const auto need = kHeader + p.gap + p.header_at + encode(p.content).size() + p.spare;
  p.pages = std::max(p.pages, whole_pages(need) / kPage);
  p.asked = 0;
  for (auto* namings : {&p.early, &p.late}) {
    for (auto& n : *namings) {
      if (p.pages > 1) n.length = Length::kWhole;
    }
  }
}

}  // namespace ctxconf::conformance::puppet
