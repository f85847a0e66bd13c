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

// Workers of different kinds cannot connect to one another.
enum class DeviceKind : uint8_t { kCpu, kCuda };

// A back-end, as the lanes see it: how to make one of each seam. worker/backend/backend.h chooses;
// tests bring their own. The functions may be called from any thread; what they make has one owner
// thread each, that of its device (but see any_thread).
struct Engine {
  // Each lane has one, and gives it to what works on its memory; it outlives them.
  std::function<absl::StatusOr<std::unique_ptr<Device>>()> make_device;
  // For the lane of jobs of one worker, where its device is another; empty: make_device.
  std::function<absl::StatusOr<std::unique_ptr<Device>>()> make_solo_device;
  std::function<absl::StatusOr<std::unique_ptr<AttentionKernel>>(Device* device)> make_kernel;
  std::function<absl::StatusOr<std::unique_ptr<Communicator>>(Device* device, int32_t rank,
                                                              int32_t size)>
      make_communicator;
  // Memory for staging that the device reads and writes by itself; null where none is left. Empty:
  // any memory does. Any thread.
  std::function<std::shared_ptr<std::byte>(int64_t bytes)> take_staging;
  // What the process has spent that only its end gives back: why another one should take its place
  // when it holds nothing; empty: it need not. Any thread. Empty: never.
  std::function<std::string()> worn;
  // "cpu/avx2 + gloo", "cpu/avx512 + gloo (amx failed its check)".
  std::string description;
  // "cpu/avx2": engines of one protocol version that say the same have the same bits for a
  // deterministic job.
  std::string arithmetic;
  // What of the capability table this back-end does not serve: registered, so that the coordinator
  // refuses it at submit.
  std::vector<Capability> lacks;
  bool Lacks(absl::string_view feature) const {
    return std::any_of(lacks.begin(), lacks.end(),
                       [&](const Capability& lack) { return lack.feature == feature; });
  }
  DeviceKind device_kind = DeviceKind::kCpu;
  // What it makes works on any thread, of which one at a time calls it.
  bool any_thread = false;
  // Two ranks cannot meet in one process, so that what a transfer costs cannot be measured at
  // start.
  bool one_rank_a_process = false;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_LANE_ENGINE_H_
