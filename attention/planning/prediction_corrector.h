#ifndef ANNULUS_ATTENTION_PLANNING_PREDICTION_CORRECTOR_H_
#define ANNULUS_ATTENTION_PLANNING_PREDICTION_CORRECTOR_H_

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "attention/spec/execution.h"
#include "attention/spec/spec.h"

namespace annulus {

// Corrects predictions of the cost model by measured runs. For each way to run a job, operation and
// length, it remembers the ratio of measured to predicted time of the latest runs. The ratio covers
// what the model does not have: the skew between ranks, waits for peers, and slow tasks that are
// short or share caches. A value without locks: plans are made from a copy.
class PredictionCorrector {
 public:
  // Records a run: predicted to take `predicted_seconds`, took `took_seconds`. `pace` is the factor
  // of the plan: assumed kernel times over those that workers measured. Ignored if either time is
  // not above 0.
  void Add(const Execution& way, Operation operation, double predicted_seconds, double took_seconds,
           double pace);

  // The factor for a prediction of `predicted_seconds`, from 1/4 to 4. It is the median ratio of
  // remembered runs of this way and about this pace, which took at most twice or half as long. If
  // there are too few, it is that of all ways on as many ranks, at most four times or a quarter as
  // long. If these are too few as well, it is 1.
  double FactorOf(const Execution& way, Operation operation, double predicted_seconds,
                  double pace) const;
  // The lowest value that FactorOf may return; at most 1.
  double Least() const;

 private:
  struct Of {
    int32_t world_size = 1;
    bool gradients = false;
    int32_t length = 0;  // The exponent of the predicted length to base 4.
    Strategy strategy = Strategy::kAuto;
    bool operator<(const Of& other) const { return Key() < other.Key(); }
    std::tuple<int32_t, bool, int32_t, Strategy> Key() const {
      return {world_size, gradients, length, strategy};
    }
  };
  struct Run {
    double predicted_seconds = 0;
    double ratio = 1;
    double pace = 1;
    int64_t number = 0;  // 0: empty.
  };
  static constexpr int kRemembered = 16;
  struct Latest {
    std::array<Run, kRemembered> runs;
    int next = 0;
  };
  static Of KindOf(const Execution& way, Operation operation, double predicted_seconds);
  bool Remembered(const Run& run) const;
  // Appends the ratios of remembered runs in `of` that match `like` in pace, and in length within a
  // factor of `reach`.
  void Append(const Of& of, const Run& like, double reach, std::vector<double>* ratios) const;

  std::map<Of, Latest> latest_;
  int64_t runs_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_PLANNING_PREDICTION_CORRECTOR_H_
