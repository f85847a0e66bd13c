#ifndef ANNULUS_BASE_NONBLOCKING_SINK_H_
#define ANNULUS_BASE_NONBLOCKING_SINK_H_

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "spdlog/sinks/base_sink.h"

namespace annulus {

// Lines to a file descriptor that nobody may be reading, as a pipe or a terminal whose reader
// stands still: a line waits for `patience` in all, and where that was in vain those after it for
// nothing until there is room again. What finds none is dropped, and the next line that finds some
// comes behind one that says how many were. Where a pipe or a terminal cannot be opened anew
// (another user's, no /proc) it is asked for room before each piece, which others may take
// meanwhile. What the descriptor becomes later is not followed. Thread-safe.
class NonblockingSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  // `lost`: what a line says for so many that were dropped, in the form of the lines' text. `file`
  // is not owned, and its own writers' way with it stays as it is.
  NonblockingSink(int file, absl::Duration patience, std::function<std::string(int64_t)> lost);
  ~NonblockingSink() override;

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}

 private:
  // Whether all of it was written; waits for room until then, unless there was none before.
  bool Write(absl::string_view text, absl::Time until);
  bool WriteMessage(const spdlog::details::log_msg& message);

  const int own_;   // A description that does not block; −1 where there is none.
  const int file_;  // What is written to.
  const bool socket_;
  const absl::Duration patience_;
  const std::function<std::string(int64_t)> lost_;
  int64_t dropped_ = 0;
  bool stalled_ = false;  // There was no room the last time.
  bool cut_ = false;      // The last line had no end.
};

}  // namespace annulus

#endif  // ANNULUS_BASE_NONBLOCKING_SINK_H_
