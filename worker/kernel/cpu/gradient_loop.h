#ifndef ANNULUS_WORKER_KERNEL_CPU_GRADIENT_LOOP_H_
#define ANNULUS_WORKER_KERNEL_CPU_GRADIENT_LOOP_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cpu/gradient_plan.h"
#include "worker/kernel/cpu/huge_memory.h"
#include "worker/kernel/cpu/isa/gradient_isa.h"
#include "worker/kernel/cpu/isa/tile_isa.h"
#include "worker/kernel/cpu/tile_rules.h"
#include "worker/kernel/visibility.h"

namespace annulus {

// Data that all items of one gradient call share. Nothing in it changes while items run.
struct GradientCall {
  const KernelJob* job = nullptr;
  const TileIsa* isa = nullptr;  // Has `gradients`.
  absl::Span<const KernelTask> tasks;
  const CallVisibility* visible = nullptr;
  KernelControl control;
  int64_t stripe_slots = 0;  // See GradientRounds.
};

// Working memory of one thread: a packed block of keys, a packed tile of queries, intermediate
// products, and sums. About 1 MiB at 128 dimensions.
class GradientScratch {
 public:
  // Errors as HugeMemory::Reserve.
  absl::Status Reserve(const TileIsa& isa, const BlockLayout& layout);

 private:
  friend class GradientLoop;
  struct Slot {
    int place = 0;    // Slots before it in the tile, gathered or not.
    int64_t row = 0;  // shard-local
    int32_t q_head = 0;
    absl::Span<const Interval> spans;
    // The hull of its visible keys in the block, relative to the block.
    int16_t begin = 0, end = 0;
  };
  HugeMemory memory_;
  int q_stride_ = 0, v_stride_ = 0;  // Row strides of the sums, in floats.
  // Keys and values packed as keys; keys packed as values (tile_isa.h).
  float *keys_ = nullptr, *values_ = nullptr, *key_rows_ = nullptr;
  float *queries_ = nullptr, *d_outs_ = nullptr;         // Packed as queries.
  float *query_rows_ = nullptr, *d_out_rows_ = nullptr;  // Packed as rows (gradient_isa.h).
  float *weights_ = nullptr, *d_scores_ = nullptr;
  // [rows][stride]. Sums of keys and values are in the table's own layout (gradient_isa.h).
  float *dq_ = nullptr, *dk_ = nullptr, *dv_ = nullptr;
  float* rounded_ = nullptr;                                      // See OuterProduct.
  float *kept_ = nullptr, *pairs_ = nullptr, *d_bias_ = nullptr;  // Laid out as weights.
  std::array<float, kTileRows> lse_, lse_rest_ = {}, delta_, ones_, zeros_ = {};
  std::array<Slot, kTileRows> slots_;
  std::array<int16_t, kTileRows> weights_row_;  // See OuterProduct.
  std::array<int16_t, kTileRows / kRowGroup> group_begin_, group_end_;
  std::array<uint8_t, kKeyBlock> seen_;
};

// Runs one item: adds its gradients to the accumulators. If the call is stopped, it ends early and
// leaves the accumulators undefined.
class GradientLoop {
 public:
  GradientLoop(const GradientCall& call, GradientScratch& scratch)
      : call_(call), layout_(*call.job->layout), s_(scratch), rules_(*call.job) {}
  void Run(const GradientItem& item);

 private:
  void PackBlock();
  void RunTile(Interval slots);
  // Gathers the slots that see a key of the block, with their hulls. The rest of the tile is not
  // touched.
  void GatherSlots(Interval slots);
  // The bytes of one head of a query row.
  const std::byte* QueryAt(int section, int64_t row, int32_t q_head, int64_t head_bytes) const;
  void AddSlot(int place, int64_t row, int32_t q_head, absl::Span<const Interval> spans);
  void FindHulls();
  void PackTile();
  // Packs a section's rows as queries and as rows of outer products. Returns true if all values are
  // finite.
  bool PackSection(int section, int dim, double scale, float* queries, float* rows);
  // The row of gathered slot `index` among rows of outer products.
  int OuterRow(int index) const;
  // True if products are of bf16 numbers. Then queries are packed without the scale (tile_isa.h),
  // and dS is rounded before it is multiplied by the scale.
  bool of_bf16() const { return call_.isa->parts != 0; }
  // The factor that sums of dS still lack.
  float SumScale() const { return of_bf16() ? static_cast<float>(call_.job->scale) : 1; }
  void MakeWeights();
  // Applies all score modifiers: to scores, and to the factors of their gradients.
  void ChangeScores(TileBlock* scores, GradientTile* tile);
  void AddPairs(const TileBlock& scores, const GradientTile& tile);
  void WeighBias();
  // True if some slot may not see some key of the block.
  bool hides_some() const { return masked_ || rules_.hides_pairs(); }
  bool Sees(int slot, int key) const;
  bool adds_to_bias() const { return task_->out_bias.data != nullptr; }
  void AddToBias();
  void FindKept(const TileBlock& kept);
  void ClearHidden();
  // dv_ or dk_ += weightsᵀ · rows.
  void AddToKeys(const float* weights, const float* rows, bool finite, int dim, float* sums,
                 int sum_stride);
  void AddToKeysOneByOne(const OuterProduct& whole);
  void AddToQueries();
  // The slot's row in the accumulator.
  std::byte* OutQueryAt(const GradientScratch::Slot& slot) const;
  void StoreKeys();
  struct KeySums {
    const float* sums;
    int stride, dim;
    float factor;
  };
  // Adds the sums of a block's keys to a section of the accumulator's rows.
  void StoreSums(const KeySums& of, int64_t offset);

  const GradientCall& call_;
  const BlockLayout& layout_;
  GradientScratch& s_;
  TileRules rules_;
  const KernelTask* task_ = nullptr;
  SectionPlaces q_places_;
  int32_t task_number_ = 0, kv_head_ = 0;
  Interval block_;             // Key rows.
  bool has_lse_rest_ = false;  // If false, lse_rest_ of the scratch is all zeros.
  bool keys_finite_ = true, queries_finite_ = true, d_outs_finite_ = true;
  int rows_ = 0;                 // Gathered slots of the current tile.
  bool masked_ = false;          // True if some slot does not see all of the block.
  int16_t begin_ = 0, end_ = 0;  // The hull of the tile's visible keys, relative to the block.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_GRADIENT_LOOP_H_
