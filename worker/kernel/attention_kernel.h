#ifndef ANNULUS_WORKER_KERNEL_ATTENTION_KERNEL_H_
#define ANNULUS_WORKER_KERNEL_ATTENTION_KERNEL_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "attention/mask/mask.h"
#include "attention/schedule/model/block_layout.h"
#include "attention/schedule/schedule.h"
#include "attention/sharding/row_map.h"
#include "attention/spec/spec.h"

namespace annulus {

// Where one section of a block's rows lies: what the block's row r has of it at first + r · stride.
struct SectionPlace {
  std::byte* first = nullptr;
  int64_t stride = 0;
};
// Of a block whose sections lie apart, in BlockLayout's order; a section that the job's blocks lack
// is nowhere.
using SectionPlaces = std::array<SectionPlace, BlockLayout::kMaxSections>;

// A block of a schedule, bound to device memory. The bytes lie as BlockLayout says from `data` on,
// unless its sections lie `apart`.
struct BlockView {
  Block block;
  std::byte* data = nullptr;  // The first section's where they lie apart. No two blocks share it.
  // Not 0: all views with this number, in all calls, show the same rows with the same bytes, so
  // far as tasks read them. What a kernel made of them (packed keys) may serve again.
  uint64_t content = 0;
  // Not null: the block stays in staging, whose tensors are planar. Never of an accumulator, and
  // only on a device that reads staging. Outlives every call that uses the view.
  const SectionPlaces* apart = nullptr;
};

// A task with its buffers. Row ranges are shard-local, as in the schedule; `q_rows` and `k_rows`
// are the row maps of the two shards, from which the kernel gets positions (visible intervals,
// ALiBi, dropout).
struct KernelTask {
  Task task;
  BlockView q, kv, out_q, out_kv;  // data is nullptr for an absent output.
  BlockView pairs;                 // Bias and bit mask of q; data is nullptr where a job has none.
  BlockView out_bias;              // Gradient of the bias; data is nullptr for an absent output.
  // Where the rows end that do so with the task (Task::ends). Only for kernels that end rows.
  BlockView out;
  const RowMap* q_rows = nullptr;
  const RowMap* k_rows = nullptr;
};

struct KernelOp {
  enum class Kind : uint8_t {
    // Sets target; source is unused. Gradients: 0. kPartial: max −inf and weight 0; what its sums
    // hold then means nothing, and nobody reads it.
    kIdentity,
    kMerge,
    kAdd,
    kFinish,
    // delta of the target := Σ d_out · out of the source − what stood in its place. Where the
    // source has a d_out in fp32, the target gets it first, rounded.
    kDelta,
    kSink,   // target := −exp(sink − LSE) · delta of the source, 0 where its LSE is −∞.
    kRound,  // kBf16Partial := kPartial, its sum rounded. Where nothing was seen sums are left.
  };
  Kind kind = Kind::kIdentity;
  BlockView source, target;
};

// Everything about the job that a kernel needs beside tasks. Outlives every call that uses it.
struct KernelJob {
  const AttentionSpec* spec = nullptr;
  const MaskMap* mask = nullptr;
  const BlockLayout* layout = nullptr;
  double scale = 1;
};

// Asked between tiles. `stop` set by another thread ends the call early with CANCELLED; `progress`
// counts tiles done, so that a watchdog can tell slow from stuck.
struct KernelControl {
  const std::atomic<bool>* stop = nullptr;
  std::atomic<int64_t>* progress = nullptr;

  bool stopped() const { return stop != nullptr && stop->load(std::memory_order_relaxed); }
  void Count(int64_t done) const {
    if (progress != nullptr) progress->fetch_add(done, std::memory_order_relaxed);
  }
};

// Computes on one device. One owner thread calls it; calls are ordered. Running state is
// unnormalised fp32 (BlockKind::kPartial) carried between calls as it is. A row that sees nothing
// in a task is left bit for bit as it was. Masked keys are never multiplied in, so NaN in them
// cannot leak. Errors: UNIMPLEMENTED for what the back-end lacks and the worker has not refused
// when the job was placed on it, CANCELLED, RESOURCE_EXHAUSTED. After an error outputs of the call
// are undefined.
class AttentionKernel {
 public:
  virtual ~AttentionKernel() = default;

  // All tasks of a step in one call. An accumulator row sees its tasks in list order; the bits of
  // the result depend on nothing but the inputs and the list.
  //
  // What a task accumulates is told by its blocks. Attention: kQ and kKv into kPartial. Gradients:
  // kQGrad (with the LSE and the delta of the whole row, whatever keys are here) and kKv into kDq,
  // kDkv or both. P_ij = exp(s_ij − LSE_i), where LSE_i
  // is the sum of its two numbers if the block has an lse_rest; dS_ij = P_ij·(dO_i·v_j − delta_i),
  // dQ_i += scale·Σ dS_ij·k_j, dK_j += scale·Σ dS_ij·q_i, dV_j += Σ P_ij·dO_i, over visible pairs
  // only; dK and dV over the query heads of the group. A row with LSE −inf adds nothing. Beside kDq
  // kDBias, where the job asks for it: += P_ij·(dO_i·v_j − delta_i) in the column of j in the
  // sequence of i, summed over query heads where the bias is of all.
  virtual absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                                  const KernelControl& control) = 0;

  // Makes what Accumulate of these tasks should find there, since to make it (to load code onto a
  // GPU) has to wait until no message is under way: before those of the first step whose tasks
  // these are. Accumulate without it serves all the same. CANCELLED, or a fault of the device; only
  // kernels that prepare need it.
  virtual absl::Status Prepare(const KernelJob&, absl::Span<const KernelTask>,
                               const KernelControl&) {
    return absl::OkStatus();
  }
  virtual bool prepares() const { return false; }

  // Whether Accumulate serves tasks whose rows begin and end with them
  // (attention/schedule/model/schedule_data.h): the same bits as with kIdentity before and kFinish
  // after, in rows that see nothing too.
  virtual bool ends_rows() const { return false; }

  // Acts on the intersection of the two blocks (rows and heads).
  virtual absl::Status Apply(const KernelJob& job, const KernelOp& op) = 0;

  // "cpu/avx512", "cpu/avx2", "cpu/portable", ...: what runs, for the log, GetServerInfo and
  // figures.
  virtual std::string Description() const = 0;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_ATTENTION_KERNEL_H_
