#ifndef ANNULUS_WORKER_KERNEL_CPU_TILE_LOOP_H_
#define ANNULUS_WORKER_KERNEL_CPU_TILE_LOOP_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "attention/mask/mask.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cpu/call_plan.h"
#include "worker/kernel/cpu/isa/tile_isa.h"
#include "worker/kernel/cpu/packed_keys.h"
#include "worker/kernel/cpu/tile_rules.h"

namespace annulus {

// Blocks of keys that are attended to in one go at most: between looks at whether to stop.
inline constexpr int64_t kBlocksAtOnce = 16;

// What all items of one Accumulate call share; nothing in it changes while items run.
struct TileCall {
  const KernelJob* job = nullptr;
  const TileIsa* isa = nullptr;
  const CallPlan* plan = nullptr;
  const PackedKeys* packed = nullptr;  // nullptr: each thread packs blocks when it meets them.
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
  std::vector<Slot> unseen_;  // What begins or ends and sees nothing.
  // Where slots of one span see keys.
  std::array<int32_t, kMostTileRows> key_begin_, key_end_;
  // What slots and row groups see of a block: hulls, relative to the block.
  struct Seen {
    std::array<int16_t, kMostTileRows> begin, end;
    std::array<int16_t, kMostTileRows / kRowGroup> group_begin, group_end;
  };
  std::array<Seen, kBlocksAtOnce> seen_;  // Of the blocks at hand.
};

// Runs one item: brings its accumulator rows up to date with all units of the phase. Ends early
// when the call is stopped, and leaves the rows undefined then.
class TileLoop {
 public:
  // `kept` has a place at least, where keys are not packed ahead.
  TileLoop(const TileCall& call, TileScratch& scratch, KeptKeys* kept)
      : call_(call), s_(scratch), kept_(kept), rules_(*call.job) {}
  void Run(const Phase& phase, const Item& item);

 private:
  void RunUnit(const Phase& phase, const Unit& unit, const Item& item);
  // Finds the slots that see something in the unit; the rest of the tile is not touched.
  void GatherSlots(const Unit& unit, const Item& item);
  // Rows of the unit that see nothing in it, and begin or end with it.
  void BeginAndEndUnseen(const KernelTask& task, const Unit& unit);
  void PackQueries(const KernelTask& task);
  // Of rows that have seen nothing no sums.
  void LoadState(const KernelTask& task, const Unit& unit);
  void ClearUnseen();
  void StoreState(const KernelTask& task, const Unit& unit);
  void EndRows(const KernelTask& task, const Unit& unit);
  // Whether every slot's row ends with the unit.
  bool EndAll(const Unit& unit, const Task& task) const;
  // What slots see of a block of keys.
  struct View {
    bool any = false;     // Some slot sees some key.
    bool masked = false;  // Some slot sees less than its row group's hull.
    bool gapless = true;  // No slot sees keys on both sides of some that it does not see.
  };
  // Of keys [first, first + kKeyBlock); sets what each slot and each row group sees.
  View FindVisible(int64_t first, TileScratch::Seen* seen) const;
  // The same of each slot alone.
  void FindOfSingleSpans(int64_t first, TileScratch::Seen* seen) const;
  void FindOfSpans(int64_t first, TileScratch::Seen* seen, View* view) const;
  void FindSeen(int slot, int64_t first, std::vector<KeySpan>* spans) const;
  void NoteSeen(int64_t first, const PackedBlock* blocks, int count);
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
  void RunBlock(const KernelTask& task, int64_t first, bool masked, bool finite);
  // Whether the task's blocks need nothing that `attend` lacks, but for what is masked.
  bool CanAttend() const;
  void AccumulateRowByRow(int64_t first);

  const TileCall& call_;
  TileScratch& s_;
  KeptKeys* const kept_;
  TileRules rules_;
  TileBlock tile_;
  // Keys that all slots see: blocks inside need no mask.
  Interval seen_by_all_;
  bool single_spans_ = false;  // No slot has more than one.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_TILE_LOOP_H_
