#ifndef ANNULUS_WORKER_EXECUTOR_STEP_BINDING_H_
#define ANNULUS_WORKER_EXECUTOR_STEP_BINDING_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "attention/mask/mask.h"
#include "attention/spec/spec.h"
#include "worker/comm/communicator.h"
#include "worker/executor/program.h"
#include "worker/kernel/attention_kernel.h"

namespace annulus {

// The most intervals of one kernel call. A kernel stores the visible intervals of each row of its
// tasks (worker/kernel/visibility.h): 16 bytes each, and twice that while the lists grow.
inline constexpr int64_t kMaxCallIntervals = int64_t{1} << 22;

// Splits a step's tasks into calls of at most `max_intervals` intervals, or of one block of rows if
// that has more. Returns one call if all tasks fit. Cuts tasks between query rows only, at
// multiples of kernel tiles and of the granules of deterministic jobs, so each row and each key
// meets its tasks in the same order as without a split. Pure.
std::vector<std::vector<KernelTask>> SplitCalls(const AttentionSpec& spec, const MaskMap& mask,
                                                std::vector<KernelTask> tasks,
                                                int64_t max_intervals = kMaxCallIntervals);

// A step with addresses instead of buffer numbers.
struct BoundStep {
  std::vector<KernelOp> births;  // Accumulators to set to the identity before the transfers.
  std::vector<SendMessage> sends;
  std::vector<ReceiveMessage> receives;
  std::vector<KernelTask> tasks;
  std::vector<KernelOp> ops;
};

// Binds the steps of a program to its arena and to staging. Borrows program and arena. Bound steps
// point into the binder.
class StepBinder {
 public:
  StepBinder(const RankProgram* program, std::byte* arena);

  // Sets the addresses of buffers that stay in staging. Call before binding a step that uses them.
  void SetPlaces(std::vector<SectionPlaces> places) { places_ = std::move(places); }

  BoundStep Bind(int32_t step) const;

 private:
  BlockView View(int32_t buffer) const;
  // The first byte of a transfer's rows.
  std::byte* RowsOf(const Transfer& transfer) const;
  int64_t BytesOf(const Transfer& transfer) const;
  KernelTask BindTask(const Task& task) const;

  const RankProgram* program_;
  std::byte* arena_;
  uint64_t first_content_;                    // Content number of buffer 0. The others follow.
  std::vector<std::vector<int32_t>> births_;  // Indexed by step.
  std::vector<SectionPlaces> places_;         // Indexed by buffer. Empty until SetPlaces.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_EXECUTOR_STEP_BINDING_H_
