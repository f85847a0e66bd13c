#include "tests/worker/device/cuda_stand_in.h"

#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace annulus {
namespace {

// Per thread, as in CUDA; 0 until it is set.
thread_local int current = 0;

constexpr int64_t kAlignment = 256;

}  // namespace

CudaStandIn::CudaStandIn(const Options& options) : options_(options), random_(options.seed) {}

CudaStandIn::~CudaStandIn() {
  std::vector<CudaStream> streams;
  {
    MutexLock lock(&mutex_);
    for (const auto& [name, stream] : streams_) streams.push_back(name);
  }
  for (CudaStream stream : streams) (void)StreamDestroy(stream);
  MutexLock lock(&mutex_);
  for (const auto& [memory, piece] : pieces_) std::free(memory);
}

void CudaStandIn::Look() {
  MutexLock lock(&mutex_);
  if (module_loading_.has_value()) return;
  const char* const set = std::getenv("CUDA_MODULE_LOADING");
  module_loading_ = set == nullptr ? "" : set;
}

std::string CudaStandIn::module_loading() const {
  MutexLock lock(&mutex_);
  return module_loading_.value_or("not asked for anything");
}

std::string CudaStandIn::ErrorText(CudaError error) { return absl::StrCat("CUDA error ", error); }

CudaError CudaStandIn::Versions(int* driver, int* runtime) {
  Look();
  *driver = options_.driver;
  *runtime = options_.runtime;
  return kCudaSuccess;
}

CudaError CudaStandIn::DeviceCount(int* count) {
  Look();
  *count = options_.count;
  return options_.at_start;
}

CudaError CudaStandIn::Properties(int ordinal, CudaProperties* properties) {
  Look();
  if (ordinal < 0 || ordinal >= options_.count) return kInvalidValue;
  const std::string place = absl::StrCat("0000:0", ordinal, ":00.0");
  *properties = {"Stand-in",           place, options_.major,
                 options_.minor,       4,     options_.memory_bytes,
                 options_.shared_bytes};
  return kCudaSuccess;
}

int CudaStandIn::CurrentDevice() { return current; }

CudaError CudaStandIn::SetDevice(int ordinal) {
  if (ordinal < 0 || ordinal >= options_.count) return kInvalidValue;
  current = ordinal;
  MutexLock lock(&mutex_);
  return broken_;
}

CudaError CudaStandIn::MemoryFree(int64_t* bytes) {
  MutexLock lock(&mutex_);
  *bytes = options_.memory_bytes;
  for (const auto& [memory, piece] : pieces_) {
    if (piece.kind == Kind::kDevice && piece.ordinal == current) *bytes -= piece.bytes;
  }
  return broken_;
}

CudaError CudaStandIn::Take(Kind kind, std::byte** memory, int64_t bytes) {
  int64_t free = 0;
  if (const CudaError error = MemoryFree(&free); error != kCudaSuccess) return error;
  if (bytes < 0) return kInvalidValue;
  if (bytes > free) return kCudaOutOfMemory;  // For pinned memory too.
  void* taken = nullptr;
  if (posix_memalign(&taken, kAlignment, bytes > 0 ? bytes : 1) != 0) return kCudaOutOfMemory;
  *memory = static_cast<std::byte*>(taken);
  MutexLock lock(&mutex_);
  pieces_[*memory] = {kind, current, bytes};
  return kCudaSuccess;
}

CudaError CudaStandIn::GiveBack(Kind kind, std::byte* memory) {
  MutexLock lock(&mutex_);
  const auto piece = pieces_.find(memory);
  if (piece == pieces_.end() || piece->second.kind != kind) return kInvalidValue;
  pieces_.erase(piece);
  std::free(memory);
  return broken_;
}

CudaError CudaStandIn::Malloc(std::byte** memory, int64_t bytes) {
  return Take(Kind::kDevice, memory, bytes);
}
CudaError CudaStandIn::Free(std::byte* memory) { return GiveBack(Kind::kDevice, memory); }
CudaError CudaStandIn::HostMalloc(std::byte** memory, int64_t bytes) {
  return Take(Kind::kPinned, memory, bytes);
}
CudaError CudaStandIn::HostFree(std::byte* memory) { return GiveBack(Kind::kPinned, memory); }

CudaPriority CudaStandIn::PriorityOf(CudaStream stream) const {
  MutexLock lock(&mutex_);
  return streams_.at(stream)->priority;
}

CudaError CudaStandIn::StreamCreate(CudaStream* stream, CudaPriority priority) {
  MutexLock lock(&mutex_);
  if (broken_ != kCudaSuccess) return broken_;
  auto made = std::make_unique<Stream>();
  made->ordinal = current;
  made->priority = priority;
  *stream = made.get();
  made->thread = std::thread([this, self = made.get()] { Run(self); });
  streams_[*stream] = std::move(made);
  return kCudaSuccess;
}

CudaError CudaStandIn::StreamDestroy(CudaStream stream) {
  std::unique_ptr<Stream> ending;
  {
    MutexLock lock(&mutex_);
    const auto found = streams_.find(stream);
    if (found == streams_.end()) return kInvalidHandle;
    ending = std::move(found->second);
    streams_.erase(found);
    ending->ending = true;
    ending->changed.SignalAll();
  }
  ending->thread.join();
  MutexLock lock(&mutex_);
  return broken_;
}

