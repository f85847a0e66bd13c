#include "tests/worker/kernel/kernel_harness.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attention/schedule/passes/row_ends.h"
#include "attention/sharding/task_rows.h"
#include "attention/spec/dtype.h"
#include "tests/reference/from_spec.h"

namespace annulus {
namespace {

// The coverage of one task, computed from the visibility of each head: none, some or all of its
// rectangle.
Coverage CoverageOf(const MaskMap& mask, const RowMap& q_rows, const RowMap& k_rows,
                    const Task& task) {
  int64_t seen = 0;
  for (int32_t head = task.head_begin; head < task.head_end; ++head) {
    const TaskRows rows = VisibleInTask(mask, q_rows, k_rows, {task.q_begin, task.q_end},
                                        {task.k_begin, task.k_end}, head);
    for (const Interval& span : rows.spans) seen += span.length();
  }
  const int64_t all =
      (task.q_end - task.q_begin) * (task.k_end - task.k_begin) * (task.head_end - task.head_begin);
  return seen == 0 ? Coverage::kEmpty : seen == all ? Coverage::kFull : Coverage::kPartial;
}

}  // namespace

std::vector<Interval> PiecesOf(int64_t rows, const std::vector<int64_t>& cuts) {
  std::vector<Interval> pieces;
  int64_t begin = 0;
  for (const int64_t cut : cuts) {
    if (cut <= begin || cut >= rows) continue;
    pieces.push_back({begin, cut});
    begin = cut;
  }
  if (begin < rows) pieces.push_back({begin, rows});
  return pieces;
}

RowMap AllRows(int64_t rows) {
  if (rows == 0) return RowMap();
  return RowMap({RowRange{0, rows, rows, 1}});
}

RowMap RowsOfShard(int64_t rows, const Cuts& cuts, int64_t shard) {
  const int64_t begin = rows * shard / cuts.key_shards, end = rows * (shard + 1) / cuts.key_shards;
  const int64_t striped = (rows - shard + cuts.key_shards - 1) / cuts.key_shards;
  if (cuts.striped) return striped > 0 ? RowMap({{shard, 1, cuts.key_shards, striped}}) : RowMap();
  return begin < end ? RowMap({{begin, end - begin, end - begin, 1}}) : RowMap();
}

Task TaskOf(const MaskMap& mask, const RowMap& q_rows, const RowMap& k_rows, const Block& q,
            Interval keys) {
  Task task;
  task.q_begin = q.row_begin;
  task.q_end = q.row_end;
  task.k_begin = keys.begin;
  task.k_end = keys.end;
  task.head_begin = q.head_begin;
  task.head_end = q.head_end;
  task.coverage = CoverageOf(mask, q_rows, k_rows, task);
  return task;
}

std::string Describe(const AttentionSpec& spec, const Cuts& cuts) {
  std::string text = absl::StrCat(DataTypeName(spec.dtype), " Hq", spec.q_heads, " Hkv",
                                  spec.kv_heads, " D", spec.head_dim, " Dv", spec.value_dim());
  for (const Sequence& s : spec.sequences) absl::StrAppend(&text, " ", s.q_len, "x", s.kv_len);
  for (const Mask& m : spec.masks) {
    absl::StrAppend(&text, m.causal ? " causal" : " mask");
    if (m.window_left) absl::StrAppend(&text, " left ", *m.window_left);
    if (m.window_right) absl::StrAppend(&text, " right ", *m.window_right);
    if (m.always_visible) absl::StrAppend(&text, " always ", *m.always_visible);
  }
  if (spec.modifiers.soft_cap) absl::StrAppend(&text, " cap ", *spec.modifiers.soft_cap);
  if (!spec.modifiers.alibi_slopes.empty()) absl::StrAppend(&text, " alibi");
  if (!spec.modifiers.sinks.empty()) absl::StrAppend(&text, " sinks");
  if (spec.modifiers.bias) absl::StrAppend(&text, " bias of ", spec.modifiers.bias->heads);
  if (spec.modifiers.lse_offset) absl::StrAppend(&text, " offset");
  if (spec.arithmetic == Arithmetic::kBf16x3) absl::StrAppend(&text, " bf16x3");
  if (spec.dropout) absl::StrAppend(&text, " dropout ", spec.dropout->rate);
  return absl::StrCat(text, " | q cuts ", absl::StrJoin(cuts.q_rows, ","), " head cuts ",
                      absl::StrJoin(cuts.q_heads, ","), " key cuts ", absl::StrJoin(cuts.keys, ","),
                      " shards ", cuts.key_shards, cuts.striped ? " striped" : "",
                      cuts.call_per_task ? " call per task" : "");
}

OwnedBlock::OwnedBlock(const BlockLayout& layout, const Block& block)
    : block(block), bytes(layout.BlockBytes(block), std::byte{0xff}) {}

std::unique_ptr<OwnedBlock> PairsBeside(const AttentionSpec& spec, const BlockLayout& layout,
                                        const reference::Input& input, Block block) {
  const BiasAndMaskInputs& pairs = layout.pairs();
  if (!pairs.any()) return nullptr;
  block.kind = BlockKind::kPairs;
  if (!pairs.per_head()) {
    block.head_begin = 0;
    block.head_end = 1;
  }
  auto made = std::make_unique<OwnedBlock>(layout, block);
  const int32_t heads = block.head_end - block.head_begin;
  const auto copy = [&](const std::vector<std::byte>& tensor, int32_t all, int64_t head_bytes,
                        int64_t offset) {
    const int64_t first = all == 1 ? 0 : block.head_begin, count = all == 1 ? 1 : heads;
    for (int64_t row = block.row_begin; row < block.row_end; ++row) {
      std::memcpy(made->bytes.data() + offset +
                      (row - block.row_begin) * layout.RowBytes(BlockKind::kPairs, heads),
                  tensor.data() + (row * all + first) * head_bytes, count * head_bytes);
    }
  };
  if (pairs.has_bias) copy(BiasBytes(spec, input), pairs.bias_heads, pairs.bias_bytes(), 0);
  if (pairs.has_bits) {
    copy(BitBytes(spec, input), pairs.bit_heads, pairs.bit_bytes(),
         layout.SecondOffset(BlockKind::kPairs, heads));
  }
  if (pairs.has_offset) {
    copy(OffsetBytes(spec, input), spec.q_heads, sizeof(float),
         layout.ThirdOffset(BlockKind::kPairs, heads));
  }
  return made;
}

KernelHarness::KernelHarness(const AttentionSpec& spec, const reference::Input& input,
                             const Cuts& cuts)
    : spec_(spec), cuts_(cuts), mask_(spec), layout_(spec), q_rows_(AllRows(spec.q_rows())) {
  MakePieces(input);
  for (Piece& piece : pieces_) piece.pairs = PairsBeside(spec_, layout_, input, piece.q->block);
  MakeShards(input);
}

void KernelHarness::MakePieces(const reference::Input& input) {
  const std::vector<std::byte> q = BytesOf(reference::PrecisionOf(spec_.dtype), input.q);
  const int64_t head_bytes = int64_t{spec_.head_dim} * BytesPerElement(spec_.dtype);
  for (const Interval& rows : PiecesOf(spec_.q_rows(), cuts_.q_rows)) {
    for (const Interval& heads :
         PiecesOf(spec_.q_heads, {cuts_.q_heads.begin(), cuts_.q_heads.end()})) {
      Block block;
      block.row_begin = rows.begin;
      block.row_end = rows.end;
      block.head_begin = static_cast<int32_t>(heads.begin);
      block.head_end = static_cast<int32_t>(heads.end);
      Piece piece;
      block.kind = BlockKind::kQ;
      piece.q = std::make_unique<OwnedBlock>(layout_, block);
      block.kind = BlockKind::kPartial;
      piece.partial = std::make_unique<OwnedBlock>(layout_, block);
      block.kind = BlockKind::kOut;
      piece.out = std::make_unique<OwnedBlock>(layout_, block);
      const int64_t row_bytes =
          layout_.RowBytes(BlockKind::kQ, static_cast<int32_t>(heads.length()));
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        std::memcpy(piece.q->bytes.data() + (row - rows.begin) * row_bytes,
                    q.data() + (row * spec_.q_heads + heads.begin) * head_bytes,
                    heads.length() * head_bytes);
      }
      pieces_.push_back(std::move(piece));
    }
  }
}

