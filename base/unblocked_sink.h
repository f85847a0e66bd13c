#ifndef ANNULUS_BASE_UNBLOCKED_SINK_H_
#define ANNULUS_BASE_UNBLOCKED_SINK_H_

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "spdlog/sinks/base_sink.h"

namespace annulus {

// Lines to a file descriptor that nobody may be reading, as a pipe whose reader stands still: who
// logs waits for `patience` once, and after that for nothing until there is room again. Lines that
// find none are dropped, and the next one that finds some comes behind one that says how many.
// Thread-safe.
class UnblockedSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  // `lost`: what a line says for so many that were dropped, in the form of the lines' text. `file`
  // is not owned.
  UnblockedSink(int file, absl::Duration patience, std::function<std::string(int64_t)> lost);

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}

 private:
  // Whether there is room now or soon.
  bool HasRoom();
  // Whether all of it was written.
  bool Write(absl::string_view line);
  bool WriteMessage(const spdlog::details::log_msg& message);

  const int file_;
  const absl::Duration patience_;
  const std::function<std::string(int64_t)> lost_;
  int64_t dropped_ = 0;
  bool stalled_ = false;  // There was no room the last time.
  bool cut_ = false;      // The last line had no end.
};

}  // namespace annulus

#endif  // ANNULUS_BASE_UNBLOCKED_SINK_H_
