#include "client/cli/verify/row_norms.h"

#include "client/cli/verify/all_threads.h"

namespace annulus {
namespace {

// Cells that share the reading of keys; runs in memory at once; the maximum number of parts into
// which the keys of a run are cut, and the minimum number of blocks of a part.
constexpr int64_t kCellsOfRun = 64, kRunsAtOnce = 64, kMaxParts = 16, kBlocksOfPart = 16;

// Consecutive cells, and the keys that any of them sees.
class Run {
 public:
  Run(const JobRows& job, const RowCell* cells, int64_t count, bool naive)
      : job_(job),
        naive_(naive),
        kv_head_(job.KvHeadOf(cells[0].head)),
        keys_{job.spec().kv_rows(), 0} {
    for (int64_t n = 0; n < count; ++n) {
      queries_.push_back(job.Query(cells[n].head, cells[n].row));
      for (const Interval& seen : queries_.back().seen) {
        keys_ = {std::min(keys_.begin, seen.begin), std::max(keys_.end, seen.end)};
      }
    }
    const int64_t parts = std::clamp<int64_t>(BlocksOf(keys_) / kBlocksOfPart, 1, kMaxParts);
    parts_.assign(parts, std::vector<RowNorm>(count));
  }

  int64_t parts() const { return static_cast<int64_t>(parts_.size()); }

  void Take(int64_t part) {
    KeyBlock block;
    VisibleKeys seen;
    std::vector<double> exact;
    std::vector<float> naive;
    const int64_t blocks = BlocksOf(keys_), begin = blocks * part / parts();
    for (int64_t n = begin; n < blocks * (part + 1) / parts(); ++n) {
      block.rows = {};
      for (size_t i = 0; i < queries_.size(); ++i) {
        if (!SeesSome(queries_[i], BlockOf(keys_, n))) continue;
        if (block.rows.length() == 0) job_.LoadKeys(kv_head_, BlockOf(keys_, n), &block);
        job_.Find(queries_[i], block, &seen);
        ScoresOf<double>(queries_[i], block, seen, &exact);
        parts_[part][i].exact.Add(exact);
        if (!naive_) continue;
        // Another order than in ScoresOf(): a real backward pass also sums the products in its own
        // order.
        ScoresOf<float>(queries_[i], block, seen, &naive, Order{1, 2});
        parts_[part][i].naive.Add(naive);
      }
    }
  }

  void End(std::vector<RowNorm>* norms) const {
    for (size_t i = 0; i < queries_.size(); ++i) {
      RowNorm norm;
      for (const std::vector<RowNorm>& part : parts_) {
        norm.exact.Merge(part[i].exact);
        norm.naive.Merge(part[i].naive);
      }
      if (queries_[i].rule.sink.has_value()) {
        norm.exact.Add({*queries_[i].rule.sink});
        norm.naive.Add({static_cast<float>(*queries_[i].rule.sink)});
      }
      norms->push_back(norm);
    }
  }

 private:
  static bool SeesSome(const QueryRow& query, Interval keys) {
    return std::any_of(query.seen.begin(), query.seen.end(),
                       [keys](const Interval& seen) { return Intersect(seen, keys).length() > 0; });
  }

  const JobRows& job_;
  const bool naive_;
  const int32_t kv_head_;
  Interval keys_;  // The smallest interval with all visible keys of the rows.
  std::vector<QueryRow> queries_;
  std::vector<std::vector<RowNorm>> parts_;
};

// The limit of |LSE| for NaiveWeightOf(): there half an ulp of an fp32 number is 1/32.
constexpr float kLargeLse = 0x1p20f;

struct Part {
  Run* run = nullptr;
  int64_t part = 0;
};

}  // namespace

float RowNorm::NaiveWeightOf(float score) const {
  const float lse = naive.Lse();
  if (std::abs(lse) <= kLargeLse) return std::exp(score - lse);
  const float weight = naive.WeightOf(score);
  // In another order a score may exceed the row's maximum by an ulp.
  return weight > 1 ? 1 : weight;
}

std::vector<RowNorm> NormsOf(const JobRows& job, const std::vector<RowCell>& cells, bool naive) {
  std::vector<RowNorm> norms;
  const auto count = static_cast<int64_t>(cells.size());
  for (int64_t begin = 0; begin < count; begin += kCellsOfRun * kRunsAtOnce) {
    std::vector<Run> runs;
    const int64_t end = std::min(begin + kCellsOfRun * kRunsAtOnce, count);
    for (int64_t n = begin; n < end; n += kCellsOfRun) {
      runs.emplace_back(job, &cells[n], std::min(kCellsOfRun, end - n), naive);
    }
    std::vector<Part> parts;
    for (Run& run : runs) {
      for (int64_t part = 0; part < run.parts(); ++part) parts.push_back({&run, part});
    }
    ForEachOnAllThreads(static_cast<int64_t>(parts.size()),
                        [&](int64_t n) { parts[n].run->Take(parts[n].part); });
    for (const Run& run : runs) run.End(&norms);
  }
  return norms;
}

}  // namespace annulus
