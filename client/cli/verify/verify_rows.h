#ifndef ANNULUS_CLIENT_CLI_VERIFY_VERIFY_ROWS_H_
#define ANNULUS_CLIENT_CLI_VERIFY_VERIFY_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "attention/spec/dtype.h"
#include "attention/spec/spec.h"
#include "attention/spec/tensor_table.h"

namespace annulus {

// Functions that the verifiers share.

// Rows [begin, begin + count) of one head of a tensor, as floats.
std::vector<float> HeadRows(const TensorInfo& tensor, const std::byte* base, int32_t head,
                            int64_t begin, int64_t count);

// The packed tensors of a job, by id. The constructor's arguments must outlive this object.
class HeadTensors {
 public:
  HeadTensors(const AttentionSpec& spec, const std::map<TensorId, const std::byte*>& tensors)
      : table_(TensorTable(spec)), tensors_(tensors) {}

  const std::byte* data(TensorId id) const;  // Null if there is none.
  DataType dtype(TensorId id) const { return FindTensor(table_, id)->dtype; }
  // HeadRows() of a tensor, which must exist.
  std::vector<float> Rows(TensorId id, int32_t head, int64_t begin, int64_t count) const {
    return HeadRows(*FindTensor(table_, id), tensors_.at(id), head, begin, count);
  }

 private:
  const std::vector<TensorInfo> table_;
  const std::map<TensorId, const std::byte*>& tensors_;
};

// `value` rounded to the type and back.
float RoundTo(DataType dtype, float value);

// The function that returns the ulp of a type at a magnitude.
double (*UlpOf(DataType dtype))(double magnitude);

// Selects `count` distinct rows of [0, rows), in increasing order; all if there are no more.
std::vector<int64_t> PickRows(int64_t rows, int64_t count, uint64_t seed);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_VERIFY_VERIFY_ROWS_H_
