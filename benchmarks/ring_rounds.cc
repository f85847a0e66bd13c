// A ring of two workers of one thread each, as a process that alternates with another
// implementation. Reads lines on standard input and answers each with one line of JSON.
//
//   case DTYPE LENGTH HEADS DIM full|causal  -> {"flops": of a round}
//   run  -> {"seconds": in the executor, of the slower worker}

#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "benchmarks/jobs.h"
#include "benchmarks/serve.h"
#include "nlohmann/json.hpp"
#include "proto/wire/convert.h"

namespace annulus::bench {
namespace {

bool ReadCase(std::istringstream& words, AttentionSpec* spec, double* flops) {
  std::string name, mask;
  int64_t length = 0;
  int32_t heads = 0, dim = 0;
  words >> name >> length >> heads >> dim >> mask;
  for (const DataType dtype : {DataType::kFp32, DataType::kFp16, DataType::kBf16}) {
    if (name != DataTypeName(dtype) || words.fail()) continue;
    const bool causal = mask == "causal";
    *spec = SelfAttention(dtype, length, heads, dim, causal);
    const auto n = static_cast<double>(length);
    *flops = 4.0 * heads * dim * (causal ? n * (n + 1) / 2 : n * n);
    return causal || mask == "full";
  }
  return false;
}

int Main() {
  const Serve serve(2, {"--threads", "1"});
  Client client(OptionsFor(serve));
  Execution ring;
  ring.strategy = Strategy::kRingPassKv;
  ring.world_size = 2;
  std::unique_ptr<BenchJob> job;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    nlohmann::json answer;
    AttentionSpec spec;
    double flops = 0;
    if (verb == "case" && ReadCase(words, &spec, &flops)) {
      job = std::make_unique<BenchJob>(spec);
      job->Run(&client, ring, DataPath::kDirect);
      answer["flops"] = flops;
    } else if (verb == "run" && job != nullptr) {
      const v1::JobStats stats = job->Run(&client, ring, DataPath::kDirect);
      answer["seconds"] = absl::ToDoubleSeconds(DurationFromProto(stats.running()));
    } else {
      std::cerr << "cannot read: " << line << std::endl;
      return 2;
    }
    std::cout << answer.dump() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace annulus::bench

int main() { return annulus::bench::Main(); }
