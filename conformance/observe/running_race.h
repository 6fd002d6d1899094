// Level race: the reader that races with a program, for one image at a time.
#pragma once

#include <chrono>
#include <memory>

#include "conformance/observe/image_recorder.h"
#include "conformance/observe/race.h"
#include "conformance/observe/wrap.h"

namespace ctxconf::conformance {

class RunningRace {
 public:
  // `options` must outlive this.
  explicit RunningRace(const WrapOptions& options) : options_(options) {}

  // A reader copies the context of the image again and again until end(). If that is impossible,
  // the image says why. The image must not end before end_in().
  void begin(ImageRecorder& image);
  // The image gets what the reader saw.
  void end();
  // The same if the race is in this image.
  void end_in(const ImageRecorder& image);

 private:
  const WrapOptions& options_;
  std::unique_ptr<RacingReader> reader_;
  ImageRecorder* image_ = nullptr;  // of the reader
  std::chrono::steady_clock::time_point begun_;
};

}  // namespace ctxconf::conformance
