// The gateway of a FakeService.
#include "attention/error.h"
#include "proto/convert.h"
#include "proto/status.h"
#include "tests/client/fake_errors.h"
#include "tests/client/fake_service.h"

namespace annulus {

grpc::Status FakeService::Attend(
    grpc::ServerContext*, grpc::ServerReaderWriter<v1::AttendResponse, v1::AttendRequest>* stream) {
  v1::AttendRequest request;
  if (!stream->Read(&request) || !request.has_start()) {
    return Error(absl::StatusCode::kInvalidArgument, "STREAM_SEQUENCE");
  }
  const v1::AttendRequest::Start start = request.start();
  Place(start.spec(), 1);
  Shard whole;
  Act act;
  {
    MutexLock lock(&mutex_);
    act = now_ = options_.act(++attends_);
    if (now_ == Act::kGroupLost) return Error(absl::StatusCode::kAborted, "GROUP_LOST");
    const grpc::Status refusal = RefusalOf(act);
    if (!refusal.ok()) return refusal;
    const AttentionSpec spec = *SpecFromProto(start.spec(), "spec");
    whole.rows = WholeJob(spec);
    for (const TensorInfo& tensor : table_) {
      if (tensor.direction != Direction::kInput) continue;
      whole.memory[tensor.id].resize(whole.rows.of(tensor).rows() * tensor.row_bytes());
      whole.missing += whole.memory[tensor.id].size();
    }
  }
  v1::AttendResponse response;
  response.mutable_accepted()->set_job_id("job-1");
  stream->Write(response);
  do {
    const grpc::Status status = Store(request.chunks(), &whole);
    if (!status.ok()) return status;
  } while (stream->Read(&request));
  if (whole.missing != 0) return Error(absl::StatusCode::kInvalidArgument, "MISSING_ROWS");
  kept_.Keep(start.spec());
  if (act == Act::kAnswerLost) return Gone();
  for (v1::Chunk& chunk : OutputsOf(whole)) {
    response.Clear();
    response.add_chunks()->Swap(&chunk);
    stream->Write(response);
  }
  if (act == Act::kWordLost) return Gone();
  response.Clear();
  response.mutable_done()->set_attempts(1);
  stream->Write(response);
  return grpc::Status::OK;
}

}  // namespace annulus
