#ifndef ANNULUS_WORKER_KERNEL_CPU_HELD_BLOCKS_H_
#define ANNULUS_WORKER_KERNEL_CPU_HELD_BLOCKS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "attention/spec/interval.h"

namespace annulus {

// The identity of a packed block of keys.
struct BlockId {
  uint64_t content = 0;  // BlockView::content; 0: unknown, equal to no other block.
  int32_t head = 0;      // key/value head
  int64_t block = 0;
  Interval rows;  // The packed rows; empty if they are in several runs: equal to no other block.
  bool known() const { return content != 0 && rows.begin < rows.end; }
  friend bool operator==(const BlockId& a, const BlockId& b) {
    return a.content == b.content && a.head == b.head && a.block == b.block &&
           a.rows.begin == b.rows.begin && a.rows.end == b.rows.end;
  }
  template <class H>
  friend H AbslHashValue(H h, const BlockId& id) {
    return H::combine(std::move(h), id.content, id.head, id.block, id.rows.begin, id.rows.end);
  }
};

// Records which packed block is in which slot. A split step attends to the same keys in several
// calls, each to all or to some of them. Bookkeeping only, no memory of packed keys. One owner at a
// time.
class HeldBlocks {
 public:
  struct Place {
    int64_t slot = 0;
    bool held = false;  // True if the block is already packed there.
  };

  // Assigns a slot in [0, room) to each of `blocks`, and records it as held. Requires: the blocks
  // differ, and `room` is at least their number.
  //
  // Blocks of buffers that have none of `blocks` are forgotten, because they are no longer needed.
  // Their slots are taken first, from the lowest on. If all slots are taken, the most recently used
  // blocks give way: split steps go round, so these are the last to be needed again.
  std::vector<Place> PlaceAll(const std::vector<BlockId>& blocks, int64_t room);

  void Forget();

 private:
  struct Slot {
    BlockId id;
    int64_t used = 0;  // The round of the last use; 0: free.
  };
  void Free(Slot* slot);
  void ForgetOthers(const std::vector<BlockId>& blocks, int64_t room);
  std::vector<int64_t> TakeSlots(size_t count, int64_t room);

  std::vector<Slot> slots_;                        // No more slots than have been needed.
  absl::flat_hash_map<BlockId, int64_t> slot_of_;  // Known blocks only.
  int64_t round_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_HELD_BLOCKS_H_
