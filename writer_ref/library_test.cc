// The shared library as the loader and the linker see it.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <stdio.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "writer_ref/otel_ctx.h"
#include "writer_ref/otel_thread_ctx.h"

namespace {

std::vector<std::string> lines_of(const std::string& command) {
  std::vector<std::string> out;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::array<char, 1024> line{};
  while (fgets(line.data(), line.size(), pipe.get()) != nullptr) {
    out.emplace_back(line.data());
    out.back().pop_back();
  }
  return out;
}

TEST(Library, ExportsTheFunctionsOfTheHeaderAndNothingElse) {
  auto symbols = lines_of("nm -D --defined-only --format=just-symbols " CTXCONF_WRITER_SHARED);
  std::erase_if(symbols, [](const std::string& s) { return s.starts_with("OTEL_CTX_0"); });
  std::ranges::sort(symbols);
  const std::vector<std::string> expected = {
      "otel_ctx_describe@@OTEL_CTX_0",
      "otel_ctx_drop@@OTEL_CTX_0",
      "otel_ctx_get_info@@OTEL_CTX_0",
      "otel_ctx_publish@@OTEL_CTX_0",
      "otel_ctx_update@@OTEL_CTX_0",
      "otel_thread_ctx_append@@OTEL_CTX_0",
      "otel_thread_ctx_attach@@OTEL_CTX_0",
      "otel_thread_ctx_begin@@OTEL_CTX_0",
      "otel_thread_ctx_end@@OTEL_CTX_0",
      "otel_thread_ctx_init_thread@@OTEL_CTX_0",
      "otel_thread_ctx_key@@OTEL_CTX_0",
      "otel_thread_ctx_key_count@@OTEL_CTX_0",
      "otel_thread_ctx_register_key@@OTEL_CTX_0",
      "otel_thread_ctx_shrink@@OTEL_CTX_0",
      "otel_thread_ctx_v1"};  // unversioned: one slot for all libraries that define it
  EXPECT_EQ(symbols, expected);
}

// Exported as thread-local, and accessed only through a TLS descriptor.
TEST(Library, ReachesTheSlotThroughADescriptor) {
  const auto named = [](const std::string& option) {
    auto lines = lines_of("readelf -W " + option + " " CTXCONF_WRITER_SHARED);
    std::erase_if(lines, [](const std::string& s) {
      return s.find("otel_thread_ctx_v1") == std::string::npos;
    });
    return lines;
  };
  const auto symbols = named("--dyn-syms");
  ASSERT_EQ(symbols.size(), 1U);
  EXPECT_NE(symbols[0].find(" TLS     GLOBAL DEFAULT "), std::string::npos) << symbols[0];
  const auto relocations = named("--relocs");
  ASSERT_FALSE(relocations.empty());
  for (const auto& line : relocations) EXPECT_NE(line.find("TLSDESC"), std::string::npos) << line;
}

// Attaches in a library that was loaded late, and checks in the last destructor of the thread.
TEST(Library, HasASlotPerThreadWhenLoadedLate) {
  void* const library = dlopen(CTXCONF_WRITER_SHARED, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  static const auto kAttach =
      reinterpret_cast<decltype(&otel_thread_ctx_attach)>(dlsym(library, "otel_thread_ctx_attach"));
  static const auto kInit = reinterpret_cast<decltype(&otel_thread_ctx_init_thread)>(
      dlsym(library, "otel_thread_ctx_init_thread"));
  static const auto kSlot = [library] {
    return static_cast<otel_thread_ctx_record**>(dlsym(library, "otel_thread_ctx_v1"));
  };
  ASSERT_TRUE(kAttach != nullptr && kInit != nullptr);
  static otel_thread_ctx_record record;
  static otel_thread_ctx_record** slot;
  static otel_thread_ctx_record* at_the_end;
  otel_thread_ctx_record** const own_slot = kSlot();
  ASSERT_EQ(kInit(), OTEL_THREAD_CTX_OK);
  pthread_key_t later;
  ASSERT_EQ(pthread_key_create(&later, [](void*) { at_the_end = *slot; }), 0);
  at_the_end = &record;
  std::thread([&] {
    slot = kSlot();
    EXPECT_EQ(*slot, nullptr);
    EXPECT_EQ(kInit(), OTEL_THREAD_CTX_OK);
    pthread_setspecific(later, &record);
    EXPECT_EQ(kAttach(&record), nullptr);
    EXPECT_EQ(*slot, &record);
  }).join();
  EXPECT_NE(slot, own_slot);
  EXPECT_EQ(*own_slot, nullptr);
  EXPECT_EQ(at_the_end, nullptr);
  pthread_key_delete(later);
  dlclose(library);
}

TEST(Library, NeedsNothingButLibc) {
  for (const auto& line : lines_of("readelf -dW " CTXCONF_WRITER_SHARED)) {
    if (line.find("(NEEDED)") != std::string::npos) {
      EXPECT_NE(line.find("[libc."), std::string::npos) << line;
    }
  }
  for (const char* file : {CTXCONF_WRITER_SHARED, CTXCONF_WRITER_STATIC}) {
    const auto symbols = lines_of(std::string("nm -u --format=just-symbols ") + file);
    EXPECT_GT(symbols.size(), 10U) << file;
    for (const auto& symbol : symbols) {
      const bool ours = symbol.starts_with("_ZN7ctxconf6writer");  // between members of the archive
      EXPECT_TRUE(ours || !symbol.starts_with("_Z")) << symbol << " in " << file;
      for (const char* prefix : {"__cxa_guard", "__cxa_throw", "__cxa_pure", "__gxx", "_Unwind"}) {
        EXPECT_FALSE(symbol.starts_with(prefix)) << symbol << " in " << file;
      }
    }
  }
}

int contexts() {
  int count = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    count += static_cast<int>(line.find("OTEL_CTX") != std::string::npos);
  }
  return count;
}

// If it could be unloaded and loaded again, it would publish a second context.
TEST(Library, KnowsItsContextAfterUnloading) {
  for (int i = 0; i < 2; ++i) {
    void* const library = dlopen(CTXCONF_WRITER_SHARED, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    const auto publish =
        reinterpret_cast<decltype(&otel_ctx_publish)>(dlsym(library, "otel_ctx_publish"));
    ASSERT_NE(publish, nullptr);
    EXPECT_EQ(publish("x", 1, nullptr), OTEL_CTX_OK);
    EXPECT_EQ(contexts(), 1);
    EXPECT_EQ(dlclose(library), 0);
  }
  EXPECT_EQ(contexts(), 1);
}

}  // namespace
