#ifndef ANNULUS_WORKER_LANE_ENGINE_H_
#define ANNULUS_WORKER_LANE_ENGINE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attention/validate/capability.h"
#include "worker/comm/communicator.h"
#include "worker/device/device.h"
#include "worker/kernel/attention_kernel.h"

namespace annulus {

// Workers of different kinds cannot connect to each other.
enum class DeviceKind : uint8_t { kCpu, kCuda };

// A back-end as a set of factories: device, kernel, communicator. worker/backend/backend.h selects
// one; tests have their own. Any thread may call the functions. An object they return has one owner
// thread, the owner of its device (but see any_thread).
struct Engine {
  // Each lane has its own device. It outlives the kernel and communicators made for it.
  std::function<absl::StatusOr<std::unique_ptr<Device>>()> make_device;
  // For the lane of one-rank jobs, if it uses another kind of device. Empty: make_device.
  std::function<absl::StatusOr<std::unique_ptr<Device>>()> make_solo_device;
  std::function<absl::StatusOr<std::unique_ptr<AttentionKernel>>(Device* device)> make_kernel;
  std::function<absl::StatusOr<std::unique_ptr<Communicator>>(Device* device, int32_t rank,
                                                              int32_t size)>
      make_communicator;
  // Returns staging memory that the device reads and writes directly, or nullptr if none is left.
  // Empty: the device can use any memory. Any thread.
  std::function<std::shared_ptr<std::byte>(int64_t bytes)> take_staging;
  // Returns why the process should be replaced when it is idle, because it has used up a resource
  // that only its end returns; empty if there is no reason. Any thread. An empty function: never.
  std::function<std::string()> worn;
  // For example "cpu/avx2 + gloo" or "cpu/avx512 + gloo (amx failed its check)".
  std::string description;
  // For example "cpu/avx2". Engines of one protocol version with the same value give the same bits
  // in a deterministic job.
  std::string arithmetic;
  // Rows of the capability table that this back-end does not serve. The worker registers them, so
  // that the coordinator refuses such jobs at submit.
  std::vector<Capability> lacks;
  bool Lacks(absl::string_view feature) const {
    return std::any_of(lacks.begin(), lacks.end(),
                       [&](const Capability& lack) { return lack.feature == feature; });
  }
  DeviceKind device_kind = DeviceKind::kCpu;
  // True if the engine's objects work on any thread, one thread at a time.
  bool any_thread = false;
  // True if two ranks of one process cannot connect, so that transfers cannot be measured at start.
  bool one_rank_a_process = false;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_LANE_ENGINE_H_
