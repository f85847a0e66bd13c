#include "worker/executor/program_memo.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace annulus {
namespace {

void Append(int64_t value, std::string* key) {
  key->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// The key is unique: a known number of integers, then the source bytes.
std::string KeyOf(const ProgramRequest& request) {
  const PlanOptions& plan = request.plan_options;
  std::string key;
  for (const int64_t value :
       {int64_t{plan.world_size}, static_cast<int64_t>(plan.layout), plan.stripe, plan.granule,
        int64_t{request.rank}, int64_t{request.reads_staging}, int64_t{request.ends_rows},
        static_cast<int64_t>(request.parts_of_step.size())})
    Append(value, &key);
  for (const int32_t parts : request.parts_of_step) Append(parts, &key);
  return key + request.source;
}

template <typename T>
size_t BytesOf(const std::vector<T>& values) {
  return values.size() * sizeof(T);
}

size_t BytesOf(const RankSchedule& schedule) {
  size_t bytes = BytesOf(schedule.buffers) + BytesOf(schedule.inputs) + BytesOf(schedule.outputs) +
                 BytesOf(schedule.steps);
  for (const Step& step : schedule.steps) {
    bytes += BytesOf(step.sends) + BytesOf(step.receives) + BytesOf(step.tasks) + BytesOf(step.ops);
  }
  return bytes;
}

// Upper bound of the bytes of the spec's MaskMap: heads of each mask, and ranges for each sequence.
size_t MaskBytesOf(const AttentionSpec& spec) {
  size_t bytes = 0;
  for (const Mask& mask : spec.masks) {
    bytes += spec.q_heads * sizeof(int32_t);
    bytes += mask.ranges.size() * sizeof(MaskRange) * (1 + spec.sequences.size());
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const RankProgram>> ProgramMemo::ProgramOf(
    const ProgramRequest& request) {
  std::string key;
  if (!request.source.empty()) key = KeyOf(request);
  const bool known = !key.empty() && key.size() <= kMaxKeyBytes;
  if (known) {
    const auto found =
        std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.key == key; });
    if (found != kept_.end()) {
      std::rotate(found, found + 1, kept_.end());
      return kept_.back().program;
    }
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const RankProgram> program, MakeProgram(request));
  if (known && BytesOf(program->schedule) <= kMaxScheduleBytes &&
      MaskBytesOf(request.spec) <= kMaxMaskBytes) {
    if (kept_.size() == kMaxPrograms) kept_.erase(kept_.begin());
    kept_.push_back({std::move(key), program});
  }
  return program;
}

}  // namespace annulus
