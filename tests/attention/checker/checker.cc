#include "tests/attention/checker/checker.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/schedule/model/accumulators.h"
#include "attention/sharding/visible_pairs.h"
#include "attention/spec/bias_and_mask_inputs.h"
#include "base/status_macros.h"
#include "tests/attention/checker/broken.h"
#include "tests/attention/checker/check_fold.h"
#include "tests/attention/checker/check_memory.h"
#include "tests/attention/checker/check_shape.h"
#include "tests/attention/checker/rank_replay.h"
#include "tests/attention/checker/region.h"

namespace annulus {
namespace {

absl::Status CheckParts(const ScheduleRequest& request, const std::vector<RankSchedule>& ranks,
                        const std::vector<ArenaPlan>& placements,
                        const std::vector<std::vector<bool>>& in_staging) {
  const size_t world = request.plan->world_size;
  if (ranks.size() != world || placements.size() != world ||
      (!in_staging.empty() && in_staging.size() != world)) {
    return Broken(-1, -1, "not one schedule and one placement for each rank");
  }
  const BlockLayout layout(*request.spec);
  const std::vector<bool> none;
  for (size_t rank = 0; rank < world; ++rank) {
    if (ranks[rank].steps.empty() || ranks[rank].steps.size() != ranks[0].steps.size()) {
      return Broken(rank, -1, "ranks differ in their number of steps, or there is none");
    }
    RETURN_IF_ERROR(CheckShape(request, rank, ranks[rank]));
    RETURN_IF_ERROR(CheckFold(request, static_cast<int32_t>(rank), ranks[rank]));
    RETURN_IF_ERROR(CheckMemory(rank, ranks[rank], placements[rank], layout,
                                in_staging.empty() ? none : in_staging[rank]));
  }
  return absl::OkStatus();
}

// Transfers of one step by (sender, receiver), in list order.
struct Exchange {
  std::vector<const Transfer*> sends, receives;
};
using Exchanges = std::map<std::pair<int32_t, int32_t>, Exchange>;

Exchanges ExchangesOf(const std::vector<RankSchedule>& ranks, int32_t k) {
  Exchanges exchanges;
  for (int32_t rank = 0; rank < static_cast<int32_t>(ranks.size()); ++rank) {
    const Step& step = ranks[rank].steps[k];
    for (const Transfer& send : step.sends) {
      exchanges[{rank, send.peer}].sends.push_back(&send);
    }
    for (const Transfer& receive : step.receives) {
      exchanges[{receive.peer, rank}].receives.push_back(&receive);
    }
  }
  return exchanges;
}

bool SameRegion(const RankSchedule& sender, const Transfer& send, const RankSchedule& receiver,
                const Transfer& receive) {
  Block a = sender.buffers[send.buffer], b = receiver.buffers[receive.buffer];
  a.row_begin = send.row_begin;
  a.row_end = send.row_end;
  b.row_begin = receive.row_begin;
  b.row_end = receive.row_end;
  return a == b;
}

absl::Status ReplayTransfers(const std::vector<RankSchedule>& ranks, int32_t k,
                             std::vector<RankReplay>* replays) {
  for (const auto& [pair, exchange] : ExchangesOf(ranks, k)) {
    const auto [from, to] = pair;
    if (exchange.sends.size() != exchange.receives.size()) {
      return Broken(from, k, absl::StrCat("sends to rank ", to, " and its receives differ"));
    }
    for (size_t i = 0; i < exchange.sends.size(); ++i) {
      const Transfer &send = *exchange.sends[i], &receive = *exchange.receives[i];
      if (!SameRegion(ranks[from], send, ranks[to], receive)) {
        return Broken(from, k, absl::StrCat("a send to rank ", to, " meets another region"));
      }
      RETURN_IF_ERROR((*replays)[to].Take(k, receive, (*replays)[from].Give(send)));
    }
  }
  return absl::OkStatus();
}

absl::Status ReplayStep(const std::vector<RankSchedule>& ranks, int32_t k,
                        std::vector<RankReplay>* replays) {
  for (RankReplay& replay : *replays) RETURN_IF_ERROR(replay.Begin(k));
  RETURN_IF_ERROR(ReplayTransfers(ranks, k, replays));
  for (RankReplay& replay : *replays) RETURN_IF_ERROR(replay.End(k));
  return absl::OkStatus();
}

// The map of all rows of one side of the job.
RowMap AllRows(int64_t rows) { return RowMap({{0, rows, rows, 1}}); }

bool IsOfKeys(const Block& block) { return RowSpaceOf(block.kind) == RowSpace::kKey; }

// The rectangle of an output's own rows and rows of a shard on the other side, as queries and keys.
LocalRectangle RectangleOf(const ScheduleRequest& request, const Block& block, Interval own,
                           const RowMap* other_map, Interval others) {
  const Shard& shard = request.plan->shards[block.shard];
  if (IsOfKeys(block)) return {other_map, &shard.kv_rows, others, own, 0};
  return {&shard.q_rows, other_map, own, others, 0};
}

// The query heads of an output.
Interval QueryHeads(const ScheduleRequest& request, const Block& block) {
  const int32_t q_heads = request.spec->q_heads;
  const int32_t group = IsOfKeys(block) ? q_heads / request.spec->kv_heads : 1;
  if (block.kind == BlockKind::kDBias && BiasAndMaskInputs(*request.spec).bias_heads == 1) {
    return {0, q_heads};
  }
  return {block.head_begin * group, block.head_end * group};
}

// The number of (query, head, key) triples that an output must have attended.
int64_t Wanted(const ScheduleRequest& request, const Block& block) {
  const int64_t rows = IsOfKeys(block) ? request.spec->q_rows() : request.spec->kv_rows();
  if (rows == 0) return 0;
  const RowMap all = AllRows(rows);
  const Interval heads = QueryHeads(request, block);
  int64_t wanted = 0;
  request.mask->ForEachClass(static_cast<int32_t>(heads.begin), static_cast<int32_t>(heads.end),
                             [&](int32_t head, int32_t count) {
                               LocalRectangle rectangle = RectangleOf(
                                   request, block, PatchOf(block).rows, &all, {0, rows});
                               rectangle.q_head = head;
                               wanted += VisiblePairs(*request.mask, rectangle) * count;
                             });
  return wanted;
}

int64_t Found(const ScheduleRequest& request, const Block& block,
              const std::vector<Attended>& seen) {
  int64_t found = 0;
  for (const Attended& one : seen) {
    const Shard& other = request.plan->shards[one.other_shard];
    const RowMap* other_map = IsOfKeys(block) ? &other.q_rows : &other.kv_rows;
    LocalRectangle rectangle = RectangleOf(request, block, one.own.rows, other_map, one.others);
    const Interval heads = one.own.heads;
    request.mask->ForEachClass(static_cast<int32_t>(heads.begin), static_cast<int32_t>(heads.end),
                               [&](int32_t head, int32_t count) {
                                 rectangle.q_head = head;
                                 found += VisiblePairs(*request.mask, rectangle) * count;
                               });
  }
  return found;
}

// Checks that rectangles are disjoint and their visible parts sum to the whole. So each pair occurs
// once, without work per cell.
absl::Status CheckOutput(const ScheduleRequest& request, int32_t rank, const Block& block,
                         const std::vector<Attended>& seen) {
  if (!Disjoint(seen)) return Broken(rank, -1, "a key is attended twice");
  if (Found(request, block, seen) != Wanted(request, block)) {
    return Broken(rank, -1, "a visible key is never attended");
  }
  return absl::OkStatus();
}

// Checks that the outputs of one kind have every row and head of a rank's shards once.
absl::Status CheckTiling(const ScheduleRequest& request, int32_t rank, const RankSchedule& schedule,
                         BlockKind kind) {
  std::map<int32_t, Region> outputs_of_shard;
  for (const int32_t output : schedule.outputs) {
    const Block& block = schedule.buffers[output];
    if (block.kind != kind) continue;
    Region& outputs = outputs_of_shard[block.shard];
    if (outputs.Overlaps(PatchOf(block))) return Broken(rank, -1, "two outputs for one row");
    outputs.Add(PatchOf(block));
  }
  const RowSpace space = RowSpaceOf(kind);
  const int64_t heads = space == RowSpace::kKey     ? request.spec->kv_heads
                        : kind == BlockKind::kDBias ? BiasAndMaskInputs(*request.spec).bias_heads
                                                    : request.spec->q_heads;
  for (size_t s = 0; s < request.plan->shards.size(); ++s) {
    const Shard& shard = request.plan->shards[s];
    const int64_t rows = shard.rows(space).rows();
    if (outputs_of_shard[s].cells() != (shard.owner == rank ? rows * heads : 0)) {
      return Broken(rank, -1, "output rows of a shard are not with its owner");
    }
  }
  return absl::OkStatus();
}

// Checks that a rank's outputs have every row and head of its shards once, finished and complete.
absl::Status CheckOutputs(const ScheduleRequest& request, int32_t rank,
                          const RankSchedule& schedule, const RankReplay& replay) {
  for (const int32_t output : schedule.outputs) {
    const Block& block = schedule.buffers[output];
    if (!replay.Holds(output, PatchOf(block))) {
      return Broken(rank, -1, "an output row is never finished");
    }
    if (block.kind == BlockKind::kDSinkOut) continue;  // Does not depend on keys.
    RETURN_IF_ERROR(CheckOutput(request, rank, block, replay.Seen(output)));
  }
  if (request.spec->operation == Operation::kForward) {
    return CheckTiling(request, rank, schedule, BlockKind::kOut);
  }
  RETURN_IF_ERROR(CheckTiling(request, rank, schedule, BlockKind::kDqOut));
  if (!request.spec->modifiers.sinks.empty()) {
    RETURN_IF_ERROR(CheckTiling(request, rank, schedule, BlockKind::kDSinkOut));
  }
  if (BiasAndMaskInputs(*request.spec).d_bias) {
    RETURN_IF_ERROR(CheckTiling(request, rank, schedule, BlockKind::kDBias));
  }
  return CheckTiling(request, rank, schedule, BlockKind::kDkvOut);
}

}  // namespace

absl::Status CheckSchedule(const ScheduleRequest& request, const std::vector<RankSchedule>& ranks,
                           const std::vector<ArenaPlan>& placements,
                           const std::vector<std::vector<bool>>& in_staging) {
  RETURN_IF_ERROR(CheckParts(request, ranks, placements, in_staging));
  std::vector<RankReplay> replays;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    replays.emplace_back(rank, *request.spec, ranks[rank], placements[rank]);
  }
  for (size_t k = 0; k < ranks[0].steps.size(); ++k) {
    RETURN_IF_ERROR(ReplayStep(ranks, k, &replays));
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    RETURN_IF_ERROR(CheckOutputs(request, rank, ranks[rank], replays[rank]));
  }
  return absl::OkStatus();
}

}  // namespace annulus
