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

// A step with addresses in place of buffer numbers.
struct BoundStep {
  std::vector<KernelOp> births;  // Accumulators to set to the identity before the transfers.
  std::vector<SendMessage> sends;
  std::vector<ReceiveMessage> receives;
  std::vector<KernelTask> tasks;
  std::vector<KernelOp> ops;
};

// Binds the steps of a program to its arena, and to staging. Keeps pointers to program and arena;
// what it binds has pointers to its own.
class StepBinder {
 public:
  StepBinder(const RankProgram* program, std::byte* arena);

  // Where buffers lie that stay in staging, before a step that uses them is bound.
  void SetPlaces(std::vector<SectionPlaces> places) { places_ = std::move(places); }

  BoundStep Bind(int32_t step) const;

 private:
  BlockView View(int32_t buffer) const;
  // The bytes of a transfer's rows.
  std::byte* RowsOf(const Transfer& transfer) const;
  int64_t BytesOf(const Transfer& transfer) const;
  KernelTask BindTask(const Task& task) const;

  const RankProgram* program_;
  std::byte* arena_;
  uint64_t first_content_;                    // Of buffer 0; the others follow.
  std::vector<std::vector<int32_t>> births_;  // By step.
  std::vector<SectionPlaces> places_;         // By buffer; empty: not known yet.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_EXECUTOR_STEP_BINDING_H_
