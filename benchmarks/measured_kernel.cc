#include "benchmarks/measured_kernel.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "worker/kernel/cpu/isa/isa_dispatch.h"

namespace annulus::bench {
namespace {

[[noreturn]] void Refuse(int code, const std::string& why) {
  std::fprintf(stderr, "bench: %s\n", why.c_str());
  std::exit(code);
}

}  // namespace

MeasuredKernel KernelOfArguments(int argc, const char* const* argv,
                                 std::vector<std::string>* others) {
  CpuKernel::Options options;
  options.threads = 2;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool threads = word == "--threads";
    if (!threads && word != "--path") {
      if (others == nullptr) Refuse(2, "arguments: [--threads N] [--path NAME]");
      others->push_back(word);
      continue;
    }
    if (++i == argc) Refuse(2, word + " needs a value");
    if (threads && (!absl::SimpleAtoi(argv[i], &options.threads) || options.threads < 1))
      Refuse(2, "--threads needs a number of 1 or more");
    if (!threads) options.path = argv[i];
  }
  absl::StatusOr<std::unique_ptr<CpuKernel>> kernel = CpuKernel::Create(options);
  if (!kernel.ok()) Refuse(1, kernel.status().ToString());
  const std::string path = (*kernel)->Description().substr(std::strlen("cpu/"));
  std::fprintf(stderr, "%s, path %s, %d threads\n", CpuModel().c_str(), path.c_str(),
               options.threads);
  return {*std::move(kernel), options.threads, path};
}

}  // namespace annulus::bench
