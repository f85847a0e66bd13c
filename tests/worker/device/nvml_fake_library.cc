// A library with NVML's function names and a fake machine:
// - 0000:01:00.0 has four links to 0000:02:00.0, one to 0001:af:00.0, one that is down, one to an
//   unknown device, and no others.
// - 0000:02:00.0 has eighteen links to switches.
// - 0000:03:00.0 has none.
// - For 0000:04:00.0 it lacks permission.

#include <cstring>

extern "C" {

int fake_nvml_open = 0, fake_nvml_inits = 0;

int nvmlInit_v2() {
  ++fake_nvml_open;
  ++fake_nvml_inits;
  return 0;
}
int nvmlShutdown() {
  --fake_nvml_open;
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* place, void** device) {
  static char gpus[5];
  if (fake_nvml_open == 0) return 1;
  for (int gpu = 1; gpu <= 4; ++gpu) {
    const char name[] = {'0', '0', '0', '0', ':', '0', static_cast<char>('0' + gpu),
                         ':', '0', '0', '.', '0', '\0'};
    if (std::strcmp(place, name) != 0) continue;
    *device = &gpus[gpu];
    gpus[gpu] = static_cast<char>(gpu);
    return 0;
  }
  return 6;  // Not found.
}
int nvmlDeviceGetNvLinkState(void* device, unsigned int link, int* active) {
  const int gpu = *static_cast<char*>(device);
  if (gpu == 4) return 4;  // No permission.
  if (gpu == 3) return 3;  // Not supported.
  if (gpu == 1 && link > 6) return 2;
  *active = gpu == 1 && link == 5 ? 0 : 1;
  return 0;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void* device, unsigned int link, int* type) {
  *type = *static_cast<char*>(device) == 2 ? 2 : link == 6 ? 255 : 0;
  return 0;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned int link, void* pci) {
  // 16 characters; domain, bus, device and two more numbers; 32 characters.
  const unsigned int numbers[] = {link == 4 ? 1u : 0u, link == 4 ? 0xafu : 2u, 0, 0, 0};
  std::memset(pci, 'x', 68);
  std::memcpy(static_cast<char*>(pci) + 16, numbers, sizeof(numbers));
  return 0;
}

}  // extern "C"
