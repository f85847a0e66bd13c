#ifndef ANNULUS_CLIENT_TRANSPORT_SHARD_STREAMS_H_
#define ANNULUS_CLIENT_TRANSPORT_SHARD_STREAMS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "annulus/v1/data_plane.pb.h"
#include "annulus/v1/types.pb.h"
#include "attention/spec/received_ranges.h"
#include "attention/spec/tensor_table.h"
#include "client/transport/chunk_writer.h"
#include "client/transport/raw_stream.h"
#include "client/transport/scatter.h"

namespace annulus {

// A shard of no more bytes goes with its ticket. A larger message would keep the ticket from a
// worker that waits for it, at the least rate that it allows, for longer than it does.
inline constexpr int64_t kMaxWithTicket = int64_t{512} << 10;

// One PutShard call: the ticket and the source's chunks. Thread-safe.
class ShardUpload {
 public:
  struct Options {
    RawStream::Call call;  // `method` is filled in.
    std::string ticket;
    std::shared_ptr<ChunkSource> source;
    int64_t bytes = 0;                       // Of the whole shard.
    std::function<void(int64_t)> sent;       // Bytes of one message.
    std::function<void(absl::Status)> done;  // Last, once.
  };
  static std::shared_ptr<ShardUpload> Start(Options options);

  // Writes from now on.
  void Begin();
  // The source may have a chunk again.
  void Kick() { writer_.Kick(stream_.get()); }
  void Cancel() { stream_->Cancel(); }

 private:
  explicit ShardUpload(Options* options);

  const std::unique_ptr<v1::PutShardRequest> ticket_;  // Where it goes alone.
  ChunkWriter writer_;
  std::shared_ptr<RawStream> stream_;
};

// What a download does with the chunks of a message: in the shard's own rows, checked, their CRCs
// right. It drops the credit when the next message may come.
using ChunkSink = std::function<void(const std::vector<TensorChunk>& chunks, const Credit& credit)>;

// Checks what arrives of one shard's outputs, or of a whole job's.
class ChunkReceiver {
 public:
  ChunkReceiver(std::vector<TensorInfo> table, ShardRows rows)
      : table_(std::move(table)), rows_(std::move(rows)) {}

  // INTERNAL / UNEXPECTED_OUTPUT, also for rows that come twice, DATA_LOSS / CHECKSUM_MISMATCH.
  absl::Status Receive(TensorChunk* chunk);
  // Whether every row of every output has come. INTERNAL / INCOMPLETE_OUTPUT.
  absl::Status Complete() const;
  const ShardRows& rows() const { return rows_; }

 private:
  const std::vector<TensorInfo> table_;
  const ShardRows rows_;
  std::map<TensorId, ReceivedRanges> arrived_;
};

// What a download needs to know of its shard, and what it does with the outputs.
struct ShardOutputs {
  std::vector<TensorInfo> table;
  ShardRows rows;
  ChunkSink sink;
  std::function<void(const v1::ShardReport&)> report;  // After the chunks.
};

// The messages of one shard's outputs. One thread at a time.
class OutputReceiver {
 public:
  explicit OutputReceiver(ShardOutputs outputs)
      : chunks_(std::move(outputs.table), std::move(outputs.rows)),
        sink_(std::move(outputs.sink)),
        report_(std::move(outputs.report)) {}

  // `credit` goes to the sink. Whether the report came, which ends the shard. Errors of
  // ChunkReceiver, and INVALID_ARGUMENT / MALFORMED_MESSAGE.
  absl::StatusOr<bool> Receive(const grpc::ByteBuffer& message, const Credit& credit);
  // What the end of the shard's call with `status` means: OK when every row is here and checked.
  absl::Status Judge(absl::Status status) const;

 private:
  ChunkReceiver chunks_;
  const ChunkSink sink_;
  const std::function<void(const v1::ShardReport&)> report_;
  absl::Status error_;  // Of what was received.
};

// One FetchShard call. Thread-safe.
class ShardDownload {
 public:
  struct Options {
    RawStream::Call call;  // `method` is filled in.
    std::string ticket;
    ShardOutputs outputs;
    std::function<void(absl::Status)> done;  // Last, once.
  };
  static std::shared_ptr<ShardDownload> Start(Options options);

  void Cancel() { stream_->Cancel(); }

 private:
  explicit ShardDownload(ShardOutputs outputs) : receiver_(std::move(outputs)) {}

  OutputReceiver receiver_;  // Of the stream's callbacks.
  std::shared_ptr<RawStream> stream_;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_TRANSPORT_SHARD_STREAMS_H_
