#include "client/cli/files/state_job.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "attention/spec/shared_by_state.h"
#include "attention/spec/tensor_table.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "client/cli/files/input_names.h"
#include "proto/wire/convert.h"

namespace annulus {
namespace {

std::string ReasonOf(v1::KeptState::Status status) {
  switch (status) {
    case v1::KeptState::STATUS_RELEASED:
      return "STATE_RELEASED";
    case v1::KeptState::STATUS_EXPIRED:
      return "STATE_EXPIRED";
    case v1::KeptState::STATUS_LOST:
      return "STATE_LOST";
    default:
      return "STATE_NOT_FOUND";
  }
}

// True if the job will keep its state, provided that it succeeds.
bool IsAwaited(const v1::Job& job) {
  return job.state() != v1::Job::STATE_SUCCEEDED && job.state() != v1::Job::STATE_FAILED &&
         job.state() != v1::Job::STATE_CANCELLED && job.spec().forward().has_keep_state() &&
         !job.has_kept_state();
}

}  // namespace

absl::StatusOr<AttentionSpec> SpecOfState(const v1::Job& job) {
  if (IsAwaited(job)) {
    return MakeError(absl::StatusCode::kFailedPrecondition,
                     absl::StrCat("job ", job.job_id(), " has not succeeded yet"),
                     {"STATE_NOT_READY", {{"state", job.job_id()}}, {}, absl::Seconds(1)});
  }
  if (job.kept_state().status() != v1::KeptState::STATUS_HELD || !job.has_spec()) {
    return MakeError(
        absl::StatusCode::kNotFound,
        absl::StrCat("job ", job.job_id(), " does not keep a state, or no longer keeps it"),
        {ReasonOf(job.kept_state().status()), {{"state", job.job_id()}}, {}, {}});
  }
  ASSIGN_OR_RETURN(AttentionSpec kept, SpecFromProto(job.spec(), "spec"));
  AttentionSpec spec = SharedByState(std::move(kept));
  spec.operation = Operation::kGradients;
  spec.gradients.state = job.job_id();
  return spec;
}

absl::StatusOr<JobShape> ShapeOfState(const SafetensorsFile& file, const AttentionSpec& spec,
                                      std::optional<TensorLayout> layout) {
  const absl::string_view name = TensorName(TensorId::kDOut);
  const SafetensorInfo* d_out = file.Find(name);
  if (d_out == nullptr) return MissingTensor(file, name);
  JobShape shape;
  shape.dtype = spec.dtype;
  shape.q_tokens = spec.q_rows();
  shape.kv_tokens = spec.kv_rows();
  shape.q_heads = spec.q_heads;
  shape.kv_heads = spec.kv_heads;
  shape.head_dim = spec.head_dim;
  shape.head_dim_v = spec.value_dim();
  shape.layout = layout.value_or(UsualLayout(d_out->shape.size()));
  if (!HasBatch(shape.layout)) return shape;
  const int64_t batch = d_out->shape.size() == 4 ? ExtentsOf(shape.layout, d_out->shape).batch : -1;
  const Sequence& first = spec.sequences.front();
  const bool equal = std::all_of(
      spec.sequences.begin(), spec.sequences.end(),
      [&](const Sequence& s) { return s.q_len == first.q_len && s.kv_len == first.kv_len; });
  if (batch < 0) {
    return InvalidField("SHAPE_MISMATCH", name,
                        absl::StrCat("has shape [", absl::StrJoin(d_out->shape, ", "),
                                     "], but must be ", DimensionNames(shape.layout)));
  }
  if (!equal || batch != static_cast<int64_t>(spec.sequences.size())) {
    return InvalidField(
        "SHAPE_MISMATCH", name,
        absl::StrCat("has a batch of ", batch, ", but the job has ", spec.sequences.size(),
                     equal ? " sequences" : " sequences of unequal lengths"));
  }
  shape.batch = batch;
  shape.q_tokens = first.q_len;
  shape.kv_tokens = first.kv_len;
  return shape;
}

}  // namespace annulus
