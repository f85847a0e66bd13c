#include "tests/worker/executor/job_runner.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attention/spec/bias_and_mask_inputs.h"
#include "attention/spec/tensor_table.h"
#include "base/status_macros.h"
#include "tests/reference/from_spec.h"

namespace annulus {
namespace {

// Memory on both sides of the arena that must not change.
constexpr int64_t kFence = 256;
// NaN in every format, so that reads of unwritten memory show.
constexpr std::byte kUnwritten{0xff};

std::vector<std::byte> BytesOfTensor(const AttentionSpec& spec, const TensorInfo& tensor,
                                     const JobInputs& inputs) {
  const reference::Input& input = inputs.input;
  const reference::Upstream& upstream = inputs.upstream;
  const reference::Precision precision = reference::PrecisionOf(tensor.dtype);
  switch (tensor.id) {
    case TensorId::kQ:
      return reference::BytesOf(precision, input.q);
    case TensorId::kK:
      return reference::BytesOf(precision, input.k);
    case TensorId::kV:
      return reference::BytesOf(precision, input.v);
    case TensorId::kOut:
      return reference::BytesOf(precision, upstream.out);
    case TensorId::kLse:
      return reference::BytesOf(precision, upstream.lse);
    case TensorId::kLseRest:
      return reference::BytesOf(reference::Precision::kFp32, upstream.lse_rest);
    case TensorId::kDOut:
      return reference::BytesOf(precision, upstream.d_out);
    case TensorId::kDLse:
      return reference::BytesOf(precision, upstream.d_lse);
    case TensorId::kBias:
      return reference::BiasBytes(spec, input);
    case TensorId::kBitMask:
      return reference::BitBytes(spec, input);
    case TensorId::kLseOffset:
      return reference::OffsetBytes(spec, input);
    default:
      return {};
  }
}

// The rows of `shard` from the packed tensor; kUnwritten for an output.
std::vector<std::byte> Scatter(const TensorInfo& tensor, const Shard& shard,
                               const std::vector<std::byte>& packed) {
  const RowMap& rows = shard.rows(tensor.rows);
  const int64_t row_bytes = tensor.row_bytes();
  std::vector<std::byte> bytes(rows.rows() * row_bytes, kUnwritten);
  for (int64_t r = 0; r < rows.rows() && tensor.direction == Direction::kInput; ++r) {
    std::memcpy(&bytes[r * row_bytes], &packed[rows.Global(r) * row_bytes], row_bytes);
  }
  return bytes;
}

// Partials whose rows begin and end in tasks.
std::set<int32_t> EndedStates(const RankSchedule& schedule) {
  std::set<int32_t> states;
  for (const Step& step : schedule.steps)
    for (const Task& task : step.tasks)
      if (task.out >= 0) states.insert(task.out_q);
  return states;
}

// The first part of the arena: those partials have only rows that continue from task to task.
int64_t BytesToUse(const RankProgram& program) {
  const std::set<int32_t> ended = EndedStates(program.schedule);
  int64_t bytes = 0;
  for (size_t i = 0; i < program.placement.slots.size(); ++i) {
    const ArenaPlan::Slot& slot = program.placement.slots[i];
    if (ended.count(static_cast<int32_t>(i)) == 0)
      bytes = std::max(bytes, slot.offset + slot.bytes);
  }
  return bytes;
}

}  // namespace

std::string Describe(const JobCase& job) {
  return absl::StrCat(
      job.spec.operation == Operation::kGradients ? "gradients " : "",
      StrategyName(job.execution.strategy), " ", LayoutName(job.plan.layout),
      " W=", job.plan.world_size, " stripe=", job.plan.stripe, " granule=", job.plan.granule,
      " ulysses=", job.execution.ulysses_degree, " inner=", job.execution.inner_ring_degree,
      " deal=", HeadDealName(job.execution.head_deal), " parts=", job.parts,
      " segments=", job.segments, job.reads_staging ? " in staging " : " ",
      job.ends_rows ? "rows end in tasks " : "", DataTypeName(job.spec.dtype), " heads ",
      job.spec.q_heads, "/", job.spec.kv_heads, " dims ", job.spec.head_dim, "/",
      job.spec.value_dim(), " rows ",
      absl::StrJoin(job.spec.sequences, "+",
                    [](std::string* out, const Sequence& s) {
                      absl::StrAppend(out, s.q_len, "x", s.kv_len);
                    }),
      job.spec.masks.empty()     ? " full"
      : job.spec.masks[0].causal ? " causal"
                                 : " masked",
      job.spec.modifiers.soft_cap ? " cap" : "",
      job.spec.modifiers.alibi_slopes.empty() ? "" : " alibi",
      job.spec.modifiers.sinks.empty() ? "" : " sinks", job.spec.modifiers.bias ? " bias" : "",
      job.spec.arithmetic == Arithmetic::kBf16x3 ? " bf16x3" : "", " seed ", job.seed);
}

AttentionSpec SmallSpec(DataType dtype, int64_t q_len, int64_t kv_len) {
  AttentionSpec spec;
  spec.dtype = dtype;
  spec.q_heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = 8;
  spec.head_dim_v = 12;
  spec.sequences.resize(1);
  spec.sequences[0].q_len = q_len;
  spec.sequences[0].kv_len = kv_len;
  return spec;
}

std::shared_ptr<const JobInputs> MakeInputs(const AttentionSpec& spec, uint64_t seed) {
  auto inputs = std::make_shared<JobInputs>();
  inputs->input = reference::InputOf(spec);
  reference::FillNormal(seed, reference::PrecisionOf(spec.dtype), 1.0, &inputs->input);
  reference::FillPairs(seed + 2, spec, &inputs->input);
  if (spec.operation == Operation::kGradients) {
    inputs->upstream = reference::MakeUpstream(
        inputs->input, reference::PrecisionOf(spec.d_out_dtype()),
        reference::PrecisionOf(spec.output_dtype()), spec.gradients.d_lse, seed + 1);
    if (spec.outputs.lse_rest) reference::GiveLseRests(inputs->input, &inputs->upstream);
  }
  for (const TensorInfo& tensor : TensorTable(spec))
    inputs->tensors.push_back(BytesOfTensor(spec, tensor, *inputs));
  return inputs;
}

RankJob::RankJob(const JobCase& job, int32_t rank, const JobInputs& inputs) {
  ProgramRequest request;
  request.spec = job.spec;
  request.plan_options = job.plan;
  request.execution = job.execution;
  request.rank = rank;
  request.reads_staging = job.reads_staging;
  request.ends_rows = job.ends_rows;
  auto program = MakeProgram(request);
  if (program.ok() && job.parts > 1) {
    request.parts_of_step.assign((*program)->schedule.steps.size(), job.parts);
    program = MakeProgram(request);
  }
  status_ = program.status();
  if (!status_.ok()) return;
  program_ = *std::move(program);
  const std::vector<TensorInfo> table = TensorTable(job.spec);
  for (size_t i = 0; i < table.size(); ++i)
    tensors_.push_back(Scatter(table[i], program_->plan.shards[rank], inputs.tensors[i]));
  for (size_t i = 0; i < table.size(); ++i) {
    const bool input = table[i].direction == Direction::kInput;
    inputs_.push_back(input ? tensors_[i] : std::vector<std::byte>());
  }
  for (auto& bytes : tensors_) staged_.data.push_back(bytes.empty() ? nullptr : bytes.data());
}

void RankJob::MakeExecutor(Executor::Options options) {
  const int64_t bytes = program_->memory_bytes();
  if (options.device == nullptr) options.device = device_.get();
  arena_device_ = options.device;
  memory_ = *options.device->Allocate(bytes + 2 * kFence);
  const std::vector<std::byte> unwritten(bytes + 2 * kFence, kUnwritten);
  const auto all = static_cast<int64_t>(unwritten.size());
  status_.Update(options.device->CopyIn({memory_.get(), all, unwritten.data(), all, all, 1}));
  status_.Update(options.device->Synchronize());
  options.program = program_;
  options.memory = DeviceMemory(memory_, memory_.get() + kFence);
  executor_ = std::make_unique<Executor>(std::move(options));
}

absl::Status RankJob::RunAll(int32_t segments) {
  RETURN_IF_ERROR(status_);
  RETURN_IF_ERROR(executor_->CopyIn(staged_));
  const int32_t steps = static_cast<int32_t>(program_->schedule.steps.size());
  for (const Segment& segment : SplitSegments(steps, segments)) {
    RETURN_IF_ERROR(executor_->Run(segment));
  }
  return executor_->CopyOut(staged_);
}

testing::AssertionResult RankJob::UsedExactlyItsArena() const {
  const int64_t bytes = program_->placement.arena_bytes, memory_bytes = program_->memory_bytes(),
                all = memory_bytes + 2 * kFence;
  std::vector<std::byte> memory(all);
  absl::Status copied = arena_device_->CopyOut({memory.data(), all, memory_.get(), all, all, 1});
  copied.Update(arena_device_->Synchronize());
  if (!copied.ok()) return testing::AssertionFailure() << copied;
  const std::byte* arena = memory.data() + kFence;
  for (int64_t i = 0; i < kFence; ++i) {
    if (arena[-1 - i] != kUnwritten || arena[memory_bytes + i] != kUnwritten) {
      return testing::AssertionFailure() << "rank " << program_->rank << " wrote outside its arena";
    }
  }
  int64_t used = bytes;
  while (used > 0 && arena[used - 1] == kUnwritten) --used;
  // Slots end at multiples of 128.
  if (BytesToUse(*program_) - used < 128) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "rank " << program_->rank << " used " << used << " bytes of an arena of " << bytes;
}

testing::AssertionResult RankJob::LeftItsInputsAlone() const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i].empty() && inputs_[i] != tensors_[i]) {
      return testing::AssertionFailure()
             << "rank " << program_->rank << " wrote to its input " << i;
    }
  }
  return testing::AssertionSuccess();
}

