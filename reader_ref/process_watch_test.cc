#include "reader_ref/process_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

#include "reader_ref/target_child.h"

namespace ctxconf::reader {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr auto kLong = 20s;
constexpr WatchOptions kOften{.interval = 1ms, .relist = 0ms};

// What a watch has reported.
class Reports {
 public:
  ProcessWatch::Report to() {
    return [this](json event) {
      const std::lock_guard guard(lock_);
      events_.push_back(std::move(event));
      changed_.notify_all();
    };
  }
  // The first with this result from number `from` on, of a thread or of the process.
  json wait_for(const char* result, bool of_thread, std::size_t from = 0) {
    std::unique_lock guard(lock_);
    json found;
    changed_.wait_for(guard, kLong, [&] {
      for (std::size_t i = from; i < events_.size() && found.is_null(); ++i) {
        if (events_[i]["result"] == result && events_[i].contains("tid") == of_thread) {
          found = events_[i];
        }
      }
      return !found.is_null();
    });
    return found;
  }
  std::size_t size() {
    const std::lock_guard guard(lock_);
    return events_.size();
  }

 private:
  std::mutex lock_;
  std::condition_variable changed_;
  std::vector<json> events_;
};

TEST(ProcessWatch, ReportsTheFirstLookAndEachChange) {
  Target target;
  Reports reports;
  ProcessWatch watch(target.pid(), kOften, reports.to());
  const json process = reports.wait_for("accept", false);
  EXPECT_EQ(process["ev"], "saw");
  EXPECT_EQ(process["pid"], target.pid());
  EXPECT_TRUE(process["context"].contains("attributes")) << process;
  const json thread = reports.wait_for("accept", true);
  EXPECT_NE(thread["tid"], target.pid()) << "has no context";
  EXPECT_TRUE(thread["record"].contains("trace_id")) << thread;

  const std::size_t before = reports.size();
  target.order("grow name");
  EXPECT_NE(reports.wait_for("accept", false, before)["context"], process["context"]);
  target.order("drop");
  EXPECT_TRUE(reports.wait_for("absent", false, before).is_object());
  EXPECT_EQ(reports.wait_for("absent", true, before)["tid"], thread["tid"]);
  EXPECT_FALSE(watch.has_ended());
}

TEST(ProcessWatch, EndsWithTheProcess) {
  Target target;
  Reports reports;
  const ProcessWatch watch(target.pid(), kOften, reports.to());
  EXPECT_TRUE(reports.wait_for("accept", true).is_object());
  target.end();
  EXPECT_TRUE(reports.wait_for("absent", false).is_object());
  EXPECT_TRUE(reports.wait_for("absent", true).is_object());
  const auto latest = std::chrono::steady_clock::now() + kLong;
  while (!watch.has_ended() && std::chrono::steady_clock::now() < latest) usleep(1000);
  EXPECT_TRUE(watch.has_ended());
}

TEST(ProcessWatch, ReportsNothingAfterItsEnd) {
  const Target target;
  Reports reports;
  {
    const ProcessWatch watch(target.pid(), kOften, reports.to());
    EXPECT_TRUE(reports.wait_for("accept", false).is_object());
  }
  const std::size_t before = reports.size();
  target.order("grow name");
  usleep(20'000);
  EXPECT_EQ(reports.size(), before);
}

}  // namespace
}  // namespace ctxconf::reader
