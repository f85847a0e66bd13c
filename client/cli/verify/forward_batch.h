#ifndef ANNULUS_CLIENT_CLI_VERIFY_FORWARD_BATCH_H_
#define ANNULUS_CLIENT_CLI_VERIFY_FORWARD_BATCH_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "client/cli/verify/job_rows.h"

namespace annulus {

// Attention of one query row and head in fp64 ("exact"). If the row sees no key, all numbers are 0
// or −∞.
struct ExactRow {
  std::vector<double> out;
  std::vector<double> sizes;  // Σ P |v|, if requested.
  double lse = -std::numeric_limits<double>::infinity();
  double max_logit = -std::numeric_limits<double>::infinity();
  double scale = 0;  // Σ P · max |v|.
  // scale| · Σ|q · k|, times the slope of a soft cap: the weighted mean over all scores, and the
  // value at the largest score.
  double product = 0, product_of_max = 0;
};

// The same by the naive computation of docs/reference/numerics.md, in fp32, before rounding to the
// output's type ("naive").
struct NaiveRow {
  std::vector<float> out;
  double lse = -std::numeric_limits<double>::infinity();
  double max_logit = -std::numeric_limits<double>::infinity();
};

// Computes exact and naive rows for query rows that share one key/value head, whose keys are read
// in blocks. The work has parts for parallel threads. Order of the calls:
// 1. TakeMax() for every part
// 2. EndMax()
// 3. TakeExact() for every part, and TakeNaive() for every order
// 4. Exact() and Naive()
//
// The parts depend only on the job, so the results do not depend on the number of threads.
class ForwardBatch {
 public:
  // The cells must share one key/value head. `orders` is the number of orders in which the naive
  // sums are computed. `job` must outlive this object.
  ForwardBatch(const JobRows& job, const std::vector<RowCell>& cells, int64_t orders,
               bool with_sizes);

  // The number of parts of TakeMax() and TakeExact().
  int64_t parts() const { return parts_; }
  // The number of streams. Orders with equal n mod streams() read the blocks in the same order.
  int64_t streams() const;

  void TakeMax(int64_t part);
  void EndMax();
  void TakeExact(int64_t part);
  // `orders` must belong to one stream.
  void TakeNaive(const std::vector<int64_t>& orders);

  int64_t size() const { return static_cast<int64_t>(rows_.size()); }
  const RowCell& cell(int64_t n) const { return rows_[n].cell; }
  ExactRow Exact(int64_t n) const;
  NaiveRow Naive(int64_t n, int64_t order) const;

 private:
  struct Max {
    double exact = -std::numeric_limits<double>::infinity();
    float naive = -std::numeric_limits<float>::infinity();
    bool sees = false;  // True if the row sees a key.
  };
  struct ExactSums {
    double total = 0, product = 0, product_of_max = 0, scale = 0;
    bool has_max = false;
    std::vector<double> out, sizes;
  };
  struct NaiveSums {
    float total = 0;
    std::vector<float> out;
  };
  struct Row {
    RowCell cell;
    QueryRow query;
    std::vector<Max> max_of_part;
    Max max, top;  // `max` is over the keys, `top` also over the sink.
    std::vector<ExactSums> exact;
    std::vector<NaiveSums> naive;
  };
  struct Scratch;

  int64_t blocks() const { return BlocksOf(keys_); }
  bool SeesSome(Interval keys) const;
  template <typename Use>
  void ForBlocks(const Order& order, Interval blocks, bool values, Use use) const;
  Interval BlocksOfPart(int64_t part) const;
  void AddMax(const KeyBlock& block, int64_t part, Row* row, Scratch* scratch) const;
  void AddExact(const KeyBlock& block, int64_t part, Row* row, Scratch* scratch) const;
  void NaiveScores(const KeyBlock& block, const Row& row, Scratch* scratch) const;
  void AddTotals(const KeyBlock& block, const std::vector<int64_t>& orders, Row* row,
                 Scratch* scratch) const;
  void AddValues(const KeyBlock& block, const std::vector<int64_t>& orders, Row* row,
                 Scratch* scratch) const;
  void AddRow(const float* v, float weight, std::vector<float>* out) const;

  const JobRows& job_;
  const int64_t orders_;
  const bool parts_of_bf16_;
  std::vector<Row> rows_;
  int32_t kv_head_ = 0;
  Interval keys_;  // The smallest interval with all visible keys of the rows.
  int64_t parts_ = 1;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_VERIFY_FORWARD_BATCH_H_
