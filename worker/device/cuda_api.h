#ifndef ANNULUS_WORKER_DEVICE_CUDA_API_H_
#define ANNULUS_WORKER_DEVICE_CUDA_API_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "worker/device/device.h"

namespace annulus {

// cudaStream_t and cudaEvent_t, opaque, so that only cuda_runtime.cc needs the toolkit's headers.
using CudaStream = void*;
using CudaEvent = void*;

// cudaError_t; 0 is success. The values that the code distinguishes:
using CudaError = int;
inline constexpr CudaError kCudaSuccess = 0;
inline constexpr CudaError kCudaOutOfMemory = 2;
inline constexpr CudaError kCudaInsufficientDriver = 35;
inline constexpr CudaError kCudaDevicesUnavailable = 46;
inline constexpr CudaError kCudaNoDevice = 100;
inline constexpr CudaError kCudaNotReady = 600;

// Priority of a stream. When a thread block ends, the device starts waiting blocks of higher
// priority first.
enum class CudaPriority : uint8_t {
  kSolo,       // Jobs of one worker, for which no peer waits.
  kGroup,      // Steps of groups.
  kTransfers,  // Messages of groups.
};

struct CudaProperties {
  std::string name;
  std::string place;         // PCI address, as nvidia-smi prints it: "0000:3b:00.0".
  int major = 0, minor = 0;  // Compute capability.
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t shared_bytes_per_block = 0;  // The most shared memory that a kernel may request.
};

// The CUDA runtime functions that the workers use, under their names in CUDA. CudaRuntime returns
// the real one; tests have a fake. Thread-safe, like the runtime. Functions that need a device use
// the thread's current one.
class CudaApi {
 public:
  virtual ~CudaApi() = default;

  // For example "cudaErrorNoDevice: no CUDA-capable device is detected".
  virtual std::string ErrorText(CudaError error) = 0;
  // For example 13000. *driver is 0 if there is no driver.
  virtual CudaError Versions(int* driver, int* runtime) = 0;
  virtual CudaError DeviceCount(int* count) = 0;
  virtual CudaError Properties(int ordinal, CudaProperties* properties) = 0;
  // Links of the GPU at `place`, for example "18 NVLinks to switches" (nv_links.h). Empty if
  // unknown.
  virtual std::string Links(const std::string& place) = 0;
  virtual CudaError SetDevice(int ordinal) = 0;

  virtual CudaError MemoryFree(int64_t* bytes) = 0;
  virtual CudaError Malloc(std::byte** memory, int64_t bytes) = 0;
  virtual CudaError Free(std::byte* memory) = 0;
  // Pinned memory.
  virtual CudaError HostMalloc(std::byte** memory, int64_t bytes) = 0;
  virtual CudaError HostFree(std::byte* memory) = 0;

  virtual CudaError StreamCreate(CudaStream* stream, CudaPriority priority) = 0;
  virtual CudaError StreamDestroy(CudaStream stream) = 0;
  // Work queued later waits for the event's last record.
  virtual CudaError StreamWait(CudaStream stream, CudaEvent event) = 0;
  virtual CudaError EventCreate(CudaEvent* event) = 0;
  virtual CudaError EventDestroy(CudaEvent event) = 0;
  virtual CudaError EventRecord(CudaEvent event, CudaStream stream) = 0;
  // kCudaSuccess if all work before the record is done; otherwise kCudaNotReady or a fault.
  virtual CudaError EventQuery(CudaEvent event) = 0;

  // Copies between pinned and device memory, or within device memory. With several rows, strides
  // must be at least the width.
  virtual CudaError CopyAsync(const Copy2d& copy, CudaStream stream) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DEVICE_CUDA_API_H_
