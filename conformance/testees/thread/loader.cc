// Cases about where the slot comes from.
#include <dlfcn.h>

#include <atomic>
#include <thread>

#include "conformance/testees/thread/loaded_slot.h"
#include "conformance/testees/thread/scene.h"
#include "conformance/testees/thread/topics.h"
#include "conformance/testees/thread/usual.h"
#include "conformance/testees/writer/program.h"

namespace ctxconf::testees {
namespace {

void with_library(const char* file) {
  take_slot_of(file);
  play({});
}

// Nothing is attached, because there is no slot.
void without_slot(const char* file) {
  (void)open_library(file);
  play({.records = {}});
}

void bad_dynsym_exported() { with_library("slot_hidden.so"); }

void bad_symbol_type() { without_slot("slot_ordinary.so"); }

void bad_symbol_defined() { without_slot("slot_undefined.so"); }

void bad_access_model() { with_library("slot_only.so"); }

void bad_not_local_dynamic() { with_library("slot_local_dynamic.so"); }

void bad_prefers_tlsdesc() { with_library("slot_general_dynamic.so"); }

void bad_is_pointer() {
  take_slot_of("slot_record.so");
  const Region r = publish(usual_message());
  const Bytes bytes = usual_bytes()[0];
  bytes.copy(reinterpret_cast<char*>(slot()), bytes.size());
  announce_ready(&r);
  wait_for_the_end();
}

// There are two copies of an SDK: main uses one, another thread the other.
void bad_one_definition() {
  void* second = open_library("slot_initial_exec.so");
  auto* second_slot = reinterpret_cast<void* (*)()>(dlsym(second, "slot_place"));
  take_slot_of("slot_tlsdesc.so");
  const Region r = publish(usual_message());
  attach(in_block(usual_bytes()[0]));
  tell_thread("still");
  {
    Threads threads;
    threads.start([second_slot] {
      *static_cast<void**>(second_slot()) = in_block(usual_bytes()[1]);
      ++attached;
      stay(Stay::kAsleep);
    });
    announce_ready(&r);
    wait_for_the_end();
  }
  detach();
}

// One copy of an SDK is exported, and the other is not.
void bad_second_copy_hidden() {
  void* hidden = open_library("slot_hidden.so");
  auto* hidden_slot = reinterpret_cast<void* (*)()>(dlsym(hidden, "slot_place"));
  take_slot_of("slot_tlsdesc.so");
  const Region r = publish(usual_message());
  attach(in_block(usual_bytes()[0]));
  {
    Threads threads;
    threads.start([hidden_slot] {
      *static_cast<void**>(hidden_slot()) = in_block(usual_bytes()[1]);
      ++attached;
      stay(Stay::kAsleep);
    });
    announce_ready(&r);
    wait_for_the_end();
  }
  detach();
}

// The library has something of that name, and the program has no thread context.
void without_thread_context(const char* file) {
  (void)open_library(file);
  play({.context = context_with({}), .records = {}});
}

void good_asks_only() { without_thread_context("slot_undefined.so"); }

void good_unused_definition() { without_thread_context("slot_only.so"); }

void good_unused_hidden_definition() { without_thread_context("slot_hidden.so"); }

void good_unused_copy() {
  (void)open_library("slot_only.so");
  with_library("slot_tlsdesc.so");
}

void good_unused_hidden_copy() {
  (void)open_library("slot_hidden.so");
  with_library("slot_tlsdesc.so");
}

// Both copies are in the global scope, where the loader binds all to the first.
void good_interposed() {
  (void)open_library("slot_tlsdesc.so", RTLD_GLOBAL);
  with_library("slot_general_dynamic.so");
}

void good_tlsdesc() { with_library("slot_tlsdesc.so"); }

void good_general_dynamic() { with_library("slot_general_dynamic.so"); }

void good_initial_exec() { with_library("slot_initial_exec.so"); }

void good_symbolic() { with_library("slot_symbolic.so"); }

void good_symbolic_general_dynamic() { with_library("slot_symbolic_general_dynamic.so"); }

// One module defines the variable, and another has all the relocations.
void good_used_elsewhere() {
  (void)open_library("slot_only.so", RTLD_GLOBAL);
  with_library("slot_undefined.so");
}

// The library comes when there are threads, whose blocks are made on demand.
void good_late_library() {
  const Region r = publish(usual_message());
  std::atomic<bool> loaded{false};
  Threads threads;
  std::thread early([&] {
    loaded.wait(false);
    hold_record(in_block(usual_bytes()[2]), Stay::kAsleep);
  });
  std::thread idle([] { stay(Stay::kAsleep); });
  pause();
  take_slot_of("slot_tlsdesc.so");
  loaded = true;
  loaded.notify_all();
  while (attached.load() < 1) sleep_ms(1);
  announce_ready(&r);
  wait_for_the_end();
  done = true;
  done.notify_all();
  early.join();
  idle.join();
}

constexpr Case kBadLoader[] = {
    {"tctx.tls.dynsym-exported", "has the slot in .symtab only", bad_dynsym_exported},
    {"tctx.tls.dynsym-exported:second-copy", "uses an exported slot and a hidden one",
     bad_second_copy_hidden},
    {"tctx.tls.symbol-type", "has an ordinary pointer of that name", bad_symbol_type},
    {"tctx.tls.symbol-defined", "has nothing but an undefined entry", bad_symbol_defined},
    {"tctx.tls.access-model", "reaches the slot through dlsym only", bad_access_model},
    {"tctx.tls.not-local-dynamic", "reaches the slot by local dynamic", bad_not_local_dynamic},
    {"tctx.tls.prefers-tlsdesc", "reaches the slot by traditional general dynamic",
     bad_prefers_tlsdesc},
    {"tctx.tls.is-pointer", "makes the record itself thread-local", bad_is_pointer},
    {"tctx.tls.one-definition", "loads two libraries with a copy each", bad_one_definition},
};

constexpr Case kGoodLoader[] = {
    {"tlsdesc", "reaches the slot by TLSDESC", good_tlsdesc},
    {"general-dynamic", "reaches the slot by module and offset", good_general_dynamic},
    {"initial-exec", "reaches the slot by an offset from the thread pointer", good_initial_exec},
    {"symbolic", "reaches the slot by TLSDESC, bound inside the library", good_symbolic},
    {"symbolic-general-dynamic", "does the same by module and offset",
     good_symbolic_general_dynamic},
    {"used-elsewhere", "has relocations in another module than the definition",
     good_used_elsewhere},
    {"late-library", "loads the library when threads exist already", good_late_library},
    {"asks-only", "has a weak reference that nothing defines", good_asks_only},
    {"unused-definition", "has a slot to which nothing refers", good_unused_definition},
    {"unused-hidden-definition", "has the slot in .symtab only, and does not use it",
     good_unused_hidden_definition},
    {"unused-copy", "uses one slot, and has another to which nothing refers", good_unused_copy},
    {"unused-hidden-copy", "uses an exported slot, and has a hidden one", good_unused_hidden_copy},
    {"interposed", "has two definitions; the loader takes one of them", good_interposed},
};

}  // namespace

const Topic kLoaderCases{kBadLoader, kGoodLoader};

}  // namespace ctxconf::testees
