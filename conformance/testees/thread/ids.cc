// Cases about ids that the program was told, or prints.
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "conformance/testees/thread/scene.h"
#include "conformance/testees/thread/topics.h"
#include "conformance/testees/thread/usual.h"
#include "conformance/testees/writer/program.h"

namespace ctxconf::testees {
namespace {

Bytes hex(const Bytes& bytes) {
  Bytes out;
  for (const char c : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    out += kDigits[static_cast<unsigned char>(c) >> 4U];
    out += kDigits[static_cast<unsigned char>(c) & 15U];
  }
  return out;
}

Bytes traceparent(const Record& r) { return "00-" + hex(r.trace) + "-" + hex(r.span) + "-01"; }

void print_traceparents(const std::vector<Record>& records) {
  for (const auto& r : records) std::printf("context %s\n", traceparent(r).c_str());
}

void print_trace_ids(const std::vector<Record>& records) {
  for (const auto& r : records) std::printf("context trace_id=%s, begins\n", hex(r.trace).c_str());
}

// Tells it as a parent would: the program starts anew with the variable.
void be_told(const Record& parent) {
  if (std::getenv("TRACEPARENT") != nullptr) return;
  setenv("TRACEPARENT", traceparent(parent).c_str(), 1);
  execv("/proc/self/exe", options.arguments);
  die("execv");
}

Record told_parent() {
  Record parent;
  parent.span.assign("\x00\xf0\x67\xaa\x0b\xa9\x02\xb7", 8);
  return parent;
}

Bytes with_words_reversed(const Bytes& bytes, std::size_t word) {
  Bytes out;
  for (std::size_t at = 0; at < bytes.size(); at += word) {
    const Bytes part = bytes.substr(at, word);
    out.append(part.rbegin(), part.rend());
  }
  return out;
}

void play_with_trace_in_words(std::size_t word) {
  play_records(usual_with([&](Record& r) { r.trace = with_words_reversed(r.trace, word); }));
}

void bad_trace_id() {
  print_traceparents(usual_records());
  play_with_trace_in_words(16);
}

void bad_trace_id_in_halves() {
  print_trace_ids(usual_records());
  play_with_trace_in_words(8);
}

void bad_trace_id_as_told() {
  be_told(told_parent());
  play_with_trace_in_words(16);
}

void bad_span_id() {
  print_traceparents(usual_records());
  play_records(usual_with([](Record& r) { r.span = with_words_reversed(r.span, 8); }));
}

void good_prints_traceparents() {
  print_traceparents(usual_records());
  play({});
}

// Prints each id in both ways, as a program that prints numbers may.
void good_prints_trace_ids() {
  auto records = usual_records();
  print_trace_ids(records);
  for (auto& r : records) r.trace = with_words_reversed(r.trace, 8);
  print_trace_ids(records);
  play({});
}

void good_continues_a_trace() {
  be_told(told_parent());
  play({});
}

void good_begins_a_trace() {
  Record parent = told_parent();
  parent.trace.assign("\x0a\xf7\x65\x19\x16\xcd\x43\xdd\x84\x48\xeb\x21\x1c\x80\x31\x9c", 16);
  be_told(parent);
  play({});
}

// Somebody counts these ids; those of the parent are the same numbers in another byte order.
void good_counted_ids() {
  Record parent;
  parent.trace = Bytes(15, '\0') + '\1';
  parent.span = Bytes(7, '\0') + '\1';
  be_told(parent);
  play_records(usual_with([](Record& r) {
    r.trace = '\1' + Bytes(15, '\0');
    r.span = '\1' + Bytes(7, '\0');
  }));
}

constexpr Case kBadIds[] = {
    {"tctx.record.trace-id", "prints its ids, and stores trace ids in reverse", bad_trace_id},
    {"tctx.record.trace-id:in-halves", "stores trace ids as two numbers", bad_trace_id_in_halves},
    {"tctx.record.trace-id:as-told", "reverses the trace id from its environment",
     bad_trace_id_as_told},
    {"tctx.record.span-id", "stores span ids as numbers", bad_span_id},
};

constexpr Case kGoodIds[] = {
    {"prints-traceparents", "says which contexts it has", good_prints_traceparents},
    {"prints-trace-ids", "says so, and prints the ids as numbers too", good_prints_trace_ids},
    {"continues-a-trace", "has the trace that it was told", good_continues_a_trace},
    {"begins-a-trace", "was told another trace", good_begins_a_trace},
    {"counted-ids", "was told the reverse of its ids, which are ones", good_counted_ids},
};

}  // namespace

const Topic kIdsCases{kBadIds, kGoodIds};

}  // namespace ctxconf::testees
