// The contexts of each thread, and how they are shown.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "conformance/testees/adapter_loop.h"
#include "conformance/testees/driven_thread/record.h"
#include "conformance/testees/driven_thread/reference_data.h"

namespace ctxconf::testees {

using adapter::Loop;

extern const Choices kThreadsChoices;

struct Stack {
  std::vector<Content> contexts;  // innermost last
  std::vector<Bytes> ended;       // entries of the context that has ended last
  char* fixed = nullptr;          // the thread's only record, where the valid byte is the switch
};

class Threads {
 public:
  explicit Threads(Process& process) : process_(process) {}
  void begin_main();
  void begin_thread();
  bool any_attached();
  Reply attach(const json& request);
  Reply append(const json& request);
  Reply shrink(const json& request);
  Reply detach(const json& request);
  Reply move(Loop& loop, const json& request);
  Reply churn(const json& request);
  void hide_on_main();
  Reply block();
  // The thread is about to end, with what is attached.
  void end_thread(const std::string& thread);
  void forget_in_child();

 private:
  void churn_on(const std::string& thread, unsigned number, unsigned iterations);
  // Returns `digits` digits, different each time.
  std::string numbered(std::size_t digits) const;
  Stack& stack_of(const json& request) { return stacks_[request.value("thread", "main")]; }
  char* record_of(const Stack& stack) const;
  // Shows the innermost context of this thread, which has just begun, or is there again.
  void show(Stack& stack, bool begins);
  static bool hides(const Content& c);
  static void inherit(Content& c, const Content& outer);
  Reply add_attributes(Content& c, const json& attributes);

  Process& process_;
  std::mutex lock_;
  std::map<std::string, Stack> stacks_;
  void** main_slot_ = nullptr;
  char* shared_ = nullptr;
  char* const none_ = new_record();  // never valid
  char* last_ = nullptr;             // the record that was shown last
  char* left_behind_ = nullptr;      // by the last thread that ended with a context
  std::vector<Bytes> earlier_;       // entries of the context that ended before the last one
  unsigned made_ = 0;                // contexts with its own ids
};

}  // namespace ctxconf::testees
