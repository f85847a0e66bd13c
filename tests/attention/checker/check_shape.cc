#include "tests/attention/checker/check_shape.h"

#include <algorithm>
#include <set>
#include <vector>

#include "attention/schedule/model/accumulators.h"
#include "attention/sharding/visible_pairs.h"
#include "attention/spec/bias_and_mask_inputs.h"
#include "base/status_macros.h"
#include "tests/attention/checker/broken.h"
#include "tests/attention/checker/region.h"

namespace annulus {
namespace {

bool Inside(Interval part, Interval whole) {
  return whole.begin <= part.begin && part.begin < part.end && part.end <= whole.end;
}

bool SameRegionIsPossible(const Block& a, const Block& b) {
  return a.shard == b.shard && Intersect(PatchOf(a), PatchOf(b)).cells() > 0;
}

class ShapeCheck {
 public:
  ShapeCheck(const ScheduleRequest& request, int32_t rank, const RankSchedule& schedule)
      : request_(request),
        rank_(rank),
        schedule_(schedule),
        gradients_(request.spec->operation == Operation::kGradients),
        pairs_(*request.spec) {}

  absl::Status Blocks() const {
    for (const Block& block : schedule_.buffers) RETURN_IF_ERROR(CheckBlock(block));
    if (gradients_) {
      RETURN_IF_ERROR(Ends(schedule_.inputs,
                           {BlockKind::kQGrad, BlockKind::kOut, BlockKind::kKv, BlockKind::kPairs},
                           "an input"));
      return Ends(schedule_.outputs,
                  {BlockKind::kDqOut, BlockKind::kDkvOut, BlockKind::kDSinkOut, BlockKind::kDBias},
                  "an output");
    }
    RETURN_IF_ERROR(
        Ends(schedule_.inputs, {BlockKind::kQ, BlockKind::kKv, BlockKind::kPairs}, "an input"));
    return Ends(schedule_.outputs, {BlockKind::kOut}, "an output");
  }

  absl::Status CheckStep(int32_t k) const {
    const Step& step = schedule_.steps[k];
    for (const auto* list : {&step.sends, &step.receives}) {
      for (const Transfer& transfer : *list) RETURN_IF_ERROR(CheckTransfer(k, transfer));
    }
    for (const Task& task : step.tasks) {
      RETURN_IF_ERROR(CheckTask(k, task));
      RETURN_IF_ERROR(CheckCoverage(k, task));
    }
    for (const Op& op : step.ops) RETURN_IF_ERROR(CheckOp(k, op));
    return absl::OkStatus();
  }

 private:
  const Block& BlockOf(int32_t buffer) const { return schedule_.buffers[buffer]; }
  bool IsBuffer(int32_t buffer) const {
    return buffer >= 0 && buffer < static_cast<int32_t>(schedule_.buffers.size());
  }

  bool IsInput(int32_t buffer) const {
    return std::find(schedule_.inputs.begin(), schedule_.inputs.end(), buffer) !=
           schedule_.inputs.end();
  }

  absl::Status CheckBlock(const Block& block) const {
    const bool both = block.kind == BlockKind::kKv || block.kind == BlockKind::kOut ||
                      block.kind == BlockKind::kPairs;
    const bool forward = block.kind == BlockKind::kQ || block.kind == BlockKind::kPartial ||
                         block.kind == BlockKind::kBf16Partial;
    if (!both && forward == gradients_) {
      return Broken(rank_, -1, "a schedule holds a block of the other operation");
    }
    if (block.kind == BlockKind::kDSinkOut && request_.spec->modifiers.sinks.empty()) {
      return Broken(rank_, -1, "gradients of sinks where there are none");
    }
    if (block.kind == BlockKind::kDBias && !pairs_.d_bias) {
      return Broken(rank_, -1, "a gradient of a bias that nobody asks for");
    }
    if (block.shard < 0 || block.shard >= static_cast<int32_t>(request_.plan->shards.size())) {
      return Broken(rank_, -1, "a block of a shard that is not in the plan");
    }
    const Shard& shard = request_.plan->shards[block.shard];
    const RowSpace space = RowSpaceOf(block.kind);
    const Patch patch = PatchOf(block);
    const bool of_all = (block.kind == BlockKind::kPairs && !pairs_.per_head()) ||
                        (block.kind == BlockKind::kDBias && pairs_.bias_heads == 1);
    const int32_t heads = space == RowSpace::kKey ? request_.spec->kv_heads
                          : of_all                ? 1
                                                  : request_.spec->q_heads;
    if (!Inside(patch.rows, {0, shard.rows(space).rows()}) || !Inside(patch.heads, {0, heads})) {
      return Broken(rank_, -1, "a block is empty or reaches outside its shard");
    }
    return absl::OkStatus();
  }

