#include "tests/worker/kernel/cuda/emulator/hopper_machine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace annulus::cuda {
namespace {

constexpr int kGroup = 128;
// The largest number of barriers of a block. Each is a separate actor.
constexpr int kMostBarriers = 32;

}  // namespace

HopperMachine::HopperMachine(int threads, GlobalMemory* global, uint64_t seed)
    : global_(global), random_(seed), warps_(threads / kWarp), groups_(threads / kGroup) {
  for (int t = 0; t < threads; ++t) threads_.push_back(std::make_unique<Thread>());
}

void HopperMachine::StartThreads() {
  barriers_.clear();
  meetings_.clear();
  turns_ = false;
  acquired_.clear();
  written_.clear();
  copies_.clear();
  fault_.clear();
  warps_.assign(warps_.size(), Warp());
  groups_.assign(groups_.size(), GroupProducts());
  for (size_t t = 0; t < threads_.size(); ++t) {
    Thread& thread = *threads_[t];
    thread.running = true;
    thread.waiting = thread.polling = thread.fenced = thread.turn = false;
    thread.issued = 0;
    thread.clock.assign(threads_.size() + kMostBarriers, 0);
    thread.clock[t] = 1;
    thread.held.clear();
    thread.open = ThreadProducts();
    thread.chunks.clear();
    thread.committed.clear();
    thread.fiber.Start([this, t] { body_(static_cast<int>(t)); });
  }
}

std::string HopperMachine::Run(int64_t number, uint32_t shared_bytes,
                               std::function<void(int)> body) {
  Start(number, shared_bytes, std::move(body));
  while (Step()) continue;
  return fault_;
}

void HopperMachine::Start(int64_t number, uint32_t shared_bytes, std::function<void(int)> body) {
  number_ = number;
  body_ = std::move(body);
  shared_ = std::make_unique<HopperShared>(shared_bytes, static_cast<int>(threads_.size()));
  constexpr uint64_t kLazy[] = {2, 40, uint64_t{1} << 62};
  lazy_ = kLazy[random_() % 3];
  StartThreads();
  order_.resize(warps_.size());
  for (size_t w = 0; w < order_.size(); ++w) order_[w] = w;
}

bool HopperMachine::Step() {
  std::shuffle(order_.begin(), order_.end(), random_);
  bool any = false, left = false;
  for (const size_t warp : order_) {
    for (size_t t = warp * kWarp; t < (warp + 1) * kWarp; ++t) {
      Thread& thread = *threads_[t];
      left |= thread.running;
      if (!thread.running || thread.waiting) continue;
      any = true;
      thread.running = thread.fiber.Resume();
      if (fault_.empty() && random_() % lazy_ == 0) Proceed();
      if (!fault_.empty()) return false;
    }
  }
  if (!any && left && !Proceed()) fault_ = "threads wait for what does not come";
  if (fault_.empty() && !left) fault_ = AtTheEnd();
  return fault_.empty() && left;
}

std::string HopperMachine::AtTheEnd() const {
  if (!copies_.empty()) return "the block ends before its copies";
  for (const GroupProducts& group : groups_)
    if (group.done < group.products.size()) return "the block ends before its products";
  for (const auto& [name, meeting] : meetings_)
    if (meeting.come > 0) return "the block ends while some have come to a barrier";
  for (const std::unique_ptr<Thread>& thread : threads_)
    if (!thread->chunks.empty()) return "the block ends before its copies";
  for (const std::unique_ptr<Thread>& thread : threads_)
    if (!thread->open.reads.empty() || !thread->committed.empty())
      return "the block ends without having waited for its products";
  return "";
}

void HopperMachine::Fail(int thread, const std::string& fault) {
  fault_ = absl::StrCat("block ", number_, ", thread ", thread, ": ", fault);
  threads_[thread]->fiber.Pause();
}

void HopperMachine::Pause(int thread, bool polling) {
  threads_[thread]->waiting = true;
  threads_[thread]->polling = polling;
  threads_[thread]->fiber.Pause();
}

void HopperMachine::WakePollers() {
  for (const std::unique_ptr<Thread>& thread : threads_)
    if (thread->polling) thread->waiting = thread->polling = false;
}

bool HopperMachine::Proceed() {
  std::vector<int> groups;
  for (size_t g = 0; g < groups_.size(); ++g)
    if (groups_[g].done < groups_[g].products.size() &&
        groups_[g].products[groups_[g].done].come == kGroup)
      groups.push_back(static_cast<int>(g));
  const size_t choices = copies_.size() + groups.size();
  if (choices == 0) return false;
  const size_t choice = random_() % choices;
  if (choice < copies_.size()) {
    const BoxCopy copy = copies_[choice];
    copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(choice));
    fault_ = Land(copy);
  } else {
    fault_ = Execute(groups[choice - copies_.size()]);
  }
  WakePollers();
  return true;
}

