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

// What a caller is told of its job, and what of it waits to be told together: the word that the job
// was accepted, with its first outputs and its end. One job after another. Not thread-safe.
class JobAnswer {
 public:
  // Of the job whose answer begins: every message says it.
  void SetTag(uint64_t tag) { tag_ = tag; }
  // The job was placed, and the word waits. Endpoints are left out of the plan.
  void Accept(const std::string& job_id, const v1::Plan& plan);
  // Whether something waits.
  bool waits() const { return response_.has_accepted(); }
  // Outputs join what waits. False where nothing does, or they would be too many: left alone.
  bool Add(std::vector<TensorChunk>* chunks);
  // What waits, as a message of its own.
  grpc::ByteBuffer Take();
  // The same with the last word.
  grpc::ByteBuffer Done(const v1::JobStats& stats);
  // Likewise, without the outputs.
  grpc::ByteBuffer Failed(const absl::Status& status);
  // Outputs as messages of their own.
  std::vector<grpc::ByteBuffer> Outputs(const std::vector<TensorChunk>& chunks) const;

 private:
  v1::AttendResponse response_;
  std::vector<TensorChunk> chunks_;
  uint64_t tag_ = 0;
};

// By its plan, a job that takes no time to speak of: who waits for its end does not miss the word
// that it was accepted. A long plan is not to be one message with the outputs.
bool IsShort(const v1::Plan& plan);

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_JOB_ANSWER_H_