void CudaStandIn::Run(Stream* stream) {
  MutexLock lock(&mutex_);
  while (true) {
    while (stream->queue.empty() && !stream->ending) stream->changed.Wait(&mutex_);
    if (stream->queue.empty()) return;
    Work work = std::move(stream->queue.front());
    stream->queue.pop_front();
    while (work.wait != nullptr && work.wait->done < work.number && broken_ == kCudaSuccess) {
      event_done_.Wait(&mutex_);
    }
    const int64_t most = absl::ToInt64Nanoseconds(options_.max_delay);
    const absl::Time due =
        absl::Now() + work.takes + absl::Nanoseconds(most == 0 ? 0 : random_() % most);
    while (work.run && absl::Now() < due && broken_ == kCudaSuccess) {
      stream->changed.WaitFor(&mutex_, due - absl::Now());
    }
    if (broken_ != kCudaSuccess) continue;
    if (work.run) {
      mutex_.Unlock();
      work.run();
      mutex_.Lock();
    }
    if (work.mark != nullptr) work.mark->done = work.number;
    event_done_.SignalAll();
  }
}

CudaError CudaStandIn::Queue(CudaStream stream, Work work) {
  if (broken_ != kCudaSuccess) return broken_;
  const auto found = streams_.find(stream);
  if (found == streams_.end() || found->second->ordinal != current) return kInvalidHandle;
  found->second->queue.push_back(std::move(work));
  found->second->changed.SignalAll();
  return kCudaSuccess;
}

std::shared_ptr<CudaStandIn::Event> CudaStandIn::EventOf(CudaEvent event) {
  const auto found = events_.find(event);
  return found == events_.end() ? nullptr : found->second;
}

CudaError CudaStandIn::EventCreate(CudaEvent* event) {
  MutexLock lock(&mutex_);
  if (broken_ != kCudaSuccess) return broken_;
  auto made = std::make_shared<Event>();
  *event = made.get();
  events_[*event] = std::move(made);
  return kCudaSuccess;
}

CudaError CudaStandIn::EventDestroy(CudaEvent event) {
  MutexLock lock(&mutex_);
  return events_.erase(event) == 1 ? broken_ : kInvalidHandle;
}

CudaError CudaStandIn::EventRecord(CudaEvent event, CudaStream stream) {
  MutexLock lock(&mutex_);
  Work work;
  work.mark = EventOf(event);
  if (work.mark == nullptr) return kInvalidHandle;
  work.number = ++work.mark->recorded;
  return Queue(stream, std::move(work));
}

CudaError CudaStandIn::StreamWait(CudaStream stream, CudaEvent event) {
  MutexLock lock(&mutex_);
  Work work;
  work.wait = EventOf(event);
  if (work.wait == nullptr) return kInvalidHandle;
  work.number = work.wait->recorded;
  return Queue(stream, std::move(work));
}

CudaError CudaStandIn::EventQuery(CudaEvent event) {
  MutexLock lock(&mutex_);
  if (broken_ != kCudaSuccess) return broken_;
  const std::shared_ptr<Event> found = EventOf(event);
  if (found == nullptr) return kInvalidHandle;
  return found->done >= found->recorded ? kCudaSuccess : kCudaNotReady;
}

bool CudaStandIn::Known(const std::byte* data, int64_t bytes) const {
  if (options_.pageable) return true;
  const auto after = pieces_.upper_bound(const_cast<std::byte*>(data));
  if (after == pieces_.begin()) return false;
  const auto& [memory, piece] = *std::prev(after);
  return data + bytes <= memory + piece.bytes;
}

CudaError CudaStandIn::CopyAsync(const Copy2d& copy, CudaStream stream) {
  MutexLock lock(&mutex_);
  const bool rows = copy.rows > 1;
  if (copy.rows < 1 || copy.width < 1 || (rows && copy.target_stride < copy.width) ||
      (rows && copy.source_stride < copy.width) ||
      !Known(copy.target, (copy.rows - 1) * copy.target_stride + copy.width) ||
      !Known(copy.source, (copy.rows - 1) * copy.source_stride + copy.width)) {
    return kInvalidValue;
  }
  Work work;
  work.run = [copy] {
    for (int64_t row = 0; row < copy.rows; ++row) {
      std::memcpy(copy.target + row * copy.target_stride, copy.source + row * copy.source_stride,
                  copy.width);
    }
  };
  return Queue(stream, std::move(work));
}

CudaError CudaStandIn::Launch(CudaStream stream, std::function<void()> kernel,
                              absl::Duration takes) {
  MutexLock lock(&mutex_);
  Work work;
  work.takes = takes;
  work.run = std::move(kernel);
  return Queue(stream, std::move(work));
}

void CudaStandIn::Break(CudaError error) {
  MutexLock lock(&mutex_);
  broken_ = error;
  event_done_.SignalAll();
  for (const auto& [name, stream] : streams_) stream->changed.SignalAll();
}

int64_t CudaStandIn::live() const {
  MutexLock lock(&mutex_);
  return static_cast<int64_t>(streams_.size() + events_.size() + pieces_.size());
}

}  // namespace annulus
