#ifndef ANNULUS_WORKER_KERNEL_CPU_PACKED_KEYS_H_
#define ANNULUS_WORKER_KERNEL_CPU_PACKED_KEYS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/kernel/cpu/call_plan.h"
#include "worker/kernel/cpu/held_blocks.h"
#include "worker/kernel/cpu/huge_memory.h"
#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {

// Memory for packed blocks. Several threads may pack and read blocks, one thread per block at a
// time.
class PackMemory {
 public:
  // Makes room for `blocks` blocks of the job's head sizes. `packs` of them are packed next. If
  // those are many, and not read soon after (`near` is false), Pack writes them past the caches
  // (non-temporal stores). Returns true if the earlier content stays. RESOURCE_EXHAUSTED if there
  // is no memory; nothing stays then. The system commits memory on first use.
  absl::StatusOr<bool> Reserve(const TileIsa& isa, const BlockLayout& layout, int64_t blocks,
                               int64_t packs, bool near);

  // Packs key block `block` of key/value head `head` of `source` into `slot`.
  void Pack(const KeySource& source, int32_t head, int64_t block, int64_t slot);

  const float* Keys(int64_t slot) const {
    return memory_.get() + slot * (key_floats_ + value_floats_);
  }
  const float* Values(int64_t slot) const { return Keys(slot) + key_floats_; }
  // False if some value of the block is NaN or infinite: it must not meet a weight of zero.
  bool Finite(int64_t slot) const { return finite_[slot] != 0; }

 private:
  const TileIsa* isa_ = nullptr;
  const BlockLayout* layout_ = nullptr;
  int64_t key_floats_ = 0, value_floats_ = 0;
  HugeMemory memory_;
  bool streamed_ = false;  // The blocks are too many to stay in a cache.
  std::vector<uint8_t> finite_;
};

// The packed blocks of a phase. If there is room, also those of earlier phases that packed other
// parts of the same buffers.
class PackedKeys {
 public:
  // Makes room for phases of at most `packs` blocks, and for at most `most` blocks of several
  // phases. Errors as PackMemory::Reserve.
  absl::Status Reserve(const TileIsa& isa, const BlockLayout& layout, int64_t packs, int64_t most);

  // A block of a phase that is still to be packed. Begin returns them in the order of memory.
  struct Order {
    const KeySource* source = nullptr;
    int32_t head = 0;
    int64_t block = 0;
    int64_t slot = 0;
  };
  std::vector<Order> Begin(const CallPlan& plan, const Phase& phase);
  void Pack(const Order& order) {
    memory_.Pack(*order.source, order.head, order.block, order.slot);
  }

  // The slot in memory() of a block of the phase (Phase::PackOf).
  int64_t SlotOf(int64_t pack) const { return slots_[pack]; }
  const PackMemory& memory() const { return memory_; }

 private:
  PackMemory memory_;
  HeldBlocks held_;
  int64_t room_ = 0;
  std::vector<int64_t> slots_;  // Indexed by pack.
};

// The blocks that one thread used last. Each is packed when it is not there.
class KeptKeys {
 public:
  // Makes room for `places` blocks, all empty. Errors as PackMemory::Reserve.
  absl::Status Reserve(const TileIsa& isa, const BlockLayout& layout, int64_t places);
  int64_t places() const { return static_cast<int64_t>(held_.size()); }

  // Returns the slot of the block in keys(), and packs the block if it is not there. The slot stays
  // valid until places() other blocks have been used.
  int64_t Meet(const KeySource& source, int32_t head, int64_t block);
  const PackMemory& keys() const { return keys_; }

 private:
  struct Held {
    const KeySource* source = nullptr;
    int32_t head = 0;
    int64_t block = 0;
    int64_t met = 0;  // The number of the meeting in which it was last used.
  };
  PackMemory keys_;
  std::vector<Held> held_;
  int64_t meetings_ = 0;
};

// Bytes of one packed block.
int64_t PackBytes(const TileIsa& isa, const BlockLayout& layout);

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_PACKED_KEYS_H_
