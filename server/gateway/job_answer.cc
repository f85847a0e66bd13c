#include "server/gateway/job_answer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/wire/convert.h"

namespace annulus {
namespace {

constexpr absl::Duration kShortJob = absl::Milliseconds(2);
constexpr size_t kShortPlanBytes = 64 << 10;

}  // namespace

void JobAnswer::Accept(const std::string& job_id, const v1::Plan& plan) {
  v1::AttendResponse::Accepted& accepted = *response_.mutable_accepted();
  accepted.set_job_id(job_id);
  *accepted.mutable_plan() = plan;
  // The caller talks to this address only and needs no endpoints.
  for (v1::ShardPlan& shard : *accepted.mutable_plan()->mutable_shards()) {
    shard.clear_endpoint();
    shard.clear_ticket();
  }
}

bool JobAnswer::Add(std::vector<TensorChunk>* chunks) {
  if (!waits() || chunks_.size() + chunks->size() > kMaxMessageChunks) return false;
  std::move(chunks->begin(), chunks->end(), std::back_inserter(chunks_));
  return true;
}

grpc::ByteBuffer JobAnswer::Take() {
  response_.set_tag(tag_);
  grpc::ByteBuffer message = EncodeChunks(chunks_, &response_);
  response_.Clear();
  chunks_.clear();
  return message;
}

grpc::ByteBuffer JobAnswer::Done(const v1::JobStats& stats) {
  *response_.mutable_done() = stats;
  return Take();
}

grpc::ByteBuffer JobAnswer::Failed(const absl::Status& status) {
  chunks_.clear();
  *response_.mutable_error() = ErrorToProto(status);
  return Take();
}

std::vector<grpc::ByteBuffer> JobAnswer::Outputs(const std::vector<TensorChunk>& chunks) const {
  v1::AttendResponse tagged;
  tagged.set_tag(tag_);
  std::vector<grpc::ByteBuffer> messages;
  absl::Span<const TensorChunk> left(chunks);
  while (!left.empty()) {
    messages.push_back(EncodeChunks(left.subspan(0, kMaxMessageChunks), &tagged));
    left.remove_prefix(std::min(left.size(), kMaxMessageChunks));
  }
  return messages;
}

bool IsShort(const v1::Plan& plan) {
  return plan.ByteSizeLong() <= kShortPlanBytes && plan.has_predicted_time() &&
         DurationFromProto(plan.predicted_time()) <= kShortJob;
}

}  // namespace annulus
