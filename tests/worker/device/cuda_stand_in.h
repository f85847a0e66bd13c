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

// GPUs of host memory: every stream is a thread that does what it is given in order, a random time
// later. It refuses what CUDA refuses (memory of the wrong kind, the wrong current device, strides)
// and can be told to fail. Thread-safe.
class CudaStandIn final : public CudaApi {
 public:
  struct Options {
    int driver = 13000, runtime = 13000;
    int count = 2;
    int major = 9, minor = 0;
    int64_t shared_bytes = 227 << 10;           // Of a block.
    int64_t memory_bytes = int64_t{256} << 20;  // Of each GPU.
    // Every piece of work waits for a random time below it.
    absl::Duration max_delay = absl::Microseconds(50);
    uint64_t seed = 1;
    bool pageable = false;  // Copies take host memory that is not pinned, as CUDA's do, late.
    CudaError at_start = kCudaSuccess;  // What DeviceCount says.
    std::string links;
  };
  // cudaErrorInvalidValue, cudaErrorInvalidResourceHandle, cudaErrorIllegalAddress.
  static constexpr CudaError kInvalidValue = 1, kInvalidHandle = 400, kIllegalAddress = 700;

  explicit CudaStandIn(const Options& options);
  // Ends the streams; whoever owns some has destroyed them.
  ~CudaStandIn() override;

  // A kernel, which may call nothing of CUDA, and which takes so long beside what it does.
  CudaError Launch(CudaStream stream, std::function<void()> kernel,
                   absl::Duration takes = absl::ZeroDuration());
  // From now on every call fails, as after a fault of a kernel, and nothing more is done.
  void Break(CudaError error);
  // The calling thread's GPU, whichever stand-in's.
  static int CurrentDevice();
  // Of a stream that is there.
  CudaPriority PriorityOf(CudaStream stream) const;
  // Streams, events and pieces of memory that have not been given back.
  int64_t live() const;
  // CUDA_MODULE_LOADING as it was when CUDA was first asked for anything, which is when it looks.
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
