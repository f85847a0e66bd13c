#ifndef ANNULUS_WORKER_DATA_PLANE_DATA_PLANE_SERVICE_H_
#define ANNULUS_WORKER_DATA_PLANE_DATA_PLANE_SERVICE_H_

#include "absl/time/time.h"
#include "annulus/v1/data_plane.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "proto/rpc/slow_reader_guard.h"
#include "worker/data_plane/copy_pool.h"
#include "worker/data_plane/shard_board.h"

namespace annulus {

// annulus.v1.DataPlane over gRPC's callbacks, tensors as raw buffers. Translates and delegates:
// what a call knows is in PutCall, FetchCall, ExchangeCall and StatusCall. Board and pool outlive
// the service.
class DataPlaneService final
    : public v1::DataPlane::WithRawCallbackMethod_PutShard<
          v1::DataPlane::WithRawCallbackMethod_FetchShard<
              v1::DataPlane::WithRawCallbackMethod_ExchangeShards<
                  v1::DataPlane::WithRawCallbackMethod_GetShardStatus<v1::DataPlane::Service>>>> {
 public:
  // How long a call that is over waits for a client who does not read.
  struct Patience {
    // What was on its way when its job ended. Short, for that is staging memory.
    absl::Duration end = absl::Seconds(2);
    // The one answer of PutShard and GetShardStatus, see UnaryCall.
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
