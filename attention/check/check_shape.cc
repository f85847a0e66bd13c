#include "attention/check/check_shape.h"

#include <algorithm>
#include <set>
#include <vector>

#include "attention/check/broken.h"
#include "attention/check/region.h"
#include "attention/status_macros.h"
#include "attention/visible_pairs.h"

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
      : request_(request), rank_(rank), schedule_(schedule) {}

  absl::Status Blocks() const {
    for (const Block& block : schedule_.buffers) RETURN_IF_ERROR(CheckBlock(block));
    RETURN_IF_ERROR(Ends(schedule_.inputs, {BlockKind::kQ, BlockKind::kKv}, "an input"));
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

  absl::Status CheckBlock(const Block& block) const {
    if (block.kind != BlockKind::kQ && block.kind != BlockKind::kKv &&
        block.kind != BlockKind::kPartial && block.kind != BlockKind::kOut) {
      return Broken(rank_, -1, "a forward schedule holds a gradient block");
    }
    if (block.shard < 0 || block.shard >= static_cast<int32_t>(request_.plan->shards.size())) {
      return Broken(rank_, -1, "a block of a shard that is not in the plan");
    }
    const Shard& shard = request_.plan->shards[block.shard];
    const bool keys = block.kind == BlockKind::kKv;
    const Patch patch = PatchOf(block);
    const int32_t heads = keys ? request_.spec->kv_heads : request_.spec->q_heads;
    if (!Inside(patch.rows, {0, keys ? shard.kv_rows.rows() : shard.q_rows.rows()}) ||
        !Inside(patch.heads, {0, heads})) {
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
    if (transfer.peer == rank_ || transfer.peer < 0 || transfer.peer >= request_.plan->world_size) {
      return Broken(rank_, k, "a transfer with itself or with no rank");
    }
    return absl::OkStatus();
  }

  absl::Status CheckTask(int32_t k, const Task& task) const {
    if (!IsBuffer(task.q) || !IsBuffer(task.kv) || !IsBuffer(task.out_q) || task.out_kv != -1) {
      return Broken(rank_, k, "a task lacks a buffer");
    }
    const Block &q = BlockOf(task.q), &kv = BlockOf(task.kv), &out = BlockOf(task.out_q);
    if (q.kind != BlockKind::kQ || kv.kind != BlockKind::kKv || out.kind != BlockKind::kPartial ||
        out.shard != q.shard) {
      return Broken(rank_, k, "a task's buffers do not fit each other");
    }
    const Interval rows{task.q_begin, task.q_end}, heads{task.head_begin, task.head_end};
    if (!Inside(rows, PatchOf(q).rows) || !Inside(rows, PatchOf(out).rows) ||
        !Inside({task.k_begin, task.k_end}, PatchOf(kv).rows)) {
      return Broken(rank_, k, "a task's rows are empty or outside its buffers");
    }
    const int32_t group = request_.spec->q_heads / request_.spec->kv_heads;
    if (!Inside(heads, PatchOf(q).heads) || !Inside(heads, PatchOf(out).heads) ||
        !Inside({heads.begin / group, (heads.end - 1) / group + 1}, PatchOf(kv).heads)) {
      return Broken(rank_, k, "a task's heads are empty or outside its buffers");
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
      full = full &&
             VisiblePairs(*request_.mask, rectangle) == rectangle.q.length() * rectangle.k.length();
    });
    const bool bits = std::any_of(request_.spec->masks.begin(), request_.spec->masks.end(),
                                  [](const Mask& mask) { return mask.bit_mask; });
    if (task.coverage != Coverage::kFull || bits || !full) {
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
        fits = source == BlockKind::kPartial && target == BlockKind::kPartial;
        break;
      case Op::Kind::kFinish:
        fits = source == BlockKind::kPartial && target == BlockKind::kOut;
        break;
      case Op::Kind::kCopy:
        fits = source == target;
        break;
      case Op::Kind::kAdd:  // Gradients only.
        break;
    }
    return fits ? absl::OkStatus() : Broken(rank_, k, "an op on buffers of a wrong kind");
  }

  const ScheduleRequest& request_;
  const int32_t rank_;
  const RankSchedule& schedule_;
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
