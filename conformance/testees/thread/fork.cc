// Cases about fork.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <vector>

#include "conformance/testees/thread/scene.h"
#include "conformance/testees/thread/topics.h"
#include "conformance/testees/thread/usual.h"
#include "conformance/testees/writer/program.h"

namespace ctxconf::testees {
namespace {

void reap_at_exit(pid_t child) {
  static pid_t to_reap;
  to_reap = child;
  std::atexit([] { reap(to_reap); });
}

// The child has the record of its parent and no process context.
void good_fork_inherits() {
  play({.records = {usual_bytes()[0]}, .meanwhile = [](const Region&) {
          const pid_t child = fork();
          if (child < 0) die("fork");
          if (child == 0) {
            wait_for_the_end();
            _exit(0);
          }
          reap_at_exit(child);
        }});
}

// A span is open for a moment, in the middle of which the program forks. The child does nothing, or
// forks once more and does nothing.
void fork_in_spans(bool twice) {
  play({.records = {usual_bytes()[0]}, .meanwhile = [twice](const Region&) {
          static std::vector<pid_t> to_reap;
          auto* const outer = static_cast<char*>(*slot());
          for (char i = 1; i <= 3; ++i) {
            Record r = usual_records()[0];
            r.span.back() = i;
            attach(in_block(r.bytes()));
            const pid_t child = fork();
            if (child < 0) die("fork");
            if (child == 0) {
              if (twice && fork() > 0) _exit(0);
              wait_for_the_end();
              _exit(0);
            }
            to_reap.push_back(child);
            attach(outer);
          }
          std::atexit([] {
            for (const pid_t child : to_reap) reap(child);
          });
        }});
}

// The child ends the span that was open, and goes back to the one around it.
void good_fork_pops() {
  play({.records = {usual_bytes()[0]}, .meanwhile = [](const Region&) {
          auto* const outer = static_cast<char*>(*slot());
          Record r = usual_records()[0];
          r.span.back() = 7;
          attach(in_block(r.bytes()));
          const pid_t child = fork();
          if (child < 0) die("fork");
          attach(outer);
          if (child == 0) {
            wait_for_the_end();
            _exit(0);
          }
          reap_at_exit(child);
        }});
}

// No reader has seen the span around it.
void good_fork_pops_to_an_unseen_span() {
  play({.records = {usual_bytes()[0]}, .meanwhile = [](const Region&) {
          Record r = usual_records()[0];
          r.span.back() = 6;
          char* const around = in_block(r.bytes());
          attach(around);
          r.span.back() = 7;
          attach(in_block(r.bytes()));
          const pid_t child = fork();
          if (child < 0) die("fork");
          attach(around);
          if (child == 0) {
            wait_for_the_end();
            _exit(0);
          }
          reap_at_exit(child);
        }});
}

void good_fork_in_a_span() { fork_in_spans(false); }

void good_fork_twice_in_a_span() { fork_in_spans(true); }

// The child has its own context and names.
void good_fork_child_publishes() {
  play({.records = {usual_bytes()[0]}, .meanwhile = [](const Region&) {
          const pid_t child = fork();
          if (child < 0) die("fork");
          if (child == 0) {
            publish(context_with(reference_data({"child.name"})));
            Record r = usual_records()[0];
            r.entries = {entry(0, "of the child")};
            attach(in_block(r.bytes()));
            wait_for_the_end();
            _exit(0);
          }
          reap_at_exit(child);
        }});
}

// The parent has no context of either kind, so the child's record is its own.
void bad_fork_attaches() {
  play({.context = {}, .records = {}, .meanwhile = [](const Region&) {
          tell_thread("still");
          std::array<int, 2> ends{};
          if (pipe2(ends.data(), O_CLOEXEC) != 0) die("pipe");
          const pid_t child = fork();
          if (child < 0) die("fork");
          if (child == 0) {
            attach(in_block(usual_bytes()[0]));
            if (write(ends[1], "", 1) != 1) _exit(1);
            wait_for_the_end();
            _exit(0);
          }
          char attached = 0;
          if (read(ends[0], &attached, 1) != 1) die("read");
          for (const int end : ends) close(end);
          reap_at_exit(child);
        }});
}

constexpr Case kBadFork[] = {
    {"tctx.refdata.schema-version-present:fork",
     "forks a child that attaches and publishes nothing", bad_fork_attaches},
};

constexpr Case kGoodFork[] = {
    {"fork-inherits", "forks a child that does nothing", good_fork_inherits},
    {"fork-in-a-span", "opens spans for a moment, and forks in them", good_fork_in_a_span},
    {"fork-twice-in-a-span", "does the same, and the child forks once more",
     good_fork_twice_in_a_span},
    {"fork-pops", "forks a child that goes back to the span around that of the fork",
     good_fork_pops},
    {"fork-pops-unseen", "does the same, and that span was open for a moment only",
     good_fork_pops_to_an_unseen_span},
    {"fork-child-publishes", "forks a child that has its own context", good_fork_child_publishes},
};

}  // namespace

const Topic kForkCases{kBadFork, kGoodFork};

}  // namespace ctxconf::testees
