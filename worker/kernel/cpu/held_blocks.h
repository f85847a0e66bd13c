#ifndef ANNULUS_WORKER_KERNEL_CPU_HELD_BLOCKS_H_
#define ANNULUS_WORKER_KERNEL_CPU_HELD_BLOCKS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "attention/spec/interval.h"

namespace annulus {

// A block of keys that is packed.
struct BlockId {
  uint64_t content = 0;  // BlockView::content; 0: nobody knows, so it is like no other.
  int32_t head = 0;      // key/value head
  int64_t block = 0;
  Interval rows;  // Those of it that are packed; empty where they are in several runs: like no
                  // other.
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

// Which packed blocks lie where: a step that was split attends to the same keys in several calls,
// each to all of them or to some. Bookkeeping only. One owner at a time.
class HeldBlocks {
 public:
  struct Place {
    int64_t slot = 0;
    bool held = false;  // Packed there already.
  };

  // Where each of `blocks`, no two of them alike, is to lie among slots [0, room), of which there
  // are as many or more; from now on it is held there. Blocks of buffers that none of these is of
  // are forgotten, for they have been used, and their slots are the next to be taken, from the
  // lowest on. Where all slots are taken those blocks go that were used last: split steps go round,
  // so these are the last to be needed again.
  std::vector<Place> PlaceAll(const std::vector<BlockId>& blocks, int64_t room);

  void Forget();

 private:
  struct Slot {
    BlockId id;
    int64_t used = 0;  // In which round; 0: it is free.
  };
  void Free(Slot* slot);
  void ForgetOthers(const std::vector<BlockId>& blocks, int64_t room);
  std::vector<int64_t> TakeSlots(size_t count, int64_t room);

  std::vector<Slot> slots_;                        // No more than have been needed.
  absl::flat_hash_map<BlockId, int64_t> slot_of_;  // Of known ones.
  int64_t round_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_HELD_BLOCKS_H_
