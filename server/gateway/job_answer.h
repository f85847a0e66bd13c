#ifndef ANNULUS_SERVER_GATEWAY_JOB_ANSWER_H_
#define ANNULUS_SERVER_GATEWAY_JOB_ANSWER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "annulus/v1/attention.pb.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/wire/tensor_stream.h"

namespace annulus {

// The answer to a job, and the part of it that waits to be sent together: `accepted`, with the
// first outputs and the end. One job after another. Not thread-safe.
class JobAnswer {
 public:
  // Sets the tag of the job whose answer begins. Every message has it.
  void SetTag(uint64_t tag) { tag_ = tag; }
  // The job was placed. `accepted` waits, without the endpoints of the plan.
  void Accept(const std::string& job_id, const v1::Plan& plan);
  // True if a part waits.
  bool waits() const { return response_.has_accepted(); }
  // Adds outputs to the waiting part. Returns false and does nothing if no part waits, or if the
  // outputs would be too many.
  bool Add(std::vector<TensorChunk>* chunks);
  // The waiting part as a message of its own.
  grpc::ByteBuffer Take();
  // Same with `done`.
  grpc::ByteBuffer Done(const v1::JobStats& stats);
  // Same with `error`, without the outputs.
  grpc::ByteBuffer Failed(const absl::Status& status);
  // Outputs as messages of their own.
  std::vector<grpc::ByteBuffer> Outputs(const std::vector<TensorChunk>& chunks) const;

 private:
  v1::AttendResponse response_;
  std::vector<TensorChunk> chunks_;
  uint64_t tag_ = 0;
};

// True if the predicted time of the job is so short that `accepted` may wait and go out with the
// outputs. A plan that is too large to share a message with the outputs is not short.
bool IsShort(const v1::Plan& plan);

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_JOB_ANSWER_H_
