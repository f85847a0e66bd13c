#include "base/nonblocking_sink.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/steady_time.h"

namespace annulus {
namespace {

// A pipe that is ready for writing takes this much in one piece and, from its only writer, without
// blocking.
constexpr size_t kPiece = PIPE_BUF;

mode_t KindOf(int file) {
  struct stat status = {};
  return fstat(file, &status) == 0 ? status.st_mode & S_IFMT : 0;
}

// Opens a new description, because the one of `file` must stay blocking for its other writers. Not
// for regular files: a new description would have a write position of its own.
int OpenUnblocked(int file) {
  const mode_t kind = KindOf(file);
  if (kind != S_IFIFO && kind != S_IFCHR) return -1;
  return open(absl::StrCat("/proc/self/fd/", file).c_str(),
              O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

}  // namespace

NonblockingSink::NonblockingSink(int file, absl::Duration patience,
                                 std::function<std::string(int64_t)> lost)
    : own_(OpenUnblocked(file)),
      file_(own_ < 0 ? file : own_),
      socket_(KindOf(file) == S_IFSOCK),
      patience_(patience),
      lost_(std::move(lost)) {}

NonblockingSink::~NonblockingSink() {
  if (own_ >= 0) close(own_);
}

bool NonblockingSink::Write(absl::string_view text, absl::Time until) {
  while (!text.empty()) {
    const absl::Duration wait = stalled_ ? absl::ZeroDuration() : until - SteadyNow();
    pollfd asked{file_, POLLOUT, 0};
    const int ready =
        poll(&asked, 1, static_cast<int>(std::max<int64_t>(0, absl::ToInt64Milliseconds(wait))));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) stalled_ = true;
    if (ready <= 0) return false;
    const size_t piece = std::min(text.size(), kPiece);
    const ssize_t written = socket_ ? send(file_, text.data(), piece, MSG_DONTWAIT | MSG_NOSIGNAL)
                                    : write(file_, text.data(), piece);
    if (written < 0 && errno == EAGAIN && wait > absl::ZeroDuration()) {
      poll(nullptr, 0, 1);  // A terminal may report room when it has none.
      continue;
    }
    if (written < 0 && errno == EINTR) continue;
    stalled_ = written < 0 && errno == EAGAIN;
    if (written < 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
    cut_ = !text.empty();
  }
  return true;
}

bool NonblockingSink::WriteMessage(const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t line;
  formatter_->format(message, line);
  const absl::Time until = SteadyNow() + patience_;
  return (!cut_ || Write("\n", until)) && Write({line.data(), line.size()}, until);
}

void NonblockingSink::sink_it_(const spdlog::details::log_msg& message) {
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
