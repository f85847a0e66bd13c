#ifndef ANNULUS_CLIENT_TRANSPORT_RAW_STREAM_H_
#define ANNULUS_CLIENT_TRANSPORT_RAW_STREAM_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/client_callback.h"

namespace annulus {

using Metadata = std::multimap<std::string, std::string>;

// One gRPC call of any kind, as a stream of raw messages. At most one write and one read may be
// outstanding: the caller must wait for the callback before it starts the next. Methods may be
// called from any thread and do not block. After the end of the stream or Cancel() they do nothing.
class RawStream : private grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  struct Call {
    std::shared_ptr<grpc::Channel> channel;
    std::string method;   // "/package.Service/Method"
    absl::Time deadline;  // On the clock of base/steady_time.h.
    Metadata metadata;
  };
  // Called on gRPC's threads. on_read calls are serialised, and so are on_written calls. on_done is
  // the last call and comes once, also after Cancel(). They must not block. The stream keeps them,
  // with what they capture, until on_done has returned.
  struct Handlers {
    std::function<void(grpc::ByteBuffer)> on_read;
    std::function<void()> on_written;
    std::function<void(absl::Status)> on_done;
  };

  static std::shared_ptr<RawStream> Start(Call call, Handlers handlers);

  // The first write sends the call's headers; before it nothing is on the wire.
  void Write(grpc::ByteBuffer message) EXCLUDES(mutex_) { StartWriteOf(std::move(message), {}); }
  // Writes the last message and half-closes.
  void WriteLast(grpc::ByteBuffer message) EXCLUDES(mutex_) {
    StartWriteOf(std::move(message), grpc::WriteOptions().set_last_message());
  }
  void HalfClose() EXCLUDES(mutex_);
  // Requests the next message. A stream ends only after all its messages have been read, or after
  // Cancel().
  // cancelled.
  void Read() EXCLUDES(mutex_);
  void Cancel() EXCLUDES(mutex_);

  ~RawStream() override = default;

 private:
  RawStream() = default;
  void StartWriteOf(grpc::ByteBuffer message, const grpc::WriteOptions& options) EXCLUDES(mutex_);
  void Close() EXCLUDES(mutex_);
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  grpc::ClientContext context_;
  Handlers handlers_;
  std::shared_ptr<RawStream> self_;  // Set until OnDone.
  grpc::ByteBuffer in_;
  grpc::ByteBuffer out_;
  Mutex mutex_;
  // True while operations may be started. The call then has a hold (AddHold).
  bool open_ GUARDED_BY(mutex_) = true;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_TRANSPORT_RAW_STREAM_H_
