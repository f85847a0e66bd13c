#ifndef ANNULUS_CLIENT_SHARD_EXCHANGE_H_
#define ANNULUS_CLIENT_SHARD_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "client/chunk_writer.h"
#include "client/exchange_stream.h"
#include "client/shard_streams.h"
#include "grpcpp/support/byte_buffer.h"

namespace annulus {

// A small shard, there and back, on a call that other shards had before and will have again: its
// ticket and all of its inputs in one message. A kept call that turns out to have ended before it
// answered is replaced by a new one, once. Thread-safe.
class ShardExchange : public ExchangeStream::User,
                      public std::enable_shared_from_this<ShardExchange> {
 public:
  struct Options {
    std::shared_ptr<ExchangePool> pool;
    std::string endpoint;
    std::shared_ptr<grpc::Channel> channel;
    std::string ticket;
    ChunkBatch inputs;                  // All.
    std::function<void(int64_t)> sent;  // Bytes of the inputs, once, when they have left.
    ShardOutputs outputs;
    std::function<void(absl::Status)> done;  // Last, once.
  };
  static std::shared_ptr<ShardExchange> Start(Options options);

  // Whether a shard of so many bytes may go so. Its outputs are one message: no more of them comes
  // ahead of its reader, whatever the connection's windows are.
  static bool IsSmall(int64_t input_bytes, int64_t output_bytes) {
    return input_bytes > 0 && input_bytes <= kMaxWithTicket && output_bytes > 0 &&
           output_bytes <= kMaxChunkBytes;
  }

  void Cancel() EXCLUDES(mutex_);

 private:
  explicit ShardExchange(Options options);
  void SendLocked(bool may_be_kept) REQUIRES(mutex_);
  void ReadNext() EXCLUDES(mutex_);
  void OnMessage(const grpc::ByteBuffer& message) override EXCLUDES(mutex_);
  void OnWritten() override EXCLUDES(mutex_);
  void OnEnded(const absl::Status& status) override EXCLUDES(mutex_);
  // Gives the call back when both directions are through with it.
  void FinishIfThrough() EXCLUDES(mutex_);

  const std::shared_ptr<ExchangePool> pool_;
  const std::string endpoint_;
  const std::shared_ptr<grpc::Channel> channel_;
  const int64_t bytes_;
  const std::function<void(int64_t)> sent_;
  const std::function<void(absl::Status)> done_;
  OutputReceiver receiver_;  // Of the call's callbacks.

  Mutex mutex_;
  std::shared_ptr<ExchangeStream> stream_ GUARDED_BY(mutex_);
  grpc::ByteBuffer message_ GUARDED_BY(mutex_);  // Until the first answer.
  std::vector<Credit> credits_ GUARDED_BY(mutex_);
  bool kept_ GUARDED_BY(mutex_) = false;    // The call is not new.
  absl::Status stale_ GUARDED_BY(mutex_);   // How the kept call ended that may have served it.
  bool reading_ GUARDED_BY(mutex_) = true;  // A read is under way.
  bool answered_ GUARDED_BY(mutex_) = false;
  bool told_ GUARDED_BY(mutex_) = false;  // `sent` has been called.
  bool written_ GUARDED_BY(mutex_) = false;
  bool reported_ GUARDED_BY(mutex_) = false;
  bool cancelled_ GUARDED_BY(mutex_) = false;
  bool finished_ GUARDED_BY(mutex_) = false;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_SHARD_EXCHANGE_H_
