#ifndef ANNULUS_CLIENT_SHARD_STREAMS_H_
#define ANNULUS_CLIENT_SHARD_STREAMS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "annulus/v1/data_plane.pb.h"
#include "annulus/v1/types.pb.h"
#include "attention/arrived_cells.h"
#include "attention/tensor_table.h"
#include "client/chunk_writer.h"
#include "client/raw_stream.h"
#include "client/scatter.h"

namespace annulus {

// One PutShard call: the ticket and the source's chunks. Thread-safe.
class ShardUpload : public std::enable_shared_from_this<ShardUpload> {
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
  std::map<TensorId, ArrivedCells> arrived_;
};

// One FetchShard call. Thread-safe.
class ShardDownload : public std::enable_shared_from_this<ShardDownload> {
 public:
  struct Options {
    RawStream::Call call;  // `method` is filled in.
    std::string ticket;
    std::vector<TensorInfo> table;
    ShardRows rows;
    ChunkSink sink;
    std::function<void(const v1::ShardReport&)> report;  // After the chunks.
    std::function<void(absl::Status)> done;              // Last, once.
  };
  static std::shared_ptr<ShardDownload> Start(Options options);

  void Cancel() { stream_->Cancel(); }

 private:
  explicit ShardDownload(Options* options)
      : receiver_(std::move(options->table), std::move(options->rows)),
        sink_(std::move(options->sink)),
        report_(std::move(options->report)) {}
  absl::Status OnRead(const grpc::ByteBuffer& message);
  absl::Status Judge(absl::Status status) const;

  ChunkReceiver receiver_;
  const ChunkSink sink_;
  const std::function<void(const v1::ShardReport&)> report_;
  absl::Status error_;  // Of what was read. Touched by the stream's callbacks only.
  std::shared_ptr<RawStream> stream_;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_SHARD_STREAMS_H_
