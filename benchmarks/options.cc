// The cost of a job's options in the CPU kernel: the rate of visible pairs with an option over the
// rate without it, alternating in one process.
// Arguments: names of options (default: all), --threads N, --path NAME.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/spec/dtype.h"
#include "attention/spec/spec.h"
#include "benchmarks/bench_report.h"
#include "benchmarks/kernel_job.h"
#include "benchmarks/measured_kernel.h"

namespace annulus::bench {
namespace {

constexpr int kHeads = 4;
constexpr int kRepeats = 5;
// Lower limit of the rate with one option, and with six at once, as a fraction of the rate without.
constexpr double kBar = 0.75, kBarOfAll = 0.5;

AttentionSpec Plain(DataType dtype, bool gradients) {
  AttentionSpec spec;
  spec.dtype = dtype;
  spec.q_heads = spec.kv_heads = kHeads;
  spec.head_dim = 128;
  if (gradients) spec.operation = Operation::kGradients;
  spec.sequences.resize(1);
  spec.sequences[0].q_len = spec.sequences[0].kv_len = 4096;
  spec.masks.emplace_back().causal = true;
  return spec;
}

void SoftCap(AttentionSpec* spec) { spec->modifiers.soft_cap = 30; }
void Alibi(AttentionSpec* spec) { spec->modifiers.alibi_slopes = {0.5f, 0.25f, 0.125f, 0.0625f}; }
void Sinks(AttentionSpec* spec) { spec->modifiers.sinks.assign(kHeads, 1.0f); }
void LseOffset(AttentionSpec* spec) { spec->modifiers.lse_offset = true; }
void SharedBias(AttentionSpec* spec) { spec->modifiers.bias = Bias{}; }
void BiasOfHeads(AttentionSpec* spec) {
  SharedBias(spec);
  spec->modifiers.bias->heads = kHeads;
}
void BitMask(AttentionSpec* spec) { spec->masks[0].bit_mask = true; }
void DropTenth(AttentionSpec* spec) { spec->dropout = Dropout{0.1, 7}; }
void Deterministic(AttentionSpec* spec) { spec->deterministic = true; }
void MaskOfHead(AttentionSpec* spec) {
  spec->masks.emplace_back().query_heads = {1};
  spec->masks[1].causal = true;
  spec->masks[1].window_left = 2047;
}
void SixModifiers(AttentionSpec* spec) {
  for (const auto set : {SoftCap, Alibi, Sinks, BiasOfHeads, BitMask, DropTenth}) set(spec);
}
void Dim80(AttentionSpec* spec) { spec->head_dim = 80; }
void Dim192Values128(AttentionSpec* spec) {
  spec->head_dim = 192;
  spec->head_dim_v = 128;
}
void Dim256(AttentionSpec* spec) { spec->head_dim = 256; }
void Grouped(AttentionSpec* spec) { spec->kv_heads = 1; }

struct Option {
  const char* name;
  void (*set)(AttentionSpec*);
  double bar = kBar;
};
constexpr Option kOptions[] = {{"soft cap", SoftCap},
                               {"ALiBi", Alibi},
                               {"sinks", Sinks},
                               {"LSE offset", LseOffset},
                               {"bias of all heads", SharedBias},
                               {"bias of each head", BiasOfHeads},
                               {"bit mask", BitMask},
                               {"dropout", DropTenth},
                               {"six modifiers at once", SixModifiers, kBarOfAll},
                               {"deterministic", Deterministic},
                               {"a mask of one head", MaskOfHead},
                               {"80 dimensions", Dim80},
                               {"192 dimensions, values of 128", Dim192Values128},
                               {"256 dimensions", Dim256},
                               {"four query heads of one", Grouped}};

void MeasureType(DataType dtype, bool gradients, const std::vector<std::string>& names,
                 const MeasuredKernel& measured, std::vector<Entry>* entries) {
  AttentionKernel& kernel = *measured.kernel;
  KernelJobData plain(Plain(dtype, gradients), /*seed=*/1);
  plain.Run(kernel);  // Touches all memory once.
  for (const Option& option : kOptions) {
    if (!names.empty() && std::find(names.begin(), names.end(), option.name) == names.end())
      continue;
    AttentionSpec spec = Plain(dtype, gradients);
    option.set(&spec);
    KernelJobData data(spec, /*seed=*/1);
    data.Run(kernel);
    std::vector<double> rates, own;
    for (int i = 0; i < kRepeats; ++i) {
      own.push_back(plain.flops() / plain.Run(kernel) / 1e9);
      rates.push_back(data.flops() / data.Run(kernel) / 1e9);
    }
    Entry entry = EntryOfRounds(rates, own);
    entry.name = absl::StrCat("options ", measured.path, " ", DataTypeName(dtype),
                              gradients ? " gradients, " : ", ", option.name);
    entry.unit = "GFLOP/s";
    entry.compared_to = "causal 4k of 128 dimensions without it, in turn";
    entry.bar = option.bar;
    Say(entry);
    entries->push_back(entry);
  }
}

int Main(int argc, char** argv) {
  std::vector<std::string> names;
  const MeasuredKernel measured = KernelOfArguments(argc, argv, &names);
  for (const std::string& name : names) {
    if (std::any_of(std::begin(kOptions), std::end(kOptions),
                    [&](const Option& option) { return name == option.name; }))
      continue;
    std::fprintf(stderr, "bench: no option '%s'\n", name.c_str());
    return 2;
  }
  std::vector<Entry> entries;
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16, DataType::kFp16}) {
    for (const bool gradients : {false, true}) {
      MeasureType(dtype, gradients, names, measured, &entries);
    }
  }
  std::puts(ToJson(entries).c_str());
  return 0;
}

}  // namespace
}  // namespace annulus::bench

int main(int argc, char** argv) { return annulus::bench::Main(argc, argv); }