std::vector<std::vector<std::byte>> RankJob::Outputs() const {
  std::vector<std::vector<std::byte>> outputs = tensors_;
  const std::vector<TensorInfo> table = TensorTable(program_->spec);
  for (size_t i = 0; i < table.size(); ++i) {
    if (table[i].direction == Direction::kInput) outputs[i].clear();
  }
  return outputs;
}

bool JobRunner::EndsRows() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const std::unique_ptr<RankJob>& rank) {
    return rank->status().ok() && !EndedStates(rank->program().schedule).empty();
  });
}

JobRunner::JobRunner(const JobCase& job, std::shared_ptr<const JobInputs> inputs)
    : job_(job), inputs_(std::move(inputs)) {
  for (int32_t r = 0; r < job.plan.world_size; ++r)
    ranks_.push_back(std::make_unique<RankJob>(job, r, *inputs_));
}

absl::Status JobRunner::status() const {
  for (const auto& rank : ranks_) RETURN_IF_ERROR(rank->status());
  return absl::OkStatus();
}

testing::AssertionResult JobRunner::Run(Group& group, const KernelFactory& make_kernel) {
  if (!status().ok()) {
    return testing::AssertionFailure() << Describe(job_) << ": " << status();
  }
  const auto statuses = RunRanks(ranks(), [&](int32_t r) {
    const std::unique_ptr<AttentionKernel> kernel = make_kernel();
    Executor::Options options;
    options.kernel = kernel.get();
    options.communicator = ranks() == 1 ? nullptr : group[r].get();
    ranks_[r]->MakeExecutor(std::move(options));
    return ranks_[r]->RunAll(job_.segments);
  });
  const absl::Status status = FirstError(statuses);
  if (!status.ok()) return testing::AssertionFailure() << Describe(job_) << ": " << status;
  for (const auto& rank : ranks_) {
    for (const auto& kept : {rank->UsedExactlyItsArena(), rank->LeftItsInputsAlone()}) {
      if (!kept) return testing::AssertionFailure() << Describe(job_) << ": " << kept.message();
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult JobRunner::RunAndJudge(Group& group, const KernelFactory& make_kernel) {
  const testing::AssertionResult ran = Run(group, make_kernel);
  return ran ? Judge() : ran;
}

testing::AssertionResult JobRunner::Judge() const {
  const testing::AssertionResult judged =
      job_.spec.operation == Operation::kGradients
          ? reference::CheckGradients(inputs_->input, inputs_->upstream, GatheredGradients())
          : reference::CheckWithinBudget(inputs_->input, Gathered());
  if (judged) return judged;
  return testing::AssertionFailure() << Describe(job_) << ": " << judged.message();
}

std::vector<float> JobRunner::GatherTensor(TensorId id) const {
  const std::vector<TensorInfo> table = TensorTable(job_.spec);
  const TensorInfo& tensor = *FindTensor(table, id);
  const int64_t width = static_cast<int64_t>(tensor.heads) * tensor.dim;
  std::vector<float> packed(RowsOf(tensor, job_.spec) * width, NAN);
  for (int32_t r = 0; r < ranks(); ++r) {
    const RowMap& rows = ranks_[r]->program().plan.shards[r].rows(tensor.rows);
    for (int64_t row = 0; row < rows.rows(); ++row) {
      const std::vector<float> values = reference::FloatsOf(
          reference::PrecisionOf(tensor.dtype),
          ranks_[r]->staged().data[&tensor - table.data()] + row * tensor.row_bytes(), width);
      std::copy(values.begin(), values.end(), &packed[rows.Global(row) * width]);
    }
  }
  return packed;
}

reference::Answer JobRunner::Gathered() const {
  reference::Answer answer;
  answer.inputs = reference::ArithmeticOf(job_.spec);
  answer.output = reference::PrecisionOf(job_.spec.output_dtype());
  answer.out = GatherTensor(TensorId::kOut);
  answer.lse = GatherTensor(TensorId::kLse);
  answer.lse_base_2 = job_.spec.outputs.lse_base == LseBase::k2;
  answer.bf16_partials = job_.execution.bf16_partials;
  if (job_.spec.outputs.max_logit) answer.max_logit = GatherTensor(TensorId::kMaxLogit);
  return answer;
}

reference::GradientAnswer JobRunner::GatheredGradients() const {
  reference::GradientAnswer answer;
  answer.inputs = reference::PrecisionOf(job_.spec.dtype);
  answer.dq = GatherTensor(TensorId::kDq);
  answer.dk = GatherTensor(TensorId::kDk);
  answer.dv = GatherTensor(TensorId::kDv);
  if (!job_.spec.modifiers.sinks.empty()) answer.d_sink = GatherTensor(TensorId::kDSink);
  const BiasAndMaskInputs pairs(job_.spec);
  if (!pairs.d_bias) return answer;
  answer.bias_heads = pairs.bias_heads;
  answer.d_bias = GatherTensor(TensorId::kDBias);
  return answer;
}

}  // namespace annulus
