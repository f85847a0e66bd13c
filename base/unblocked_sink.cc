#include "base/unblocked_sink.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

namespace annulus {

// A pipe that takes anything takes so much without a wait.
constexpr size_t kPiece = PIPE_BUF;

UnblockedSink::UnblockedSink(int file, absl::Duration patience,
                             std::function<std::string(int64_t)> lost)
    : file_(file), patience_(patience), lost_(std::move(lost)) {}

bool UnblockedSink::HasRoom() {
  pollfd asked{file_, POLLOUT, 0};
  const auto wait = stalled_ ? 0 : static_cast<int>(absl::ToInt64Milliseconds(patience_));
  const int ready = poll(&asked, 1, wait);
  stalled_ = ready == 0;
  return ready != 0;  // Where it cannot be asked, write() says why not.
}

bool UnblockedSink::Write(absl::string_view line) {
  while (!line.empty()) {
    if (!HasRoom()) return false;
    const ssize_t written = write(file_, line.data(), std::min(line.size(), kPiece));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    line.remove_prefix(static_cast<size_t>(written));
    cut_ = !line.empty();
  }
  return true;
}

bool UnblockedSink::WriteMessage(const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t line;
  formatter_->format(message, line);
  return (!cut_ || Write("\n")) && Write({line.data(), line.size()});
}

void UnblockedSink::sink_it_(const spdlog::details::log_msg& message) {
  if (dropped_ > 0) {
    const std::string text = lost_(dropped_);
    spdlog::details::log_msg note = message;
    note.level = spdlog::level::warn;
    note.payload = spdlog::string_view_t(text.data(), text.size());
    if (WriteMessage(note)) dropped_ = 0;
  }
  if (dropped_ > 0 || !WriteMessage(message)) ++dropped_;
}

}  // namespace annulus
