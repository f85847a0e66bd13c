#ifndef ANNULUS_ATTENTION_SPEC_TENSOR_TABLE_H_
#define ANNULUS_ATTENTION_SPEC_TENSOR_TABLE_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "attention/spec/spec.h"

namespace annulus {

// The tensors of the API, with the numbers of annulus.v1.TensorId.
enum class TensorId : uint8_t {
  kUnspecified = 0,
  kQ = 1,
  kK = 2,
  kV = 3,
  kOut = 4,
  kLse = 5,
  kMaxLogit = 6,
  kDOut = 7,
  kDLse = 8,
  kDq = 9,
  kDk = 10,
  kDv = 11,
  kBias = 12,
  kDBias = 13,
  kDSink = 14,
  kBitMask = 15,
  kLseOffset = 16,
  kLseRest = 17,
};
inline constexpr TensorId kLastTensor = TensorId::kLseRest;

enum class RowSpace : uint8_t { kQuery, kKey };
// kLent: an input that comes from a kept state; clients do not send it. kKept: a result that stays
// on the workers with the job's kept state; clients do not fetch it.
enum class Direction : uint8_t { kInput, kOutput, kLent, kKept };

// One tensor of a job: row-major [rows, heads, dim] of dtype. `dim` is
//
// - 1 for LSE, its rest, the LSE offset, max_logit, d_lse and d_sink
// - the number of keys of the longest sequence for a bias and d_bias
// - an eighth of that, rounded up, for a bit mask
struct TensorInfo {
  TensorId id = TensorId::kUnspecified;
  RowSpace rows = RowSpace::kQuery;
  Direction direction = Direction::kInput;
  int32_t heads = 0;
  int32_t dim = 0;
  DataType dtype = DataType::kUnspecified;

  int64_t row_bytes() const;  // heads * dim * element bytes.
};

// The input and output tensors of a job. The data plane, budgets, files and the command line read
// this table, so a new operation only adds rows to it. Q, K, V, the output and LSE come first, in
// this order, as inputs or outputs. If the spec uses a kept state, all tensors that its forward job
// has, whether as inputs or outputs, are kLent. Requires: at most 2^26 keys in a sequence.
std::vector<TensorInfo> TensorTable(const AttentionSpec& spec);

// The row of `id`, or nullptr. Points into `table`.
const TensorInfo* FindTensor(const std::vector<TensorInfo>& table, TensorId id);

// Rows of the whole job's tensor.
int64_t RowsOf(const TensorInfo& tensor, const AttentionSpec& spec);

// "q", "k", "v", "output", "lse", ...; "unknown" for a number outside the enum.
absl::string_view TensorName(TensorId id);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SPEC_TENSOR_TABLE_H_
