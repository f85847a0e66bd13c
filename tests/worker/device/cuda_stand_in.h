#ifndef ANNULUS_TESTS_WORKER_DEVICE_CUDA_STAND_IN_H_
#define ANNULUS_TESTS_WORKER_DEVICE_CUDA_STAND_IN_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "worker/device/cuda_api.h"

namespace annulus {

// Fake GPUs in host memory. Every stream is a thread that executes its work in order, with random
// delays. Refuses what CUDA refuses (memory of the wrong kind, the wrong current device, strides)
// and can be made to fail. Thread-safe.
class CudaStandIn final : public CudaApi {
 public:
  struct Options {
    int driver = 13000, runtime = 13000;
    int count = 2;
    int major = 9, minor = 0;
    int64_t shared_bytes = 227 << 10;           // For one block.
    int64_t memory_bytes = int64_t{256} << 20;  // For each GPU.
    // Every item of work waits for a random time below this.
    absl::Duration max_delay = absl::Microseconds(50);
    uint64_t seed = 1;
    bool pageable = false;  // Copies accept host memory that is not pinned, as CUDA's do, but late.
    CudaError at_start = kCudaSuccess;  // The result of DeviceCount.
    std::string links;
  };
  // cudaErrorInvalidValue, cudaErrorInvalidResourceHandle, cudaErrorIllegalAddress.
  static constexpr CudaError kInvalidValue = 1, kInvalidHandle = 400, kIllegalAddress = 700;

  explicit CudaStandIn(const Options& options);
  // Ends the streams. Requires: owners have destroyed theirs.
  ~CudaStandIn() override;

  // Queues a kernel that must not call CUDA. `takes` is added to its own time.
  CudaError Launch(CudaStream stream, std::function<void()> kernel,
                   absl::Duration takes = absl::ZeroDuration());
  // From now on every call fails, as after a kernel fault, and no queued work runs.
  void Break(CudaError error);
  // The calling thread's GPU, of any stand-in.
  static int CurrentDevice();
  // Requires: the stream exists.
  CudaPriority PriorityOf(CudaStream stream) const;
  // The number of streams, events and pieces of memory that have not been freed.
  int64_t live() const;
  // CUDA_MODULE_LOADING at the first CUDA call, when CUDA reads it.
  std::string module_loading() const;

  std::string ErrorText(CudaError error) override;
  CudaError Versions(int* driver, int* runtime) override;
  CudaError DeviceCount(int* count) override;
  CudaError Properties(int ordinal, CudaProperties* properties) override;
  std::string Links(const std::string&) override { return options_.links; }
  CudaError SetDevice(int ordinal) override;
  CudaError MemoryFree(int64_t* bytes) override;
  CudaError Malloc(std::byte** memory, int64_t bytes) override;
  CudaError Free(std::byte* memory) override;
  CudaError HostMalloc(std::byte** memory, int64_t bytes) override;
  CudaError HostFree(std::byte* memory) override;
  CudaError StreamCreate(CudaStream* stream, CudaPriority priority) override;
  CudaError StreamDestroy(CudaStream stream) override;
  CudaError StreamWait(CudaStream stream, CudaEvent event) override;
  CudaError EventCreate(CudaEvent* event) override;
  CudaError EventDestroy(CudaEvent event) override;
  CudaError EventRecord(CudaEvent event, CudaStream stream) override;
  CudaError EventQuery(CudaEvent event) override;
  CudaError CopyAsync(const Copy2d& copy, CudaStream stream) override;

 private:
  struct Event {
    int64_t recorded = 0, done = 0;
  };
  struct Work {
    std::function<void()> run;  // Empty: marks or waits for an event.
    std::shared_ptr<Event> mark, wait;
    int64_t number = 0;
    absl::Duration takes;
  };
  struct Stream {
    int ordinal = 0;
    CudaPriority priority = CudaPriority::kSolo;
    bool ending = false;
    std::deque<Work> queue;
    CondVar changed;
    std::thread thread;
  };
  enum class Kind { kDevice, kPinned };
  struct Piece {
    Kind kind = Kind::kDevice;
    int ordinal = 0;
    int64_t bytes = 0;
  };

  void Look();
  void Run(Stream* stream);
  CudaError Take(Kind kind, std::byte** memory, int64_t bytes);
  CudaError GiveBack(Kind kind, std::byte* memory);
  CudaError Queue(CudaStream stream, Work work) REQUIRES(mutex_);
  bool Known(const std::byte* data, int64_t bytes) const REQUIRES(mutex_);
  std::shared_ptr<Event> EventOf(CudaEvent event) REQUIRES(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  CondVar event_done_;
  std::mt19937_64 random_ GUARDED_BY(mutex_);
  CudaError broken_ GUARDED_BY(mutex_) = kCudaSuccess;
  std::optional<std::string> module_loading_ GUARDED_BY(mutex_);
  std::map<CudaStream, std::unique_ptr<Stream>> streams_ GUARDED_BY(mutex_);
  std::map<CudaEvent, std::shared_ptr<Event>> events_ GUARDED_BY(mutex_);
  std::map<std::byte*, Piece> pieces_ GUARDED_BY(mutex_);
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_DEVICE_CUDA_STAND_IN_H_
