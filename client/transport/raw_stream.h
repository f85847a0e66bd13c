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

// One gRPC call of any kind as a stream of raw messages. At most one write and one read are under
// way; who asks for more before the callback breaks the contract. Every method may be called from
// any thread and never waits; after the end of the stream or Cancel() they do nothing.
class RawStream : private grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  struct Call {
    std::shared_ptr<grpc::Channel> channel;
    std::string method;   // "/package.Service/Method"
    absl::Time deadline;  // By base/steady_time.h.
    Metadata metadata;
  };
  // Called from gRPC's threads: on_read and on_written each one at a time, on_done last and once,
  // also after Cancel(). They must not wait. The stream holds them (and what they capture) until
  // on_done returns.
  struct Handlers {
    std::function<void(grpc::ByteBuffer)> on_read;
    std::function<void()> on_written;
    std::function<void(absl::Status)> on_done;
  };

  static std::shared_ptr<RawStream> Start(Call call, Handlers handlers);

  // A stream begins with a write: until then not even its call is made.
  void Write(grpc::ByteBuffer message) EXCLUDES(mutex_) { StartWriteOf(std::move(message), {}); }
  // The last message and the half-close in one.
  void WriteLast(grpc::ByteBuffer message) EXCLUDES(mutex_) {
    StartWriteOf(std::move(message), grpc::WriteOptions().set_last_message());
  }
  void HalfClose() EXCLUDES(mutex_);
  // Asks for the next message. A stream ends only when its messages have been read or it was
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
  std::shared_ptr<RawStream> self_;  // Until OnDone.
  grpc::ByteBuffer in_;
  grpc::ByteBuffer out_;
  Mutex mutex_;
  bool open_ GUARDED_BY(mutex_) = true;  // Operations may be started; the call has its hold.
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_TRANSPORT_RAW_STREAM_H_
