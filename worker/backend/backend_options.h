#ifndef ANNULUS_WORKER_BACKEND_BACKEND_OPTIONS_H_
#define ANNULUS_WORKER_BACKEND_BACKEND_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace annulus {

struct TileIsa;

struct BackendOptions {
  // "cpu", "cuda:N" (the N-th GPU, from 0), or "auto": cuda:0 where there is a GPU, else cpu.
  std::string device = "cpu";
  // Of the CPU: others than "auto" go with no GPU.
  std::string kernel = "auto";  // "auto", "amx", "avx512bf16", "avx512", "avx2" or "portable".
  // What "auto" takes the first sound one of, fastest first; empty: what this CPU has.
  std::vector<const TileIsa*> cpu_paths;
  // Of a GPU: "auto", "portable" or "hopper" (worker/backend/hopper_choice.h). Others than "auto"
  // go with no CPU.
  std::string cuda_kernel = "auto";
  // The commands, but for the GPU's name at their end, that run CheckHopperOn and tell what came of
  // it as HopperVerdict reads it. Empty: nothing can be checked.
  std::vector<std::string> hopper_check, hopper_gradients_check;
  int threads = 1;  // Of one kernel.
  // Where ranks reach each other: an address or host name of this machine, or else the name of a
  // network interface.
  std::string comm_host;
  std::string comm_interface;
  // What arenas may take: of a GPU from the start; of a CPU what is kept for the next job counts.
  int64_t device_bytes = 0;
  // Of a GPU: what is pinned for staging at the start.
  int64_t staging_bytes = 0;
  // Of a GPU: where NCCL is, as for dlopen. Others than the usual one go with no CPU.
  static constexpr char kNcclLibrary[] = "libnccl.so.2";
  std::string nccl_library = kNcclLibrary;
  // Of a GPU, and refused on a CPU: where cuDNN is, as for dlopen; empty: it is not used.
  std::string cudnn_library;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_BACKEND_BACKEND_OPTIONS_H_
