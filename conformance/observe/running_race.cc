#include "conformance/observe/running_race.h"

#include <cstdint>
#include <utility>

namespace ctxconf::conformance {

void RunningRace::begin(ImageRecorder& image) {
  const auto header = image.snapshots().header();
  if (!header) return image.no_race("there was no context to read");
  auto reader = RacingReader::start(image.image().key.pid, *header, image.image().elf64,
                                    std::chrono::duration_cast<std::chrono::milliseconds>(
                                        options_.memory_deadline * options_.timeout_scale),
                                    options_.unreachable);
  if (!reader) return image.no_race(sys::to_string(reader.error()));
  reader_ = *std::move(reader);
  image_ = &image;
  begun_ = std::chrono::steady_clock::now();
}

void RunningRace::end() {
  if (!reader_) return;
  Race race = std::exchange(reader_, nullptr)->finish();
  race.duration_ns =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                     std::chrono::steady_clock::now() - begun_)
                                     .count());
  if (image_->races().size() < kMaxRaces) image_->races().push_back(std::move(race));
}

void RunningRace::end_in(const ImageRecorder& image) {
  if (image_ == &image) end();
}

}  // namespace ctxconf::conformance
