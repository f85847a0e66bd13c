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

// How jobs keep to what the cost model predicts: of the latest runs of each way to run a job, of
// each operation and about as long, the time that they took over the predicted one. It says what
// the model cannot know of a cluster: how far apart ranks begin, what a wait for a peer costs, and
// how much slower tasks are that are short or share their caches. A value: plans are made from a
// copy.
class PredictionCorrector {
 public:
  // A run that was predicted to take `predicted_seconds` by kernels of `pace` (a plan's factor:
  // what it reckoned with over what workers measured) took `took_seconds`. Where either time is not
  // above 0, nothing is remembered.
  void Add(const Execution& way, Operation operation, double predicted_seconds, double took_seconds,
           double pace);

  // By which a prediction of `predicted_seconds` is multiplied: the median of what was remembered
  // of this way by about this pace, of runs at most twice or half as long; where that is too
  // little, of all ways on as many ranks, four times or a quarter as long; 1 where that is too
  // little too. 1/4 to 4.
  double FactorOf(const Execution& way, Operation operation, double predicted_seconds,
                  double pace) const;
  // The least that any FactorOf is, 1 at most.
  double Least() const;

 private:
  struct Of {
    int32_t world_size = 1;
    bool gradients = false;
    int32_t length = 0;  // Of the prediction, by powers of 4.
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
    int64_t number = 0;  // 0: none.
  };
  static constexpr int kRemembered = 16;
  struct Latest {
    std::array<Run, kRemembered> runs;
    int next = 0;
  };
  static Of KindOf(const Execution& way, Operation operation, double predicted_seconds);
  bool Remembered(const Run& run) const;
  // Of runs that are like `like` but for their ratio.
  void Append(const Of& of, const Run& like, double reach, std::vector<double>* ratios) const;

  std::map<Of, Latest> latest_;
  int64_t runs_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_PLANNING_PREDICTION_CORRECTOR_H_
