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

// The place of one section of a block's rows. The section's bytes of block row r begin at first + r
// · stride. Row r counts from the block's row_begin; `stride` is in bytes.
struct SectionPlace {
  std::byte* first = nullptr;
  int64_t stride = 0;
};
// The places of a block whose sections lie apart, in BlockLayout's order. A section that the job's
// blocks lack has first == nullptr.
using SectionPlaces = std::array<SectionPlace, BlockLayout::kMaxSections>;

// A block of a schedule, bound to device memory. The view does not own the memory. The bytes from
// `data` on are laid out as BlockLayout says, unless the sections lie `apart`. No two blocks share
// bytes.
struct BlockView {
  Block block;
  // The first byte of the block; of its first section if `apart` is set.
  std::byte* data = nullptr;
  // An identity of the block's bytes. If not 0, all views with this number, in all calls, show the
  // same rows with the same bytes, as far as tasks read them. A kernel may use again what it made
  // of them (packed keys). 0: no identity.
  uint64_t content = 0;
  // If not null, the block stays in staging, whose tensors are planar, and these are the places of
  // its sections. Never set for an accumulator; set only on a device that reads staging. Must
  // outlive every call that uses the view.
  const SectionPlaces* apart = nullptr;
};

// A task with its buffers. Row ranges are shard-local, as in the schedule.
struct KernelTask {
  Task task;
  BlockView q, kv, out_q, out_kv;  // data is nullptr for an absent output.
  BlockView pairs;     // Bias and bit mask of q; data is nullptr if the job has neither.
  BlockView out_bias;  // Gradient of the bias; data is nullptr for an absent output.
  // The kOut block of the rows that end with the task (Task::ends). Only kernels whose ends_rows()
  // is true get one.
  BlockView out;
  // Row maps of the two shards. They give a row's position (visible intervals, ALiBi, dropout).
  const RowMap* q_rows = nullptr;
  const RowMap* k_rows = nullptr;
};

// An operation on whole blocks: an epilogue of a step. Block kinds are those of Op
// (attention/schedule/model/schedule_data.h).
struct KernelOp {
  enum class Kind : uint8_t {
    // Sets the target to the neutral element of kMerge or kAdd; `source` is unused. Gradients
    // become 0. A kPartial gets max −inf and weight 0. Its weighted sums are then undefined, and no
    // reader uses them.
    kIdentity,
    kMerge,
    kAdd,
    kFinish,
    // delta of the target := Σ d_out · out of the source − the value that stood in delta. If the
    // source has an fp32 d_out, the target gets it first, rounded.
    kDelta,
    kSink,  // target := −exp(sink − LSE) · delta of the source; 0 for rows with LSE −∞.
    // kBf16Partial := kPartial, with its sum rounded. Rows that saw no key keep the target's sum.
    kRound,
  };
  Kind kind = Kind::kIdentity;
  BlockView source, target;
};

// The data of a job that a kernel needs besides its tasks. No pointer is null. Must outlive every
// call that uses it.
struct KernelJob {
  const AttentionSpec* spec = nullptr;
  const MaskMap* mask = nullptr;
  const BlockLayout* layout = nullptr;
  double scale = 1;
};

// The caller's handle to a running call. Any thread may set `stop`. The kernel reads it between
// tiles, or between launches on a device, and then ends the call early with CANCELLED. The kernel
// adds finished tiles to `progress`, so that a watchdog can tell a slow call from a stuck one.
// Either pointer may be null.
struct KernelControl {
  const std::atomic<bool>* stop = nullptr;
  std::atomic<int64_t>* progress = nullptr;

  bool stopped() const { return stop != nullptr && stop->load(std::memory_order_relaxed); }
  void Count(int64_t done) const {
    if (progress != nullptr) progress->fetch_add(done, std::memory_order_relaxed);
  }
};

// An attention kernel: computes on one device.
//
// Threads: one owner thread makes all calls, one after the other. A kernel may use threads of its
// own inside a call.
//
// Completion: a device kernel may queue its work and return. Later calls and the device's copies
// see the results in order. Blocks, jobs and views stay valid until that work is done.
//
// State: the running state is unnormalised fp32 (BlockKind::kPartial). Calls carry it from one to
// the next unchanged. A row that sees no key in a task keeps its state bit for bit. Masked keys are
// never multiplied in, so a NaN in them cannot reach a result.
//
// Errors:
// - UNIMPLEMENTED: the back-end lacks a feature, and the worker did not refuse the job at
//   placement.
// - CANCELLED: KernelControl::stop was set.
// - RESOURCE_EXHAUSTED: no memory for the call.
// - any error of the device.
//
// After an error the outputs of the call are undefined.
class AttentionKernel {
 public:
  virtual ~AttentionKernel() = default;

  // Runs the tasks of a step in one call; the executor splits a step with very many intervals into
  // several calls, in list order. All tasks of a call compute attention, or all compute gradients.
  // An accumulator row sees its tasks in list order. The bits of the result depend on nothing but
  // the inputs and the list.
  //
  // The kinds of a task's blocks say what it computes.
  //
  // Attention: kQ and kKv are folded into kPartial by online softmax.
  //
  // Gradients: kQGrad and kKv are added to kDq, kDkv or both. kQGrad has the LSE and the delta of
  // the whole row, over all its keys, not only over this task's. LSE_i is the sum of its two
  // numbers if the block has an lse_rest. Over visible pairs (i, j) only:
  // - P_ij = exp(s_ij − LSE_i)
  // - dS_ij = P_ij·(dO_i·v_j − delta_i)
  // - dQ_i += scale·Σ dS_ij·k_j
  // - dK_j += scale·Σ dS_ij·q_i, over the query heads of the group
  // - dV_j += Σ P_ij·dO_i, over the query heads of the group
  //
  // A row with LSE −inf adds nothing. If the job asks for it, kDBias goes with kDq: row i gets +=
  // P_ij·(dO_i·v_j − delta_i) in the column of j in the sequence of i. A bias of one head gets the
  // sum over all query heads.
  virtual absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                                  const KernelControl& control) = 0;

  // Does ahead of time what Accumulate of these tasks would otherwise do first, as loading code
  // onto a GPU. Such work waits until no message is under way, so the executor calls this before
  // the messages of the first step with these tasks. Accumulate works without it. Errors:
  // CANCELLED, or an error of the device. The default does nothing.
  virtual absl::Status Prepare(const KernelJob&, absl::Span<const KernelTask>,
                               const KernelControl&) {
    return absl::OkStatus();
  }
  // True if Prepare does something.
  virtual bool prepares() const { return false; }

  // True if Accumulate serves tasks with rows that begin and end in them (Task::begins, Task::ends
  // in attention/schedule/model/schedule_data.h). The bits are those of kIdentity before and
  // kFinish after, also in rows that see no key.
  virtual bool ends_rows() const { return false; }

  // Runs the operation on the intersection of the two blocks (rows and heads). INTERNAL for kinds
  // of blocks that the operation is not made for (KernelOp).
  virtual absl::Status Apply(const KernelJob& job, const KernelOp& op) = 0;

  // The back-end and code path that run: "cpu/avx512", "cpu/avx2", "cpu/portable", and so on. For
  // the log, GetServerInfo and figures.
  virtual std::string Description() const = 0;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_ATTENTION_KERNEL_H_