void HopperMachine::Read(int thread, const void* at, int64_t size, size_t alignment) {
  if (reinterpret_cast<uintptr_t>(at) % alignment != 0) Fail(thread, "misaligned global access");
  FailIf(thread, global_->Read(at, size, number_));
  const auto from = reinterpret_cast<uintptr_t>(at);
  for (uintptr_t word = from / 4; word * 4 < from + size; ++word) {
    const auto found = written_.find(word);
    if (found == written_.end()) continue;
    const auto [writer, time] = found->second;
    if (threads_[thread]->clock[writer] < time)
      Fail(thread, absl::StrCat("a global read that is not ordered behind a write of ", writer));
  }
}

void HopperMachine::Write(int thread, const void* at, int64_t size, size_t alignment) {
  if (reinterpret_cast<uintptr_t>(at) % alignment != 0) Fail(thread, "misaligned global access");
  FailIf(thread, global_->Write(at, size, number_));
  const auto to = reinterpret_cast<uintptr_t>(at);
  for (uintptr_t word = to / 4; word * 4 < to + size; ++word)
    written_[word] = {thread, threads_[thread]->clock[thread]};
}

std::byte* HopperMachine::ReadShared(int thread, uint32_t at, uint32_t size) {
  FailIf(thread, shared_->Read(at, size, Me(thread)));
  return shared_->data() + at;
}

std::byte* HopperMachine::WriteShared(int thread, uint32_t at, uint32_t size) {
  FailIf(thread, shared_->Write(at, size, Me(thread)));
  return shared_->data() + at;
}

int32_t HopperMachine::CountUp(int thread, const void* at) {
  Read(thread, at, sizeof(int32_t), alignof(int32_t));
  return (*static_cast<int32_t*>(const_cast<void*>(at)))++;
}

// Written as unknown when it begins, and again when it is waited for.
void HopperMachine::CopyChunkLater(int thread, uint32_t to, const void* from, bool there) {
  if (there) Read(thread, from, 16, 16);
  std::memset(WriteShared(thread, to, 16), 0xff, 16);
  threads_[thread]->chunks.emplace_back(to, there ? from : nullptr);
}

void HopperMachine::WaitCopies(int thread) {
  for (const auto& [to, from] : threads_[thread]->chunks) {
    std::byte* const at = WriteShared(thread, to, 16);
    if (from == nullptr)
      std::memset(at, 0, 16);
    else
      std::memcpy(at, from, 16);
  }
  threads_[thread]->chunks.clear();
}

void HopperMachine::MakeBarrier(int thread, uint32_t at, int arrivals) {
  if (at % 8 != 0) Fail(thread, "a misaligned barrier");
  if (barriers_.count(at) > 0) Fail(thread, "a barrier that is made twice");
  if (barriers_.size() == kMostBarriers) Fail(thread, "more barriers than the emulator has");
  std::memset(WriteShared(thread, at, 8), 0, 8);
  HopperMbarrier barrier;
  barrier.index = static_cast<int>(threads_.size() + barriers_.size());
  barrier.arrivals = barrier.pending = arrivals;
  barrier.maker = thread;
  barrier.clock.assign(threads_[0]->clock.size(), 0);
  barriers_[at] = barrier;
}

void HopperMachine::FenceBarriers(int thread) {
  for (auto& [at, barrier] : barriers_)
    if (barrier.maker == thread && barrier.made == 0)
      barrier.made = threads_[thread]->clock[thread];
}

HopperMbarrier& HopperMachine::Find(int thread, uint32_t at) {
  const auto found = barriers_.find(at);
  if (found == barriers_.end()) Fail(thread, "a barrier that is not there");
  HopperMbarrier& barrier = found->second;
  if (barrier.made == 0 || threads_[thread]->clock[barrier.maker] < barrier.made)
    Fail(thread, "a barrier whose making is not ordered before its use");
  return barrier;
}

void HopperMachine::EndPhase(HopperMbarrier& barrier) {
  if (barrier.pending > 0 || barrier.bytes != 0) return;
  ++barrier.phase;
  barrier.pending = barrier.arrivals;
  WakePollers();
}

void HopperMachine::Arrive(int thread, uint32_t at, uint32_t expected_bytes) {
  HopperMbarrier& barrier = Find(thread, at);
  if (barrier.pending == 0) Fail(thread, "more arrivals than a phase has");
  Clock& mine = threads_[thread]->clock;
  Join(barrier.clock, mine);
  ++mine[thread];
  barrier.bytes += expected_bytes;
  --barrier.pending;
  EndPhase(barrier);
}

void HopperMachine::AwaitBarrier(int thread, uint32_t at, uint32_t parity) {
  HopperMbarrier& barrier = Find(thread, at);
  const auto [waiter, first] =
      barrier.waiters.try_emplace(thread, 1 - parity, parity == 1 ? -1 : 0);
  auto& [last, phases] = waiter->second;
  if (last == parity) Fail(thread, "a phase of a barrier that is awaited twice");
  last = parity;
  threads_[thread]->strayed = true;
  while ((barrier.phase & 1) == parity) Pause(thread, true);
  if (static_cast<int64_t>(barrier.phase) != phases + 1)
    Fail(thread, "a barrier that is phases ahead of who waits for it");
  ++phases;
  Join(threads_[thread]->clock, barrier.clock);
}

void HopperMachine::AcquireMap(int thread, const void* map) {
  Read(thread, map, sizeof(TensorMapSpec), 64);
  acquired_.insert({thread, map});
}

}  // namespace annulus::cuda
