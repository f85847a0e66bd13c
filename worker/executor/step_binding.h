#ifndef ANNULUS_WORKER_EXECUTOR_STEP_BINDING_H_
#define ANNULUS_WORKER_EXECUTOR_STEP_BINDING_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "worker/comm/communicator.h"
#include "worker/executor/program.h"
#include "worker/kernel/attention_kernel.h"

namespace annulus {

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
