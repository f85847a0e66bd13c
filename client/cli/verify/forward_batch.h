#ifndef ANNULUS_CLIENT_CLI_VERIFY_FORWARD_BATCH_H_
#define ANNULUS_CLIENT_CLI_VERIFY_FORWARD_BATCH_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "client/cli/verify/job_rows.h"

namespace annulus {

// Attention of one query row and head in fp64. All of it is 0, or −∞, where the row sees nothing.
struct ExactRow {
  std::vector<double> out;
  std::vector<double> sizes;  // Σ P |v|, where it is asked for.
  double lse = -std::numeric_limits<double>::infinity();
  double max_logit = -std::numeric_limits<double>::infinity();
  double scale = 0;  // Σ P · max |v|.
  // Of all scores, by their weights, and of the largest: |scale| · Σ|q · k|, and what a soft cap
  // leaves of that.
  double product = 0, product_of_max = 0;
};

// The same by the naive computation of docs/reference/numerics.md, in fp32, not yet rounded to the
// output's type.
struct NaiveRow {
  std::vector<float> out;
  double lse = -std::numeric_limits<double>::infinity();
  double max_logit = -std::numeric_limits<double>::infinity();
};

// Both, for query rows that share the keys of one key/value head, which are read in blocks. Work is
// cut into parts that threads may take side by side: every TakeMax, then EndMax, then every
// TakeExact and TakeNaive, then the answers. Parts depend on the job alone, and so do all numbers.
class ForwardBatch {
 public:
  // Of one key/value head. `orders`: in how many orders of the keys the naive sums are made. `job`
  // must outlive this.
  ForwardBatch(const JobRows& job, const std::vector<RowCell>& cells, int64_t orders,
               bool with_sizes);

  // How many parts TakeMax and TakeExact have.
  int64_t parts() const { return parts_; }
  // Orders that read the blocks alike: n with n mod streams() equal.
  int64_t streams() const;

  void TakeMax(int64_t part);
  void EndMax();
  void TakeExact(int64_t part);
  // Orders of one stream.
  void TakeNaive(const std::vector<int64_t>& orders);

  int64_t size() const { return static_cast<int64_t>(rows_.size()); }
  const RowCell& cell(int64_t n) const { return rows_[n].cell; }
  ExactRow Exact(int64_t n) const;
  NaiveRow Naive(int64_t n, int64_t order) const;

 private:
  struct Max {
    double exact = -std::numeric_limits<double>::infinity();
    float naive = -std::numeric_limits<float>::infinity();
    bool sees = false;  // A key.
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
    Max max, top;  // Of the keys, and with the sink.
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
  Interval keys_;  // All that a row sees is among these.
  int64_t parts_ = 1;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_VERIFY_FORWARD_BATCH_H_
