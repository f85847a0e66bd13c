#ifndef ANNULUS_WORKER_DATA_PLANE_DATA_PLANE_SERVICE_H_
#define ANNULUS_WORKER_DATA_PLANE_DATA_PLANE_SERVICE_H_

#include "absl/time/time.h"
#include "annulus/v1/data_plane.grpc.pb.h"
#include "grpcpp/grpcpp.h"
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
  // `end_patience`: how long a call whose job has ended waits for its client to read what is on its
  // way. It is short, for that is staging memory.
  DataPlaneService(ShardBoard* board, CopyPool* pool, absl::Duration end_patience)
      : board_(board), pool_(pool), end_patience_(end_patience) {}

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
  const absl::Duration end_patience_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DATA_PLANE_DATA_PLANE_SERVICE_H_
