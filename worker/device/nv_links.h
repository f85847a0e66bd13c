#ifndef ANNULUS_WORKER_DEVICE_NV_LINKS_H_
#define ANNULUS_WORKER_DEVICE_NV_LINKS_H_

#include <optional>
#include <string>
#include <vector>

namespace annulus {

// The other end of one active NVLink of a GPU.
struct NvLinkEnd {
  enum class Kind { kGpu, kSwitch, kOther };
  Kind kind = Kind::kOther;
  std::string place;  // PCI address if it is a GPU: "0000:3b:00.0".
};

// "18 NVLinks to switches", "4 NVLinks to 0000:3b:00.0, 2 to 0000:86:00.0", "no NVLink".
std::string NvLinksText(const std::vector<NvLinkEnd>& ends);

// The NVLinks of the GPU at `place`, from the driver's management library (NVML; `library` as for
// dlopen, "libnvidia-ml.so.1"). NVML reports a process's own GPU even if other GPUs are hidden from
// it. The library is never unloaded. nullopt if it is missing or does not report the links. Any
// thread.
std::optional<std::vector<NvLinkEnd>> FindNvLinks(const std::string& library,
                                                  const std::string& place);

}  // namespace annulus

#endif  // ANNULUS_WORKER_DEVICE_NV_LINKS_H_
