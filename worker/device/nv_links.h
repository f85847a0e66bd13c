#ifndef ANNULUS_WORKER_DEVICE_NV_LINKS_H_
#define ANNULUS_WORKER_DEVICE_NV_LINKS_H_

#include <optional>
#include <string>
#include <vector>

namespace annulus {

// What one active NVLink of a GPU leads to.
struct NvLinkEnd {
  enum class Kind { kGpu, kSwitch, kOther };
  Kind kind = Kind::kOther;
  std::string place;  // Of a GPU on its PCI buses: "0000:3b:00.0".
};

// "18 NVLinks to switches", "4 NVLinks to 0000:3b:00.0, 2 to 0000:86:00.0", "no NVLink".
std::string NvLinksText(const std::vector<NvLinkEnd>& ends);

// Those of the GPU at `place`, by the driver's management library (NVML; `library` as for dlopen,
// "libnvidia-ml.so.1"), which tells of a process's own GPU wherever others are hidden from it. It
// is never unloaded. Nothing where there is no such library, or it does not say. Any thread.
std::optional<std::vector<NvLinkEnd>> FindNvLinks(const std::string& library,
                                                  const std::string& place);

}  // namespace annulus

#endif  // ANNULUS_WORKER_DEVICE_NV_LINKS_H_
