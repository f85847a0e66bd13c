#include "worker/device/nv_links.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "worker/device/shared_library.h"

namespace annulus {
namespace {

// Values of NVML's documentation.
using Result = int;
using NvmlDevice = void*;
constexpr Result kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3;
constexpr unsigned int kMostLinks = 18;
constexpr int kToGpu = 0, kToSwitch = 2;
struct PciInfo {
  char legacy_place[16];
  unsigned int domain, bus, device, device_id, subsystem_id;
  char place[32];
};

// The library's functions, under their own names.
struct Functions {
  Result (*nvmlInit_v2)();
  Result (*nvmlShutdown)();
  Result (*nvmlDeviceGetHandleByPciBusId_v2)(const char*, NvmlDevice*);
  Result (*nvmlDeviceGetNvLinkState)(NvmlDevice, unsigned int, int*);
  Result (*nvmlDeviceGetNvLinkRemoteDeviceType)(NvmlDevice, unsigned int, int*);
  Result (*nvmlDeviceGetNvLinkRemotePciInfo_v2)(NvmlDevice, unsigned int, PciInfo*);
};

absl::Status Load(const std::string& path, Functions* nvml) {
  ASSIGN_OR_RETURN(const SharedLibrary library, SharedLibrary::Load(path, "no NVML"));
#define ANNULUS_FIND(name) RETURN_IF_ERROR(library.Find(#name, &nvml->name))
  ANNULUS_FIND(nvmlInit_v2);
  ANNULUS_FIND(nvmlShutdown);
  ANNULUS_FIND(nvmlDeviceGetHandleByPciBusId_v2);
  ANNULUS_FIND(nvmlDeviceGetNvLinkState);
  ANNULUS_FIND(nvmlDeviceGetNvLinkRemoteDeviceType);
  ANNULUS_FIND(nvmlDeviceGetNvLinkRemotePciInfo_v2);
#undef ANNULUS_FIND
  return absl::OkStatus();
}

NvLinkEnd EndOf(const Functions& nvml, NvmlDevice device, unsigned int link) {
  int type = -1;
  if (nvml.nvmlDeviceGetNvLinkRemoteDeviceType(device, link, &type) != kSuccess) return {};
  if (type == kToSwitch) return {NvLinkEnd::Kind::kSwitch, ""};
  PciInfo pci = {};
  if (type != kToGpu || nvml.nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, &pci) != kSuccess)
    return {};
  return {NvLinkEnd::Kind::kGpu,
          absl::StrFormat("%04x:%02x:%02x.0", pci.domain, pci.bus, pci.device)};
}

std::optional<std::vector<NvLinkEnd>> Ask(const Functions& nvml, const std::string& place) {
  NvmlDevice device = nullptr;
  if (nvml.nvmlDeviceGetHandleByPciBusId_v2(place.c_str(), &device) != kSuccess)
    return std::nullopt;
  std::vector<NvLinkEnd> ends;
  for (unsigned int link = 0; link < kMostLinks; ++link) {
    int active = 0;
    const Result result = nvml.nvmlDeviceGetNvLinkState(device, link, &active);
    // This GPU has fewer links.
    if (result == kInvalidArgument || result == kNotSupported) continue;
    if (result != kSuccess) return std::nullopt;
    if (active != 0) ends.push_back(EndOf(nvml, device, link));
  }
  return ends;
}

std::string Name(const NvLinkEnd& end) {
  if (end.kind == NvLinkEnd::Kind::kGpu) return end.place;
  return end.kind == NvLinkEnd::Kind::kSwitch ? "switches" : "others";
}

}  // namespace

std::string NvLinksText(const std::vector<NvLinkEnd>& ends) {
  if (ends.empty()) return "no NVLink";
  std::map<std::string, int> count;
  for (const NvLinkEnd& end : ends) ++count[Name(end)];
  std::string text;
  for (const auto& [name, links] : count) {
    const char* const what = !text.empty() ? "" : links == 1 ? "NVLink " : "NVLinks ";
    absl::StrAppend(&text, text.empty() ? "" : ", ", links, " ", what, "to ", name);
  }
  return text;
}

std::optional<std::vector<NvLinkEnd>> FindNvLinks(const std::string& library,
                                                  const std::string& place) {
  Functions nvml = {};
  if (!Load(library, &nvml).ok() || nvml.nvmlInit_v2() != kSuccess) return std::nullopt;
  std::optional<std::vector<NvLinkEnd>> ends = Ask(nvml, place);
  (void)nvml.nvmlShutdown();
  return ends;
}

}  // namespace annulus
