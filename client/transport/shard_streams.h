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

// The two streams of a shard on the direct path (proto/annulus/v1/data_plane.proto).
//
// PutShard, ShardUpload:
// 1. Start() prepares the call. Nothing is sent before Begin().
// 2. The first message has the ticket. If the shard has at most kMaxWithTicket bytes, its first
//    chunks go with it, unless the source has none yet.
// 3. ChunkWriter::WriteNext() (client/transport/chunk_writer.h) writes the other chunks, one
//    message of at most 64 chunks and 1 MiB at a time, and half-closes after the last. If a source
//    has no chunk yet, Kick() continues later.
// 4. The worker answers when the shard is complete, perhaps before the half-close. The answer is
//    not used: the status of the call says the same. OK: the worker holds every row that this call
//    sent, and the shard is complete.
//
// FetchShard, ShardDownload:
// 1. Start() sends one request with the ticket. The worker answers when outputs are ready, so the
//    call may be opened together with the upload.
// 2. OutputReceiver::Receive() handles each message: ChunkReceiver checks bounds, CRCs and repeated
//    rows, the ChunkSink takes the chunks. The next message is read when the sink drops its credit,
//    so at most one message of 1 MiB is in flight.
// 3. The last message has the worker's report.
// 4. OutputReceiver::Judge() makes the result from the call's status. A verified shard is OK even
//    if the worker or its connection was lost afterwards.
//
// An error in a message cancels the call. SessionStateMachine
// (client/session/session_state_machine.h) decides what the errors of both streams mean for the
// job.

// A shard with at most this many bytes is sent together with its ticket. A worker waits 10 s for
// the ticket; at the lowest permitted rate (--min-rate, 64 KiB/s) a larger message could take
// longer.
inline constexpr int64_t kMaxWithTicket = int64_t{512} << 10;

// One PutShard call. Thread-safe.
class ShardUpload {
 public:
  struct Options {
    RawStream::Call call;  // `method` is set by Start().
    std::string ticket;
    std::shared_ptr<ChunkSource> source;
    int64_t bytes = 0;                       // All inputs of the shard.
    std::function<void(int64_t)> sent;       // The bytes of one message.
    std::function<void(absl::Status)> done;  // The last call, once.
  };
  static std::shared_ptr<ShardUpload> Start(Options options);

  // Starts writing.
  void Begin();
  // Call when the source may have a chunk after it had none.
  void Kick() { writer_.Kick(stream_.get()); }
  void Cancel() { stream_->Cancel(); }

 private:
  explicit ShardUpload(Options* options);

  const std::unique_ptr<v1::PutShardRequest> ticket_;  // Set if the ticket is sent alone.
  ChunkWriter writer_;
  std::shared_ptr<RawStream> stream_;
};

// Takes the verified chunks of one message, in the shard's own rows. The next message is read when
// `credit` is dropped.
using ChunkSink = std::function<void(const std::vector<TensorChunk>& chunks, const Credit& credit)>;

// Verifies the output chunks of one shard, or of a whole job.
class ChunkReceiver {
 public:
  ChunkReceiver(std::vector<TensorInfo> table, ShardRows rows)
      : table_(std::move(table)), rows_(std::move(rows)) {}

  // Sets head_count if it is 0. INTERNAL / UNEXPECTED_OUTPUT (wrong tensor, range or size),
  // DATA_LOSS / CHECKSUM_MISMATCH, INTERNAL / UNEXPECTED_OUTPUT (rows that came before).
  absl::Status Receive(TensorChunk* chunk);
  // OK if every row of every output has come, else INTERNAL / INCOMPLETE_OUTPUT.
  absl::Status Complete() const;
  const ShardRows& rows() const { return rows_; }

 private:
  const std::vector<TensorInfo> table_;
  const ShardRows rows_;
  std::map<TensorId, ReceivedRanges> arrived_;
};

// The outputs of one shard: what to expect, and where they go.
struct ShardOutputs {
  std::vector<TensorInfo> table;
  ShardRows rows;
  ChunkSink sink;
  std::function<void(const v1::ShardReport&)> report;  // Called after the last chunks.
};

// Receives the messages of one shard's outputs. One thread at a time.
class OutputReceiver {
 public:
  explicit OutputReceiver(ShardOutputs outputs)
      : chunks_(std::move(outputs.table), std::move(outputs.rows)),
        sink_(std::move(outputs.sink)),
        report_(std::move(outputs.report)) {}

  // Verifies a message and passes its chunks to the sink, with `credit`. True if the message has
  // the worker's report, which ends the shard. Errors: those of DecodeChunks()
  // (proto/wire/tensor_stream.h), then those of ChunkReceiver.
  absl::StatusOr<bool> Receive(const grpc::ByteBuffer& message, const Credit& credit);
  // The result of the shard, after its call has ended with `status`: the error of Receive(), if
  // any; OK if every row is verified and CoordinatorDecides(status); else `status`, or
  // INCOMPLETE_OUTPUT if that is OK.
  absl::Status Judge(absl::Status status) const;

 private:
  ChunkReceiver chunks_;
  const ChunkSink sink_;
  const std::function<void(const v1::ShardReport&)> report_;
  absl::Status error_;  // The error of the last message.
};

// One FetchShard call. Thread-safe.
class ShardDownload {
 public:
  struct Options {
    RawStream::Call call;  // `method` is set by Start().
    std::string ticket;
    ShardOutputs outputs;
    std::function<void(absl::Status)> done;  // The last call, once.
  };
  static std::shared_ptr<ShardDownload> Start(Options options);

  void Cancel() { stream_->Cancel(); }

 private:
  explicit ShardDownload(ShardOutputs outputs) : receiver_(std::move(outputs)) {}

  OutputReceiver receiver_;  // Belongs to the stream's callbacks.
  std::shared_ptr<RawStream> stream_;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_TRANSPORT_SHARD_STREAMS_H_
