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

// The most key blocks that one `attend` call takes: the loop reads `stop` between calls.
inline constexpr int64_t kBlocksAtOnce = 16;

// Data that all items of one Accumulate call share. Nothing in it changes while items run.
struct TileCall {
  const KernelJob* job = nullptr;
  const TileIsa* isa = nullptr;
  const CallPlan* plan = nullptr;
  const PackedKeys* packed = nullptr;  // nullptr: each thread packs blocks when it needs them.
  KernelControl control;
};

// Working memory of one thread: a tile of queries, scores and sums. About 2.5 MiB.
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
  std::vector<Slot> unseen_;  // Slots that begin or end and see no key.
  // Visible keys of slots that have one span.
  std::array<int32_t, kMostTileRows> key_begin_, key_end_;
  // The hulls of the keys of a block that slots and row groups see, relative to the block.
  struct Seen {
    std::array<int16_t, kMostTileRows> begin, end;
    std::array<int16_t, kMostTileRows / kRowGroup> group_begin, group_end;
  };
  std::array<Seen, kBlocksAtOnce> seen_;  // One for each block of the current `attend` call.
};

// Runs one item: brings its accumulator rows up to date with all units of the phase. If the call is
// stopped, it ends early and leaves the rows undefined.
class TileLoop {
 public:
  // `kept` has at least one place if keys are not packed ahead.
  TileLoop(const TileCall& call, TileScratch& scratch, KeptKeys* kept)
      : call_(call), s_(scratch), kept_(kept), rules_(*call.job) {}
  void Run(const Phase& phase, const Item& item);

 private:
  void RunUnit(const Phase& phase, const Unit& unit, const Item& item);
  // Gathers the slots that see a key of the unit. The rest of the tile is not touched.
  void GatherSlots(const Unit& unit, const Item& item);
  // Begins and ends the unit's rows that see no key in it.
  void BeginAndEndUnseen(const KernelTask& task, const Unit& unit);
  void PackQueries(const KernelTask& task);
  // Rows that have seen no key have no sums to load.
  void LoadState(const KernelTask& task, const Unit& unit);
  void ClearUnseen();
  void StoreState(const KernelTask& task, const Unit& unit);
  void EndRows(const KernelTask& task, const Unit& unit);
  // True if every slot's row ends with the unit.
  bool EndAll(const Unit& unit, const Task& task) const;
  // The visibility of a block of keys.
  struct View {
    bool any = false;     // Some slot sees some key.
    bool masked = false;  // Some slot sees less than its row group's hull.
    bool gapless = true;  // No slot has a masked key between two visible ones.
  };
  // The visibility of keys [first, first + kKeyBlock). Sets the hull of each slot and each row
  // group.
  View FindVisible(int64_t first, TileScratch::Seen* seen) const;
  // The parts of FindVisible for one slot: with one span, and with any number.
  void FindOfSingleSpans(int64_t first, TileScratch::Seen* seen) const;
  void FindOfSpans(int64_t first, TileScratch::Seen* seen, View* view) const;
  void FindSeen(int slot, int64_t first, std::vector<KeySpan>* spans) const;
  void NoteSeen(int64_t first, const PackedBlock* blocks, int count);
  void MaskScores(int64_t first);
  // A block of keys of one head: the place where it is packed, or would be.
  struct BlockPlace {
    const KeySource* source = nullptr;
    int32_t kv_head = 0;
    int64_t block = 0, pack = 0;
  };
  // Attends to the block, and to blocks after it and before `end` if one `attend` call can. Returns
  // the number of blocks.
  int RunBlocks(const KernelTask& task, const BlockPlace& place, int64_t end);
  // Attends to one block with separate score, softmax and accumulate calls.
  void RunBlock(const KernelTask& task, int64_t first, bool masked, bool finite);
  // True if `attend` can run the task's blocks, masks aside.
  bool CanAttend() const;
  void AccumulateRowByRow(int64_t first);

  const TileCall& call_;
  TileScratch& s_;
  KeptKeys* const kept_;
  TileRules rules_;
  TileBlock tile_;
  // The keys that all slots see: blocks inside need no mask.
  Interval seen_by_all_;
  bool single_spans_ = false;  // No slot has more than one span.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_TILE_LOOP_H_