void KernelHarness::MakeShards(const reference::Input& input) {
  const reference::Precision precision = reference::PrecisionOf(spec_.dtype);
  const std::vector<std::byte> k = BytesOf(precision, input.k), v = BytesOf(precision, input.v);
  const int64_t element = BytesPerElement(spec_.dtype);
  const int64_t k_bytes = element * spec_.kv_heads * spec_.head_dim;
  const int64_t v_bytes = element * spec_.kv_heads * spec_.value_dim();
  for (int s = 0; s < cuts_.key_shards; ++s) {
    Shard shard;
    shard.rows = RowsOfShard(spec_.kv_rows(), cuts_, s);
    Block block;
    block.kind = BlockKind::kKv;
    block.shard = s;
    block.row_end = shard.rows.rows();
    block.head_end = spec_.kv_heads;
    shard.kv = std::make_unique<OwnedBlock>(layout_, block);
    const int64_t row_bytes = layout_.RowBytes(BlockKind::kKv, spec_.kv_heads);
    for (int64_t local = 0; local < shard.rows.rows(); ++local) {
      const int64_t global = shard.rows.Global(local);
      std::byte* row = shard.kv->bytes.data() + local * row_bytes;
      std::memcpy(row, k.data() + global * k_bytes, k_bytes);
      std::memcpy(row + layout_.SecondOffset(BlockKind::kKv, spec_.kv_heads),
                  v.data() + global * v_bytes, v_bytes);
    }
    shards_.push_back(std::move(shard));
  }
}

