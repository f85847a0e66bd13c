#ifndef ANNULUS_WORKER_EXECUTOR_PROGRAM_MEMO_H_
#define ANNULUS_WORKER_EXECUTOR_PROGRAM_MEMO_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/executor/program.h"

namespace annulus {

// The programs of the latest requests: a model sends the same small job again and again. A request
// is the same when the bytes that it was read from are, and all else that a program is made from.
// At most kMaxPrograms, each made from at most kMaxKeyBytes, with at most kMaxScheduleBytes of
// schedule and kMaxMaskBytes of masks by head and sequence. One thread at a time.
class ProgramMemo {
 public:
  static constexpr size_t kMaxPrograms = 16;
  static constexpr size_t kMaxKeyBytes = size_t{4} << 10;
  static constexpr size_t kMaxScheduleBytes = size_t{64} << 10;
  static constexpr size_t kMaxMaskBytes = size_t{64} << 10;

  // MakeProgram(request), or what that was.
  absl::StatusOr<std::shared_ptr<const RankProgram>> ProgramOf(const ProgramRequest& request);

  size_t size() const { return kept_.size(); }

 private:
  struct Kept {
    std::string key;
    std::shared_ptr<const RankProgram> program;
  };
  std::vector<Kept> kept_;  // The latest asked for last.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_EXECUTOR_PROGRAM_MEMO_H_
