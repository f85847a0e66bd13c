#ifndef ANNULUS_WORKER_BACKEND_BACKEND_OPTIONS_H_
#define ANNULUS_WORKER_BACKEND_BACKEND_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace annulus {

struct TileIsa;

struct BackendOptions {
  // "cpu", "cuda:N" (the N-th GPU, from 0), or "auto": cuda:0 if there is a GPU, otherwise cpu.
  std::string device = "cpu";
  // CPU only: a GPU refuses values other than "auto".
  std::string kernel = "auto";  // "auto", "amx", "avx512bf16", "avx512", "avx2" or "portable".
  // Candidates of "auto", fastest first; the first that passes its check is used. Empty: the paths
  // of this CPU.
  std::vector<const TileIsa*> cpu_paths;
  // GPU only: "auto", "portable" or "hopper" (worker/backend/hopper_choice.h). A CPU refuses values
  // other than "auto".
  std::string cuda_kernel = "auto";
  // Commands, without the GPU's name at their end, that run CheckHopperOn and print a result for
  // HopperVerdict. Empty: no check is possible.
  std::vector<std::string> hopper_check, hopper_gradients_check;
  int threads = 1;  // Threads of one kernel.
  // Address for connections between ranks: an address or host name of this machine, or the name of
  // a network interface.
  std::string comm_host;
  std::string comm_interface;
  // Memory for arenas. On a GPU it is allocated at start. On a CPU, memory kept for later jobs
  // counts too.
  int64_t device_bytes = 0;
  // GPU only: host memory that is pinned for staging at start.
  int64_t staging_bytes = 0;
  // GPU only: NCCL's path, as for dlopen. A CPU refuses values other than the default.
  static constexpr char kNcclLibrary[] = "libnccl.so.2";
  std::string nccl_library = kNcclLibrary;
  // GPU only, refused on a CPU: cuDNN's path, as for dlopen. Empty: cuDNN is not used.
  std::string cudnn_library;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_BACKEND_BACKEND_OPTIONS_H_
