#include "tests/worker/kernel/cuda/emulator/fiber.h"

#include <cstdint>
#include <cstring>
#include <utility>

// Saves what a call must keep, goes over to another stack, and takes back what was saved there.
// clang-format off
asm(R"(
.text
.globl annulus_switch_stack
.type annulus_switch_stack, @function
annulus_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size annulus_switch_stack, .-annulus_switch_stack
.section .note.GNU-stack,"",@progbits
.text
)");
// clang-format on

extern "C" void annulus_switch_stack(void** from, void* to);

namespace annulus::cuda {
namespace {

// Not a multiple of what a cache's way holds: what fibers have at the tops of their stacks would
// all fall into a few of its sets.
constexpr size_t kStackBytes = (64 << 10) + 9 * 64;

// A fiber that is entered learns from here who it is.
thread_local Fiber* g_entered = nullptr;

}  // namespace

Fiber::Fiber() : stack_(new std::byte[kStackBytes]) {}

void Fiber::Enter() {
  Fiber* const fiber = g_entered;
  fiber->body_();
  fiber->running_ = false;
  fiber->Pause();
}

void Fiber::Start(std::function<void()> body) {
  body_ = std::move(body);
  running_ = true;
  // Six registers, and Enter to return to; the stack is then as it is after a call.
  auto top = (reinterpret_cast<uintptr_t>(stack_.get()) + kStackBytes) / 16 * 16;
  auto* words = reinterpret_cast<void**>(top) - 8;
  std::memset(words, 0, 8 * sizeof(void*));
  words[6] = reinterpret_cast<void*>(&Fiber::Enter);
  inside_ = words;
}

bool Fiber::Resume() {
  g_entered = this;
  annulus_switch_stack(&outside_, inside_);
  return running_;
}

void Fiber::Pause() { annulus_switch_stack(&inside_, outside_); }

}  // namespace annulus::cuda