KernelJob KernelHarness::job() const {
  KernelJob job;
  job.spec = &spec_;
  job.mask = &mask_;
  job.layout = &layout_;
  job.scale = spec_.scale_or_default();
  return job;
}

std::vector<KernelTask> KernelHarness::Tasks() {
  std::vector<KernelTask> tasks;
  for (Shard& shard : shards_) {
    for (const Interval& keys : PiecesOf(shard.rows.rows(), cuts_.keys)) {
      for (Piece& piece : pieces_) {
        KernelTask bound;
        bound.task = TaskOf(mask_, q_rows_, shard.rows, piece.q->block, keys);
        if (bound.task.coverage == Coverage::kEmpty) continue;
        bound.q = piece.q->view();
        if (piece.pairs != nullptr) bound.pairs = piece.pairs->view();
        bound.kv = shard.kv->view();
        bound.out_q = piece.partial->view();
        bound.q_rows = &q_rows_;
        bound.k_rows = &shard.rows;
        tasks.push_back(bound);
      }
    }
  }
  return tasks;
}

absl::Status KernelHarness::ApplyToAll(AttentionKernel& kernel, KernelOp::Kind kind,
                                       const std::vector<bool>& which) {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (!which.empty() && !which[i]) continue;
    Piece& piece = pieces_[i];
    KernelOp op;
    op.kind = kind;
    op.source = piece.partial->view();
    op.target = kind == KernelOp::Kind::kFinish ? piece.out->view() : piece.partial->view();
    const absl::Status status = kernel.Apply(job(), op);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status KernelHarness::Run(AttentionKernel& kernel, const KernelControl& control) {
  absl::Status status = ApplyToAll(kernel, KernelOp::Kind::kIdentity);
  if (!status.ok()) return status;
  status = Accumulate(kernel, Tasks(), control);
  return status.ok() ? FinishAll(kernel) : status;
}

absl::Status KernelHarness::RunCutRows(AttentionKernel& kernel) {
  absl::Status status = ApplyToAll(kernel, KernelOp::Kind::kIdentity);
  if (status.ok()) status = Accumulate(kernel, CutTasks(), {});
  return status.ok() ? FinishAll(kernel) : status;
}

absl::Status KernelHarness::Accumulate(AttentionKernel& kernel, absl::Span<const KernelTask> tasks,
                                       const KernelControl& control) {
  const size_t step = cuts_.call_per_task ? 1 : std::max<size_t>(1, tasks.size());
  for (size_t t = 0; t < tasks.size(); t += step) {
    absl::Status status = kernel.Accumulate(job(), tasks.subspan(t, step), control);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

std::vector<KernelTask> KernelHarness::CutTasks() {
  std::vector<KernelTask> tasks;
  for (const KernelTask& whole : Tasks()) {
    const int64_t middle = (whole.task.q_begin + whole.task.q_end) / 2;
    tasks.push_back(whole);
    if (tasks.size() % 2 == 0 || middle == whole.task.q_begin) continue;
    tasks.back().task.q_end = middle;
    tasks.push_back(whole);
    tasks.back().task.q_begin = middle;
  }
  return tasks;
}

absl::Status KernelHarness::RunEndingRows(AttentionKernel& kernel) {
  std::vector<KernelTask> tasks = CutTasks();
  // Buffers: accumulator and output of each piece alternate.
  RankSchedule schedule;
  schedule.steps.resize(1);
  std::map<const std::byte*, int32_t> piece_of;
  for (Piece& piece : pieces_) {
    const auto number = static_cast<int32_t>(schedule.buffers.size());
    piece_of[piece.partial->bytes.data()] = number / 2;
    schedule.buffers.insert(schedule.buffers.end(), {piece.partial->block, piece.out->block});
    schedule.steps[0].ops.push_back({Op::Kind::kFinish, number, number + 1});
  }
  for (KernelTask& bound : tasks) {
    bound.task.out_q = 2 * piece_of[bound.out_q.data];
    schedule.steps[0].tasks.push_back(bound.task);
  }
  const RankSchedule ends = WithRowEnds(schedule, std::vector<bool>(2 * pieces_.size(), true));
  std::vector<bool> left(pieces_.size(), false);
  for (const Op& op : ends.steps[0].ops) left[op.source / 2] = true;
  for (size_t t = 0; t < tasks.size(); ++t) {
    const int32_t piece = tasks[t].task.out_q / 2;
    tasks[t].task = ends.steps[0].tasks[t];
    if (tasks[t].task.out < 0) continue;
    tasks[t].out = pieces_[piece].out->view();
    ++tasks_ended_;
  }
  absl::Status status = ApplyToAll(kernel, KernelOp::Kind::kIdentity, left);
  if (status.ok()) status = Accumulate(kernel, tasks, {});
  return status.ok() ? ApplyToAll(kernel, KernelOp::Kind::kFinish, left) : status;
}

absl::Status KernelHarness::FinishAll(AttentionKernel& kernel) {
  return ApplyToAll(kernel, KernelOp::Kind::kFinish);
}

reference::Answer KernelHarness::answer() const {
  reference::Answer answer;
  answer.inputs = reference::ArithmeticOf(spec_);
  answer.output = reference::PrecisionOf(spec_.output_dtype());
  const int64_t dim = spec_.value_dim();
  answer.out.resize(spec_.q_rows() * spec_.q_heads * dim);
  answer.lse.resize(spec_.q_rows() * spec_.q_heads);
  answer.lse_base_2 = spec_.outputs.lse_base == LseBase::k2;
  if (layout_.max_logit()) answer.max_logit.resize(answer.lse.size());
  if (layout_.lse_rest(BlockKind::kOut)) answer.lse_rest.resize(answer.lse.size());
  for (const Piece& piece : pieces_) {
    const Block& block = piece.out->block;
    const int32_t heads = block.head_end - block.head_begin;
    for (int64_t row = block.row_begin; row < block.row_end; ++row) {
      const std::byte* at = piece.out->bytes.data() +
                            (row - block.row_begin) * layout_.RowBytes(BlockKind::kOut, heads);
      const std::vector<float> out = reference::FloatsOf(answer.output, at, heads * dim);
      const int64_t first = row * spec_.q_heads + block.head_begin;
      std::copy(out.begin(), out.end(), answer.out.begin() + first * dim);
      std::memcpy(answer.lse.data() + first, at + layout_.SecondOffset(BlockKind::kOut, heads),
                  heads * sizeof(float));
      if (layout_.lse_rest(BlockKind::kOut)) {
        std::memcpy(answer.lse_rest.data() + first,
                    at + layout_.FourthOffset(BlockKind::kOut, heads), heads * sizeof(float));
      }
      if (!layout_.max_logit()) continue;
      std::memcpy(answer.max_logit.data() + first, at + layout_.ThirdOffset(BlockKind::kOut, heads),
                  heads * sizeof(float));
    }
  }
  return answer;
}

std::vector<std::byte> KernelHarness::state() const {
  std::vector<std::byte> all;
  for (const Piece& piece : pieces_)
    all.insert(all.end(), piece.partial->bytes.begin(), piece.partial->bytes.end());
  return all;
}

std::vector<std::byte> KernelHarness::outputs() const {
  std::vector<std::byte> all;
  for (const Piece& piece : pieces_)
    all.insert(all.end(), piece.out->bytes.begin(), piece.out->bytes.end());
  return all;
}

testing::AssertionResult WithinBudget(AttentionKernel& kernel, const AttentionSpec& spec,
                                      const reference::Input& input, const Cuts& cuts) {
  KernelHarness harness(spec, input, cuts);
  const absl::Status status = harness.Run(kernel);
  if (!status.ok()) return testing::AssertionFailure() << status << " " << Describe(spec, cuts);
  testing::AssertionResult result = reference::CheckWithinBudget(input, harness.answer());
  if (result) return result;
  return testing::AssertionFailure()
         << kernel.Description() << " " << Describe(spec, cuts) << ": " << result.message();
}

}  // namespace annulus
