#ifndef ANNULUS_WORKER_KERNEL_TILE_LOOP_H_
#define ANNULUS_WORKER_KERNEL_TILE_LOOP_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "attention/mask.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/call_plan.h"
#include "worker/kernel/packed_keys.h"
#include "worker/kernel/tile_isa.h"
#include "worker/kernel/tile_rules.h"

namespace annulus {

// What all items of one Accumulate call share; nothing in it changes while items run.
struct TileCall {
  const KernelJob* job = nullptr;
  const TileIsa* isa = nullptr;
  const CallPlan* plan = nullptr;
  const PackedKeys* packed = nullptr;  // nullptr: each thread packs a block when it meets it.
  KernelControl control;
};

// One thread's working memory: a tile of queries, scores and sums. About 2.5 MiB.
class TileScratch {
 public:
  TileScratch();

 private:
  friend class TileLoop;
  struct Slot {
    int64_t row = 0;  // shard-local
    int32_t q_head = 0;
    absl::Span<const Interval> spans;
  };
  struct alignas(64) Line {
    float value[16];
  };
  std::vector<Line> memory_;
  float *queries_, *scores_, *sums_;
  std::array<float, kMostTileRows> max_, weight_, alpha_;
  std::array<Slot, kMostTileRows> slots_;
  // Hull of what a slot sees in the block at hand, relative to the block.
  std::array<int16_t, kMostTileRows> begin_, end_;
  std::array<int16_t, kMostTileRows / kRowGroup> group_begin_, group_end_;
};

// Runs one item: brings its accumulator rows up to date with all units of the phase. Ends early
// when the call is stopped, and leaves the rows undefined then.
class TileLoop {
 public:
  // `passing` has room for one block.
  TileLoop(const TileCall& call, TileScratch& scratch, PackedKeys* passing)
      : call_(call), s_(scratch), passing_(passing), rules_(*call.job) {}
  void Run(const Phase& phase, const Item& item);

 private:
  void RunUnit(const Phase& phase, const Unit& unit, const Item& item);
  // Finds the slots that see something in the unit; the rest of the tile is not touched.
  void GatherSlots(const Unit& unit, const Item& item);
  void PackQueries(const KernelTask& task);
  void LoadState(const KernelTask& task);
  void StoreState(const KernelTask& task);
  // Sets what each slot and each row group sees of keys [first, first + kKeyBlock); false when that
  // is nothing.
  bool FindVisible(int64_t first);
  void FindSeen(int slot, int64_t first, std::vector<KeySpan>* spans) const;
  void NoteSeen(int64_t first);
  void MaskScores(int64_t first);
  // A block of keys of one head: where it is packed, or would be.
  struct BlockPlace {
    const KeySource* source = nullptr;
    int32_t kv_head = 0;
    int64_t block = 0, pack = 0;
  };
  // Attends to the block, and to blocks behind it and before `end` where it can in one go; returns
  // to how many.
  int RunBlocks(const KernelTask& task, const BlockPlace& place, int64_t end);
  // Attends to the block, step by step.
  void RunBlock(const KernelTask& task, int64_t first, bool finite);
  // Whether the block at hand, whose values may all be finite, needs nothing that `attend` lacks.
  bool CanAttend(bool finite) const;
  int Attend(const PackedKeys& packed, const BlockPlace& place, int64_t end);
  void AccumulateRowByRow(int64_t first);

  const TileCall& call_;
  TileScratch& s_;
  PackedKeys* const passing_;
  TileRules rules_;
  TileBlock tile_;
  // Keys that all slots see: blocks inside need no mask.
  Interval seen_by_all_;
  // Of the block at hand: some slot sees less than its row group's hull; no slot sees keys on both
  // sides of some that it does not see.
  bool masked_ = false, gapless_ = true;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_TILE_LOOP_H_
