#ifndef ANNULUS_WORKER_EXECUTOR_PROGRAM_MEMO_H_
#define ANNULUS_WORKER_EXECUTOR_PROGRAM_MEMO_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/executor/program.h"

namespace annulus {

// Cache of the most recently used programs: a model sends the same small job again and again. Two
// requests are equal if their source bytes and all other inputs of the program are equal. Limits:
// kMaxPrograms programs; for each, kMaxKeyBytes of key, kMaxScheduleBytes of schedule and
// kMaxMaskBytes of masks by head and sequence. Not thread-safe.
class ProgramMemo {
 public:
  static constexpr size_t kMaxPrograms = 16;
  static constexpr size_t kMaxKeyBytes = size_t{4} << 10;
  static constexpr size_t kMaxScheduleBytes = size_t{64} << 10;
  static constexpr size_t kMaxMaskBytes = size_t{64} << 10;

  // Returns the cached program, or MakeProgram(request).
  absl::StatusOr<std::shared_ptr<const RankProgram>> ProgramOf(const ProgramRequest& request);

  size_t size() const { return kept_.size(); }

 private:
  struct Kept {
    std::string key;
    std::shared_ptr<const RankProgram> program;
  };
  std::vector<Kept> kept_;  // Least recently used first.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_EXECUTOR_PROGRAM_MEMO_H_
