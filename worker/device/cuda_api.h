#ifndef ANNULUS_WORKER_DEVICE_CUDA_API_H_
#define ANNULUS_WORKER_DEVICE_CUDA_API_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "worker/device/device.h"

namespace annulus {

// cudaStream_t and cudaEvent_t, opaque: nothing but cuda_runtime.cc needs the toolkit's headers.
using CudaStream = void*;
using CudaEvent = void*;

// cudaError_t; 0 is success. Those that are told apart:
using CudaError = int;
inline constexpr CudaError kCudaSuccess = 0;
inline constexpr CudaError kCudaOutOfMemory = 2;
inline constexpr CudaError kCudaInsufficientDriver = 35;
inline constexpr CudaError kCudaDevicesUnavailable = 46;
inline constexpr CudaError kCudaNoDevice = 100;
inline constexpr CudaError kCudaNotReady = 600;

// Of queues: what waits in one of a higher priority goes first wherever the device is free to
// choose, which it is whenever a block of threads ends.
enum class CudaPriority : uint8_t {
  kSolo,       // Jobs of one worker, which nobody else waits for.
  kGroup,      // Steps of groups.
  kTransfers,  // Their messages.
};

struct CudaProperties {
  std::string name;
  std::string place;         // "0000:3b:00.0": on its PCI buses, as nvidia-smi says it.
  int major = 0, minor = 0;  // Compute capability.
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t shared_bytes_per_block = 0;  // The most that a kernel may ask for.
};

// What we ask of the CUDA runtime, as it names it: the real one is of cuda_runtime.h, tests bring a
// stand-in. Thread-safe, as the runtime is. What needs a device works on the thread's current one.
class CudaApi {
 public:
  virtual ~CudaApi() = default;

  // "cudaErrorNoDevice: no CUDA-capable device is detected".
  virtual std::string ErrorText(CudaError error) = 0;
  // As 13000; the driver's is 0 where there is none.
  virtual CudaError Versions(int* driver, int* runtime) = 0;
  virtual CudaError DeviceCount(int* count) = 0;
  virtual CudaError Properties(int ordinal, CudaProperties* properties) = 0;
  // "18 NVLinks to switches" (nv_links.h): of the GPU at `place`; empty where that is not known.
  virtual std::string Links(const std::string& place) = 0;
  virtual CudaError SetDevice(int ordinal) = 0;

  virtual CudaError MemoryFree(int64_t* bytes) = 0;
  virtual CudaError Malloc(std::byte** memory, int64_t bytes) = 0;
  virtual CudaError Free(std::byte* memory) = 0;
  // Pinned.
  virtual CudaError HostMalloc(std::byte** memory, int64_t bytes) = 0;
  virtual CudaError HostFree(std::byte* memory) = 0;

  virtual CudaError StreamCreate(CudaStream* stream, CudaPriority priority) = 0;
  virtual CudaError StreamDestroy(CudaStream stream) = 0;
  // What is queued from now on waits for the event as it was last recorded.
  virtual CudaError StreamWait(CudaStream stream, CudaEvent event) = 0;
  virtual CudaError EventCreate(CudaEvent* event) = 0;
  virtual CudaError EventDestroy(CudaEvent event) = 0;
  virtual CudaError EventRecord(CudaEvent event, CudaStream stream) = 0;
  // kCudaSuccess when what stood before the record is done, else kCudaNotReady or a fault.
  virtual CudaError EventQuery(CudaEvent event) = 0;

  // Between pinned and device memory, or in device memory. Strides of several rows are at least
  // the width.
  virtual CudaError CopyAsync(const Copy2d& copy, CudaStream stream) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DEVICE_CUDA_API_H_
