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

// Writes log lines to a file descriptor whose reader may have stopped reading, such as a pipe or a
// terminal. Thread-safe.
//
// - A write of a line waits at most `patience` for room. After a timeout, later lines do not wait
//   until there is room again.
// - A line that finds no room is dropped. The next line that is written follows a note with the
//   number of dropped lines.
// - The sink opens a pipe or a terminal again in non-blocking mode. If that fails (another user's,
//   or no /proc), it polls for room before each piece. Other writers may then take the room first.
// - It does not follow the descriptor if that is later redirected.
class NonblockingSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  // `lost` returns the text of the note for a number of dropped lines, in the form of the other
  // lines. `file` is not owned; its mode stays unchanged for its other writers.
  NonblockingSink(int file, absl::Duration patience, std::function<std::string(int64_t)> lost);
  ~NonblockingSink() override;

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}

 private:
  // Writes `text` and returns true if all of it was written. Waits for room until `until`, unless
  // the previous write found none.
  bool Write(absl::string_view text, absl::Time until);
  bool WriteMessage(const spdlog::details::log_msg& message);

  const int own_;   // A descriptor opened in non-blocking mode, owned; -1: none.
  const int file_;  // The descriptor written to.
  const bool socket_;
  const absl::Duration patience_;
  const std::function<std::string(int64_t)> lost_;
  int64_t dropped_ = 0;
  bool stalled_ = false;  // True if the last write found no room.
  bool cut_ = false;      // True if the last line was written only in part.
};

}  // namespace annulus

#endif  // ANNULUS_BASE_NONBLOCKING_SINK_H_
