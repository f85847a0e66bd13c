#include "tests/worker/kernel/implementations.h"

#include <utility>

#include "tests/sanitized.h"
#include "tests/worker/kernel/amx_or_emulation.h"
#include "tests/worker/kernel/reference_kernel.h"
#include "tests/worker/kernel/wide_isa.h"
#include "worker/kernel/cpu/cpu_kernel.h"

namespace annulus {

std::vector<std::string> KernelNames() {
  std::vector<std::string> names = {"amx", "avx512bf16", "avx512", "avx2", "portable", "wide"};
  if (!kSanitized) names.push_back("reference");
  return names;
}

bool KernelsAreSlow() { return false; }

std::unique_ptr<AttentionKernel> MakeKernel(const std::string& name, int threads) {
  if (name == "reference") return std::make_unique<ReferenceKernel>();
  CpuKernel::Options options;
  options.threads = threads;
  options.path = name;
  options.pack_bytes = 1 << 20;
  if (name == "wide") options.isa = &kWideIsa;
  if (name == "amx") options.isa = AmxOrEmulation();
  absl::StatusOr<std::unique_ptr<CpuKernel>> kernel = CpuKernel::Create(options);
  if (!kernel.ok()) return nullptr;
  return *std::move(kernel);
}

}  // namespace annulus
