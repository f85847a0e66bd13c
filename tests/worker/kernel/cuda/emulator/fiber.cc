#include "tests/worker/kernel/cuda/emulator/fiber.h"

#include <cstdint>
#include <cstring>
#include <utility>

// Saves the registers that a call must preserve, switches to another stack, and restores the
// registers saved there.
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

// Not a multiple of a cache way's size: otherwise the tops of all fibers' stacks would fall into a
// few sets.
constexpr size_t kStackBytes = (64 << 10) + 9 * 64;

// The entered fiber reads its identity here.
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
  // Six registers, and Enter as the return address; the stack is then as after a call.
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
