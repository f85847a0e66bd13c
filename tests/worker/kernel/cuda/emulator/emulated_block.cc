#include "tests/worker/kernel/cuda/emulator/emulated_block.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace annulus::cuda {
namespace {

constexpr uint32_t kCopyBytes = 16;

std::string Aligned(const void* at, size_t alignment) {
  return reinterpret_cast<uintptr_t>(at) % alignment == 0 ? "" : "misaligned global access";
}

void Nothing(void* const (&)[kWarp]) {}

}  // namespace

EmulatedBlock::EmulatedBlock(int threads, GlobalMemory* global)
    : global_(global), warps_(threads / kWarp), now_(threads) {
  for (int t = 0; t < threads; ++t) threads_.push_back(std::make_unique<Thread>());
}

std::string EmulatedBlock::Run(int64_t number, uint32_t shared_bytes,
                               const std::function<void(int)>& body) {
  number_ = number;
  shared_ = std::make_unique<SharedMemory>(shared_bytes);
  at_barrier_ = 0;
  or_ = or_result_ = false;
  fault_.clear();
  warps_.assign(warps_.size(), Warp());
  for (size_t t = 0; t < threads_.size(); ++t) {
    Thread& thread = *threads_[t];
    now_[t] = {static_cast<int32_t>(t), 0, 0};
    thread.running = true;
    thread.waiting = false;
    thread.groups.clear();
    thread.open.clear();
    thread.fiber.Start([&body, t] { body(static_cast<int>(t)); });
  }
  for (bool any = true; any;) {
    any = false;
    bool left = false;
    for (const std::unique_ptr<Thread>& thread : threads_) {
      left |= thread->running;
      if (!thread->running || thread->waiting) continue;
      any = true;
      thread->running = thread->fiber.Resume();
      if (!fault_.empty()) return fault_;
    }
    if (!any && left) return "threads wait for others that have ended, or wait for something else";
  }
  return "";
}

void EmulatedBlock::Fail(int thread, const std::string& fault) {
  fault_ = absl::StrCat("block ", number_, ", thread ", thread, ": ", fault);
  threads_[thread]->fiber.Pause();
}

void EmulatedBlock::WaitForOthers(int thread) {
  threads_[thread]->waiting = true;
  threads_[thread]->fiber.Pause();
}

void EmulatedBlock::Read(int thread, const void* at, int64_t size, size_t alignment) {
  FailIf(thread, Aligned(at, alignment));
  FailIf(thread, global_->Read(at, size, number_));
}

void EmulatedBlock::Write(int thread, const void* at, int64_t size, size_t alignment) {
  FailIf(thread, Aligned(at, alignment));
  FailIf(thread, global_->Write(at, size, number_));
}

std::byte* EmulatedBlock::WriteShared(int thread, uint32_t at, uint32_t size) {
  if (!shared_->Write(at, size, now_[thread])) Fail(thread, shared_->fault());
  return shared_->data() + at;
}

void EmulatedBlock::CopyLater(int thread, uint32_t to, const void* from, bool there) {
  if (there) Read(thread, from, kCopyBytes, kCopyBytes);
  if (!shared_->BeginCopy(to, kCopyBytes, now_[thread])) Fail(thread, shared_->fault());
  threads_[thread]->open.push_back({to, from, there});
}

void EmulatedBlock::Commit(int thread) {
  threads_[thread]->groups.push_back(std::move(threads_[thread]->open));
  threads_[thread]->open.clear();
}

void EmulatedBlock::Wait(int thread, size_t pending) {
  std::vector<std::vector<Copy>>& groups = threads_[thread]->groups;
  while (groups.size() > pending) {
    for (const Copy& copy : groups.front()) {
      std::byte* const to = shared_->data() + copy.to;
      shared_->Land(copy.to, kCopyBytes, now_[thread]);
      if (copy.there)
        std::memcpy(to, copy.from, kCopyBytes);
      else
        std::memset(to, 0, kCopyBytes);
    }
    groups.erase(groups.begin());
  }
}

bool EmulatedBlock::Barrier(int thread, bool value) {
  or_ |= value;
  if (++at_barrier_ < static_cast<int>(threads_.size())) {
    WaitForOthers(thread);
    return or_result_;
  }
  or_result_ = or_;
  or_ = false;
  at_barrier_ = 0;
  for (const std::unique_ptr<Thread>& other : threads_) other->waiting = false;
  for (Moment& now : now_) ++now.barriers;
  return or_result_;
}

void EmulatedBlock::Together(int thread, WarpAct act, int detail, void* mine) {
  Warp& warp = warps_[thread / kWarp];
  if (warp.come > 0 && (warp.act != act || warp.detail != detail))
    Fail(thread, "the threads of a warp do different things where they must do one together");
  warp.act = act;
  warp.detail = detail;
  warp.lanes[thread % kWarp] = mine;
  if (++warp.come < kWarp) return WaitForOthers(thread);
  act(warp.lanes);
  warp.come = 0;
  const int first = thread / kWarp * kWarp;
  for (int t = first; t < first + kWarp; ++t) {
    threads_[t]->waiting = false;
    if (act == Nothing) ++now_[t].warp_barriers;
  }
}

void EmulatedBlock::WarpBarrier(int thread) { Together(thread, Nothing, 0, nullptr); }

}  // namespace annulus::cuda
