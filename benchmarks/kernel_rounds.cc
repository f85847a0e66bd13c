// The CPU kernel as a process that alternates with another implementation. Reads lines on standard
// input and answers each with one line of JSON. So tensors of a case are made once, and its rounds
// alternate with the peer's.
//
//   case DTYPE ARITHMETIC Q_LEN KV_LEN Q_HEADS KV_HEADS DIM MASK OPERATION
//       MASK full, causal or the keys of a causal window; OPERATION forward or gradients
//     -> {"flops": of a round, "path": of the kernel, "roof": name of the figure of `roof`}
//   run   -> {"seconds": of a round}
//   roof  -> {"gflops": of this machine with as many threads}
//   paths -> {"paths": [{"name", "bf16x3": true if it serves that}], of this machine, fastest
//   first}
//
// Arguments: --threads N, --path NAME.

#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "absl/strings/numbers.h"
#include "benchmarks/fma_peak.h"
#include "benchmarks/kernel_job.h"
#include "benchmarks/measured_kernel.h"
#include "nlohmann/json.hpp"
#include "worker/kernel/cpu/isa/isa_dispatch.h"

namespace annulus::bench {
namespace {

bool ReadDtype(const std::string& name, DataType* dtype) {
  for (const DataType known : {DataType::kFp32, DataType::kFp16, DataType::kBf16}) {
    if (name != DataTypeName(known)) continue;
    *dtype = known;
    return true;
  }
  return false;
}

bool ReadMask(const std::string& name, AttentionSpec* spec) {
  if (name == "full") return true;
  Mask mask;
  mask.causal = true;
  int64_t window = 0;
  if (name != "causal") {
    if (!absl::SimpleAtoi(name, &window) || window < 1) return false;
    mask.window_left = window - 1;
  }
  spec->masks = {mask};
  return true;
}

bool ReadCase(std::istringstream& words, AttentionSpec* spec) {
  std::string dtype, arithmetic, mask, operation;
  Sequence sequence;
  words >> dtype >> arithmetic >> sequence.q_len >> sequence.kv_len >> spec->q_heads >>
      spec->kv_heads >> spec->head_dim >> mask >> operation;
  spec->sequences = {sequence};
  if (arithmetic == "bf16x3") spec->arithmetic = Arithmetic::kBf16x3;
  if (operation == "gradients") spec->operation = Operation::kGradients;
  return !words.fail() && ReadDtype(dtype, &spec->dtype) && ReadMask(mask, spec);
}

// Answers lines until the end of input. Not thread-safe.
class Rounds {
 public:
  explicit Rounds(MeasuredKernel measured)
      : kernel_(std::move(measured.kernel)), threads_(measured.threads), path_(measured.path) {}

  bool Answer(const std::string& line, nlohmann::json* answer) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    if (verb == "case") return Begin(words, answer);
    if (verb == "run" && data_ != nullptr) {
      *answer = {{"seconds", data_->Run(*kernel_)}};
      return true;
    }
    if (verb == "paths") {
      *answer = {{"paths", nlohmann::json::array()}};
      for (const TileIsa* isa : AvailableIsas()) {
        (*answer)["paths"].push_back({{"name", isa->name}, {"bf16x3", isa->bf16x3 != nullptr}});
      }
      return true;
    }
    if (verb != "roof") return false;
    constexpr double kSeconds = 0.2;
    *answer = {{"gflops", bf16_ ? Bf16PeakGflops(path_, threads_, kSeconds)
                                : FmaPeakGflops(path_, threads_, kSeconds)}};
    return true;
  }

 private:
  bool Begin(std::istringstream& words, nlohmann::json* answer) {
    AttentionSpec spec;
    if (!ReadCase(words, &spec)) return false;
    data_.reset();
    if (spec.arithmetic == Arithmetic::kBf16x3 && !kernel_->serves_bf16x3()) {
      *answer = {{"served", false}, {"path", path_}};
      return true;
    }
    data_ = std::make_unique<KernelJobData>(spec, /*seed=*/1);
    bf16_ = !Bf16PeakName(path_).empty() && spec.dtype == DataType::kBf16;
    data_->Run(*kernel_);  // Touches all memory once.
    *answer = {{"flops", data_->flops()},
               {"path", path_},
               {"cpu", CpuModel()},
               {"roof", bf16_ ? Bf16PeakName(path_) : "FMA peak"}};
    return true;
  }

  const std::unique_ptr<CpuKernel> kernel_;
  const int threads_;
  const std::string path_;
  std::unique_ptr<KernelJobData> data_;
  bool bf16_ = false;  // True if the roof is that of bf16 products.
};

int Main(int argc, char** argv) {
  Rounds rounds(KernelOfArguments(argc, argv, nullptr));
  for (std::string line; std::getline(std::cin, line);) {
    nlohmann::json answer;
    if (!rounds.Answer(line, &answer)) {
      std::cerr << "cannot read: " << line << std::endl;
      return 2;
    }
    std::cout << answer.dump() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace annulus::bench

int main(int argc, char** argv) { return annulus::bench::Main(argc, argv); }
