#ifndef ANNULUS_SERVER_SERVICES_OUTBOX_H_
#define ANNULUS_SERVER_SERVICES_OUTBOX_H_

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "base/mutex.h"

namespace annulus {

// Messages that wait to be written on one stream, with gRPC's rule: one write at a time, and the
// end once and last. It returns what to start; the stream's reactor starts it. Thread-safe, never
// blocks.
template <typename Message>
class Outbox {
 public:
  // kYes: the last write may carry an OK end. kNo for reactors that start writes and the end
  // separately.
  enum class JoinEnd : bool { kNo, kYes };

  // The largest number of waiting messages, and of their bytes.
  Outbox(size_t max_messages, size_t max_bytes, JoinEnd join = JoinEnd::kYes)
      : max_messages_(max_messages), max_bytes_(max_bytes), join_(join) {}

  // The operation that the reactor must start now: a write of front(), the end, both as one, or
  // nothing.
  enum class Start : char { kNothing, kWrite, kFinish, kWriteAndFinish };

  // Queues a message. If the box is full, `*overflow` is true and the message is dropped; the
  // caller then gives up the peer.
  Start Push(Message message, bool* overflow) EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    return TakeLocked(std::move(message), overflow) ? NextLocked() : Start::kNothing;
  }

  // Queues the last message, followed by an OK end.
  Start PushLast(Message message, bool* overflow) EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    if (!TakeLocked(std::move(message), overflow)) return Start::kNothing;
    end_ = absl::OkStatus();
    return NextLocked();
  }

  // Ends the stream after the waiting messages; with Flush::kNo at once. The first end counts.
  enum class Flush : bool { kNo, kYes };
  Start End(absl::Status status, Flush flush) EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    if (end_.has_value()) return Start::kNothing;
    end_ = std::move(status);
    if (flush == Flush::kNo) {
      // The message that is being written stays, as gRPC reads it.
      while (waiting_.size() > (writing_ ? 1u : 0u)) waiting_.pop_back();
    }
    return NextLocked();
  }

  // The write has ended. With `ok` false the stream is broken and gets no more writes.
  Start Written(bool ok) EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    bytes_ -= waiting_.front().second;
    waiting_.pop_front();
    writing_ = false;
    if (!ok) {
      waiting_.clear();
      bytes_ = 0;
      if (!end_.has_value()) end_ = absl::CancelledError("the stream is broken");
    }
    return NextLocked();
  }

  // Bytes of the messages that wait or are being written.
  size_t bytes() EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    return bytes_;
  }
  // Valid between kWrite and Written, and after kWriteAndFinish: the message does not move
  // meanwhile.
  const Message& front() EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    return waiting_.front().first;
  }
  // Valid after kFinish and kWriteAndFinish.
  absl::Status end() EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    return *end_;
  }

 private:
  bool TakeLocked(Message message, bool* overflow) REQUIRES(mutex_) {
    *overflow = false;
    if (end_.has_value()) return false;
    const size_t bytes = message.ByteSizeLong();
    *overflow = waiting_.size() >= max_messages_ || bytes_ + bytes > max_bytes_;
    if (*overflow) return false;
    bytes_ += bytes;
    waiting_.emplace_back(std::move(message), bytes);
    return true;
  }

  Start NextLocked() REQUIRES(mutex_) {
    if (writing_ || finished_) return Start::kNothing;
    const bool join = join_ == JoinEnd::kYes && end_.has_value() && end_->ok();
    if (waiting_.size() == 1 && join) {
      finished_ = true;
      return Start::kWriteAndFinish;
    }
    if (!waiting_.empty()) {
      writing_ = true;
      return Start::kWrite;
    }
    if (!end_.has_value()) return Start::kNothing;
    finished_ = true;
    return Start::kFinish;
  }

  const size_t max_messages_;
  const size_t max_bytes_;
  const JoinEnd join_;
  Mutex mutex_;
  // The first message is being written. A deque, because its elements do not move when others are
  // added.
  std::deque<std::pair<Message, size_t>> waiting_ GUARDED_BY(mutex_);
  size_t bytes_ GUARDED_BY(mutex_) = 0;
  bool writing_ GUARDED_BY(mutex_) = false;
  bool finished_ GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ GUARDED_BY(mutex_);
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_SERVICES_OUTBOX_H_
