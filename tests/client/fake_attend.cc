// The gateway of a FakeService.
#include <optional>
#include <utility>

#include "base/error.h"
#include "proto/wire/convert.h"
#include "proto/wire/status.h"
#include "tests/client/fake_errors.h"
#include "tests/client/fake_service.h"

namespace annulus {

grpc::Status FakeService::AttendMany(grpc::ServerContext* context, AttendStream* stream) {
  {
    MutexLock lock(&mutex_);
    ++attend_manys_;
  }
  if (options_.only_attend) return grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "");
  v1::AttendRequest request;
  for (int job = 1; stream->Read(&request); ++job) {
    const std::optional<grpc::Status> end = options_.ends_many(job);
    if (end.has_value()) return *end;
    // The call has no deadline of its own to check.
    const absl::Duration timeout = DurationFromProto(request.start().timeout());
    if (timeout <= absl::ZeroDuration() || timeout > absl::Seconds(20)) {
      return Error(absl::StatusCode::kInvalidArgument, "WRONG_TIMEOUT");
    }
    {
      MutexLock lock(&mutex_);
      ++many_jobs_;
    }
    const uint64_t tag = request.start().tag() + options_.wrong_tag;
    bool here = true;
    const grpc::Status status = Attend(
        context,
        [&](v1::AttendRequest* one) {
          one->Swap(&request);
          return std::exchange(here, false);
        },
        [stream, tag](v1::AttendResponse response) {
          response.set_tag(tag);
          stream->Write(response);
        });
    if (status.ok()) continue;
    // A broken connection ends the whole call.
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE && status.error_details().empty()) {
      return status;
    }
    v1::AttendResponse response;
    response.set_tag(tag);
    *response.mutable_error() = ErrorToProto(FromGrpcStatus(status));
    stream->Write(response);
  }
  return grpc::Status::OK;
}

grpc::Status FakeService::Attend(grpc::ServerContext* context,
                                 const std::function<bool(v1::AttendRequest*)>& read,
                                 const std::function<void(const v1::AttendResponse&)>& write) {
  v1::AttendRequest request;
  if (!read(&request) || !request.has_start()) {
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
  }
  if (act == Act::kNeverPlace) {
    Await(context, [] { return false; });
    return grpc::Status::CANCELLED;
  }
  {
    MutexLock lock(&mutex_);
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
  write(response);
  do {
    const grpc::Status status = Store(request.chunks(), &whole);
    if (!status.ok()) return status;
  } while (read(&request));
  if (whole.missing != 0) return Error(absl::StatusCode::kInvalidArgument, "MISSING_ROWS");
  kept_.Keep(start.spec());
  if (act == Act::kAnswerLost) return Gone();
  for (v1::Chunk& chunk : OutputsOf(whole)) {
    response.Clear();
    response.add_chunks()->Swap(&chunk);
    write(response);
  }
  if (act == Act::kWordLost) return Gone();
  response.Clear();
  response.mutable_done()->set_attempts(1);
  write(response);
  return grpc::Status::OK;
}

}  // namespace annulus
