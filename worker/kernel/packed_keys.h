#ifndef ANNULUS_WORKER_KERNEL_PACKED_KEYS_H_
#define ANNULUS_WORKER_KERNEL_PACKED_KEYS_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "worker/kernel/call_plan.h"
#include "worker/kernel/tile_isa.h"

namespace annulus {

// What of a buffer is packed, and where.
struct PackedContent {
  uint64_t content = 0;  // BlockView::content.
  std::vector<Interval> rows;
  int32_t head_begin = 0, head_end = 0;
  int64_t block_begin = 0, block_end = 0;
  int64_t first_pack = 0;
};

// All that a phase packs.
std::vector<PackedContent> ContentsOf(const CallPlan& plan, const Phase& phase);

// Memory for the packed blocks of one phase, kept from call to call. Blocks may be packed and read
// by several threads, each block by one thread at a time.
class PackedKeys {
 public:
  // Makes room for `packs` blocks of the job's head sizes, which are written to memory where they
  // are many, or `near`: to be read at once. RESOURCE_EXHAUSTED when there is no memory.
  absl::Status Reserve(const TileIsa& isa, const BlockLayout& layout, int64_t packs,
                       bool near = false);

  // Whether all of it is packed already, by an earlier call: steps that were split attend to the
  // same keys in several calls.
  bool Holds(const std::vector<PackedContent>& contents) const;
  // Before and after packing.
  void Forget() { held_.clear(); }
  void Hold(std::vector<PackedContent> contents) { held_ = std::move(contents); }

  // Packs key block `block` of key/value head `head` of `source` into place `pack`.
  void Pack(const KeySource& source, int32_t head, int64_t block, int64_t pack);

  const float* Keys(int64_t pack) const {
    return memory_.get() + pack * (key_floats_ + value_floats_);
  }
  const float* Values(int64_t pack) const { return Keys(pack) + key_floats_; }
  // False when some value of the block is NaN or infinite: it must not meet a weight of zero.
  bool Finite(int64_t pack) const { return finite_[pack] != 0; }

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  const TileIsa* isa_ = nullptr;
  const BlockLayout* layout_ = nullptr;
  int64_t key_floats_ = 0, value_floats_ = 0, capacity_floats_ = 0;
  std::unique_ptr<float, Free> memory_;
  bool streamed_ = false;  // The blocks are too many to stay in a cache.
  std::vector<uint8_t> finite_;
  std::vector<PackedContent> held_;
};

// The last blocks that one thread has met, each packed when it was not there.
class KeptKeys {
 public:
  // Makes room for `places` blocks, none of which is there. RESOURCE_EXHAUSTED as above.
  absl::Status Reserve(const TileIsa& isa, const BlockLayout& layout, int64_t places);
  int64_t places() const { return static_cast<int64_t>(held_.size()); }

  // Where in keys() the block lies, until as many others as there are places have been met.
  int64_t Meet(const KeySource& source, int32_t head, int64_t block);
  const PackedKeys& keys() const { return keys_; }

 private:
  struct Held {
    const KeySource* source = nullptr;
    int32_t head = 0;
    int64_t block = 0;
    int64_t met = 0;  // When, in meetings.
  };
  PackedKeys keys_;
  std::vector<Held> held_;
  int64_t meetings_ = 0;
};

// Bytes of one packed block.
int64_t PackBytes(const TileIsa& isa, const BlockLayout& layout);

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_PACKED_KEYS_H_