  absl::Status Ends(const std::vector<int32_t>& buffers, const std::vector<BlockKind>& kinds,
                    absl::string_view what) const {
    std::set<int32_t> seen;
    for (const int32_t buffer : buffers) {
      if (!IsBuffer(buffer) || !seen.insert(buffer).second) {
        return Broken(rank_, -1, std::string(what) + " is not a buffer, or named twice");
      }
      const Block& block = BlockOf(buffer);
      if (std::find(kinds.begin(), kinds.end(), block.kind) == kinds.end() ||
          request_.plan->shards[block.shard].owner != rank_) {
        return Broken(rank_, -1, std::string(what) + " of a wrong kind or of another's shard");
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckTransfer(int32_t k, const Transfer& transfer) const {
    if (!IsBuffer(transfer.buffer) ||
        !Inside({transfer.row_begin, transfer.row_end}, PatchOf(BlockOf(transfer.buffer)).rows)) {
      return Broken(rank_, k, "a transfer is empty or outside its buffer");
    }
    const BlockKind lacking =
        request_.execution.bf16_partials ? BlockKind::kPartial : BlockKind::kBf16Partial;
    if (BlockOf(transfer.buffer).kind == lacking) {
      return Broken(rank_, k, "partials travel in another type than the job says");
    }
    if (transfer.peer == rank_ || transfer.peer < 0 || transfer.peer >= request_.plan->world_size) {
      return Broken(rank_, k, "a transfer with itself or with no rank");
    }
    return absl::OkStatus();
  }

  // Checks accumulators: gradients go to one side or both, and need queries with complete deltas.
  bool OutputsFit(const Task& task) const {
    const BlockKind q = BlockOf(task.q).kind;
    if (!gradients_) {
      return task.out_kv == -1 && IsBuffer(task.out_q) && q == BlockKind::kQ &&
             BlockOf(task.out_q).kind == BlockKind::kPartial;
    }
    const auto fits = [&](int32_t buffer, BlockKind kind) {
      return buffer == -1 || (IsBuffer(buffer) && BlockOf(buffer).kind == kind);
    };
    return q == BlockKind::kQGrad && (task.out_q != -1 || task.out_kv != -1) &&
           fits(task.out_q, BlockKind::kDq) && fits(task.out_kv, BlockKind::kDkv);
  }

  // In a job with a bias or a bit mask, every task has those of its queries; otherwise none.
  bool PairsFit(const Task& task, Patch queries) const {
    if (!pairs_.any()) return task.pairs == -1;
    if (!pairs_.per_head()) queries.heads = {0, 1};
    return IsBuffer(task.pairs) && BlockOf(task.pairs).kind == BlockKind::kPairs &&
           Holds(task.pairs, BlockOf(task.q).shard, queries);
  }

  // If the job requests the bias gradient, it accompanies the gradient of queries.
  bool BiasGradientFits(const Task& task, Patch queries) const {
    if (!pairs_.d_bias || task.out_q == -1) return task.out_bias == -1;
    if (pairs_.bias_heads == 1) queries.heads = {0, 1};
    return IsBuffer(task.out_bias) && BlockOf(task.out_bias).kind == BlockKind::kDBias &&
           Holds(task.out_bias, BlockOf(task.q).shard, queries);
  }

  // Only in forward passes rows begin and end in tasks. Rows that end go to an output.
  bool RowEndsFit(const Task& task) const {
    const auto within = [&](Interval rows) {
      return rows == Interval() || Inside(rows, {task.q_begin, task.q_end});
    };
    if (!within(task.begins) || !within(task.ends)) return false;
    if (task.ends == Interval())
      return task.out == -1 && (!gradients_ || task.begins == Interval());
    return !gradients_ && IsBuffer(task.out) && BlockOf(task.out).kind == BlockKind::kOut &&
           Holds(task.out, BlockOf(task.q).shard, {task.ends, {task.head_begin, task.head_end}});
  }

  bool Holds(int32_t buffer, int32_t shard, const Patch& patch) const {
    if (buffer == -1) return true;  // The task has no such output.
    const Block& block = BlockOf(buffer);
    return block.shard == shard && Inside(patch.rows, PatchOf(block).rows) &&
           Inside(patch.heads, PatchOf(block).heads);
  }

  absl::Status CheckTask(int32_t k, const Task& task) const {
    if (!IsBuffer(task.q) || !IsBuffer(task.kv)) return Broken(rank_, k, "a task lacks a buffer");
    const Block &q = BlockOf(task.q), &kv = BlockOf(task.kv);
    if (kv.kind != BlockKind::kKv || !OutputsFit(task)) {
      return Broken(rank_, k, "a task's buffers do not fit each other");
    }
    const Interval heads{task.head_begin, task.head_end};
    if (heads.length() == 0) return Broken(rank_, k, "a task has no heads");
    const int32_t group = request_.spec->q_heads / request_.spec->kv_heads;
    const Patch queries{{task.q_begin, task.q_end}, heads};
    const Patch keys{{task.k_begin, task.k_end},
                     {heads.begin / group, (heads.end - 1) / group + 1}};
    if (!Holds(task.q, q.shard, queries) || !Holds(task.out_q, q.shard, queries) ||
        !Holds(task.kv, kv.shard, keys) || !Holds(task.out_kv, kv.shard, keys)) {
      return Broken(rank_, k, "a task's rows or heads are empty or outside its buffers");
    }
    if (!PairsFit(task, queries)) {
      return Broken(rank_, k, "a task lacks the bias or the bit mask of its queries");
    }
    if (!BiasGradientFits(task, queries)) {
      return Broken(rank_, k, "a task lacks an accumulator of the gradient of the bias");
    }
    if (!RowEndsFit(task)) {
      return Broken(rank_, k, "rows begin or end outside their task or their output");
    }
    return absl::OkStatus();
  }

  absl::Status CheckCoverage(int32_t k, const Task& task) const {
    if (task.coverage == Coverage::kPartial) return absl::OkStatus();
    bool full = true;
    request_.mask->ForEachClass(task.head_begin, task.head_end, [&](int32_t head, int32_t) {
      const LocalRectangle rectangle = {&request_.plan->shards[BlockOf(task.q).shard].q_rows,
                                        &request_.plan->shards[BlockOf(task.kv).shard].kv_rows,
                                        {task.q_begin, task.q_end},
                                        {task.k_begin, task.k_end},
                                        head};
      const int64_t sequence =
          request_.mask->SequenceOfQuery(rectangle.q_map->Global(task.q_begin));
      full = full && !request_.mask->HasBits(head, sequence) &&
             VisiblePairs(*request_.mask, rectangle) == rectangle.q.length() * rectangle.k.length();
    });
    if (task.coverage != Coverage::kFull || !full) {
      return Broken(rank_, k, "a task is not as full as it says");
    }
    return absl::OkStatus();
  }

  absl::Status CheckOp(int32_t k, const Op& op) const {
    if (!IsBuffer(op.source) || !IsBuffer(op.target) || op.source == op.target ||
        !SameRegionIsPossible(BlockOf(op.source), BlockOf(op.target))) {
      return Broken(rank_, k, "an op without two buffers that share a region");
    }
    const BlockKind source = BlockOf(op.source).kind, target = BlockOf(op.target).kind;
    bool fits = false;
    switch (op.kind) {
      case Op::Kind::kMerge:
        fits = (source == BlockKind::kPartial || source == BlockKind::kBf16Partial) &&
               target == BlockKind::kPartial;
        break;
      case Op::Kind::kRound:
        fits = source == BlockKind::kPartial && target == BlockKind::kBf16Partial;
        break;
      case Op::Kind::kFinish:
        fits = (source == BlockKind::kPartial && target == BlockKind::kOut) ||
               (source == BlockKind::kDq && target == BlockKind::kDqOut) ||
               (source == BlockKind::kDkv && target == BlockKind::kDkvOut);
        break;
      case Op::Kind::kAdd:
        fits = source == target && IsGradientSum(source);
        break;
      case Op::Kind::kDelta:
        fits = source == BlockKind::kOut && target == BlockKind::kQGrad && IsInput(op.target);
        break;
      case Op::Kind::kSink:
        fits = source == BlockKind::kQGrad && target == BlockKind::kDSinkOut;
        break;
    }
    return fits ? absl::OkStatus() : Broken(rank_, k, "an op on buffers of a wrong kind");
  }

  const ScheduleRequest& request_;
  const int32_t rank_;
  const RankSchedule& schedule_;
  const bool gradients_;
  const BiasAndMaskInputs pairs_;
};

}  // namespace

absl::Status CheckShape(const ScheduleRequest& request, int32_t rank,
                        const RankSchedule& schedule) {
  const ShapeCheck check(request, rank, schedule);
  RETURN_IF_ERROR(check.Blocks());
  for (int32_t k = 0; k < static_cast<int32_t>(schedule.steps.size()); ++k) {
    RETURN_IF_ERROR(check.CheckStep(k));
  }
  return absl::OkStatus();
}

}  // namespace annulus
