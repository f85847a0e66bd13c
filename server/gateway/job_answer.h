#ifndef ANNULUS_SERVER_GATEWAY_JOB_ANSWER_H_
#define ANNULUS_SERVER_GATEWAY_JOB_ANSWER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "annulus/v1/attention.pb.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/tensor_stream.h"

namespace annulus {

// What a caller is told of its job, and what of it waits to be told together: the word that the job
// was accepted, with its first outputs and its end. One job after another. Not thread-safe.
class JobAnswer {
 public:
  // The job was placed, and the word waits. Endpoints are left out of the plan.
  void Accept(const std::string& job_id, const v1::Plan& plan);
  // Whether something waits.
  bool waits() const { return waits_; }
  // Outputs join what waits. False where nothing does, or they would be too many: left alone.
  bool Add(std::vector<TensorChunk>* chunks);
  // What waits, as a message of its own.
  grpc::ByteBuffer Take();
  // The same with the last word.
  grpc::ByteBuffer Done(const v1::JobStats& stats);
  // Likewise, without the outputs.
  grpc::ByteBuffer Failed(const absl::Status& status);

 private:
  grpc::ByteBuffer Encode();

  v1::AttendResponse response_;
  std::vector<TensorChunk> chunks_;
  bool waits_ = false;
};

// By its plan, a job that takes no time to speak of: who waits for its end does not miss the word
// that it was accepted. A long plan is not to be one message with the outputs.
bool IsShort(const v1::Plan& plan);

// Outputs as messages of their own.
std::vector<grpc::ByteBuffer> OutputMessages(const std::vector<TensorChunk>& chunks);

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_JOB_ANSWER_H_
