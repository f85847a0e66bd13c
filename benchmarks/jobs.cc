#include "benchmarks/jobs.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "attention/numerics/synthetic.h"

namespace annulus::bench {

ClientOptions OptionsFor(const Serve& serve) {
  ClientOptions options;
  options.address = serve.address();
  return options;
}

BenchJob::BenchJob(AttentionSpec spec) : spec_(std::move(spec)), table_(TensorTable(spec_)) {
  for (const TensorInfo& info : table_) {
    const int64_t rows = RowsOf(info, spec_);
    const int64_t bytes = rows * info.row_bytes();
    tensors_.emplace_back(static_cast<size_t>(bytes));
    if (info.direction == Direction::kInput) {
      FillSyntheticRows(1, info, {0, rows}, tensors_.back().data());
      input_bytes_ += bytes;
    } else {
      output_bytes_ += bytes;
    }
  }
}

v1::JobStats BenchJob::Run(Client* client, const Execution& execution, DataPath path) {
  return RunOnce(client, execution, path).stats;
}

const std::byte* BenchJob::tensor(TensorId id) const {
  return tensors_[FindTensor(table_, id) - table_.data()].data();
}

AttendResult BenchJob::RunOnce(Client* client, const Execution& execution, DataPath path) {
  AttendArguments arguments;
  arguments.spec = spec_;
  arguments.execution = execution;
  arguments.path = path;
  arguments.timeout = absl::Hours(1);
  for (size_t i = 0; i < table_.size(); ++i) {
    if (table_[i].direction == Direction::kInput) {
      arguments.inputs[table_[i].id] = tensors_[i];
    } else {
      arguments.outputs[table_[i].id] = absl::MakeSpan(tensors_[i]);
    }
  }
  absl::StatusOr<AttendResult> result = client->Attend(std::move(arguments));
  if (!result.ok()) {
    std::fprintf(stderr, "bench: %s\n", result.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(result);
}

AttentionSpec SelfAttention(DataType dtype, int64_t length, int32_t heads, int32_t dim,
                            bool causal) {
  AttentionSpec spec;
  spec.dtype = dtype;
  spec.q_heads = heads;
  spec.kv_heads = heads;
  spec.head_dim = dim;
  spec.sequences = {{length, length, "", 0, 0}};
  if (causal) {
    spec.masks.emplace_back();
    spec.masks.back().causal = true;
  }
  return spec;
}

}  // namespace annulus::bench
