#ifndef ANNULUS_WORKER_DATA_PLANE_DATA_PLANE_SERVICE_H_
#define ANNULUS_WORKER_DATA_PLANE_DATA_PLANE_SERVICE_H_

#include "absl/time/time.h"
#include "annulus/v1/data_plane.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "proto/rpc/slow_reader_guard.h"
#include "worker/data_plane/copy_pool.h"
#include "worker/data_plane/shard_board.h"

namespace annulus {

// annulus.v1.DataPlane over gRPC's callback API. Tensors stay raw buffers. Only translates: the
// logic is in PutCall, FetchCall, ExchangeCall and StatusCall. Board and pool must outlive the
// service.
class DataPlaneService final
    : public v1::DataPlane::WithRawCallbackMethod_PutShard<
          v1::DataPlane::WithRawCallbackMethod_FetchShard<
              v1::DataPlane::WithRawCallbackMethod_ExchangeShards<
                  v1::DataPlane::WithRawCallbackMethod_GetShardStatus<v1::DataPlane::Service>>>> {
 public:
  // How long a finished call waits for a client that does not read.
  struct Patience {
    // For a message in transit when the job ends. Short, because the message occupies staging
    // memory.
    absl::Duration end = absl::Seconds(2);
    // For the response of PutShard and GetShardStatus (UnaryCall).
    absl::Duration answer = kSlowReaderPatience;
  };
  DataPlaneService(ShardBoard* board, CopyPool* pool, const Patience& patience)
      : board_(board), pool_(pool), patience_(patience) {}

  grpc::ServerReadReactor<grpc::ByteBuffer>* PutShard(grpc::CallbackServerContext* context,
                                                      grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* FetchShard(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* request) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ExchangeShards(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* GetShardStatus(grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* arrived,
                                           grpc::ByteBuffer* response) override;

 private:
  ShardBoard* const board_;
  CopyPool* const pool_;
  const Patience patience_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DATA_PLANE_DATA_PLANE_SERVICE_H_
