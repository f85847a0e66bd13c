#ifndef ANNULUS_TESTS_WORKER_COMM_NCCL_STAND_IN_H_
#define ANNULUS_TESTS_WORKER_COMM_NCCL_STAND_IN_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "tests/worker/comm/in_process.h"
#include "tests/worker/device/cuda_stand_in.h"
#include "worker/comm/nccl_api.h"

namespace annulus {

// NCCL whose ranks are communicators of this process on streams of a CudaStandIn. It behaves as
// the real one where that is awkward: calls are in progress for a while, a group becomes one piece
// of work on its stream, errors show only to those who ask, and what a lost peer leaves hanging
// stays on the stream until the abort. It plays the failures that it is told of. As thread-safe as
// NCCL; what NCCL would not survive ends the process: two calls about one communicator at once, a
// communicator that is begun in a group, an abort whose communicator is no longer where it was put.
class NcclStandIn final : public NcclApi {
 public:
  struct Options {
    CudaStandIn* cuda = nullptr;
    int version = 22809;
    // So many questions for its state find a call in progress.
    int polls = 3;
    // So long a group is in progress at least, and only then on its stream.
    absl::Duration launch_time = absl::ZeroDuration();
    // What these answer at once, or later by AsyncError; 0: nothing goes wrong.
    NcclResult id = 0, init = 0, init_later = 0, group_end = 0;
    // Whether there is a communicator all the same where `init` is an error.
    bool init_leaves = false;
    // What Destroy answers: an error leaves the communicator and, since NCCL 2.24, the thread in a
    // group; but after CUDA's own there is neither.
    NcclResult destroy = 0;
    // From this group on (the first is 1, a rank's greeting), groups of any rank: end with this
    // error, or, where it is kNcclInProgress, never end.
    int group = 0;
    NcclResult group_later = 0;
    // NCCL's last words, from when a communicator is asked for, or an id is not made, on; and what
    // they were before.
    std::string words = "the stand-in's last word", words_before;
  };
  explicit NcclStandIn(const Options& options) : options_(options) {}
  ~NcclStandIn() override;

  // Groups in which this thread is, of any stand-in's.
  static int group_depth();
  // Communicators that have not been freed, and how many were aborted.
  int64_t live() const;
  int64_t aborts() const { return aborts_; }
  // Groups of calls that any rank has ended well, and between whom: the (source, target) pairs of
  // sends and of receives.
  using Pairs = std::set<std::pair<int32_t, int32_t>>;
  int64_t groups() const { return groups_; }
  Pairs sends() const;
  Pairs receives() const;

  int Version() override { return options_.version; }
  std::string ErrorText(NcclResult result) override;
  std::string LastError(NcclComm) override {
    return asked_ ? options_.words : options_.words_before;
  }
  NcclResult GetUniqueId(std::string* id) override;
  NcclResult CommInit(NcclComm* comm, int32_t size, const std::string& id, int32_t rank) override;
  NcclResult AsyncError(NcclComm comm, NcclResult* state) override;
  NcclResult Finalize(NcclComm comm) override;
  NcclResult Destroy(NcclComm comm) override;
  NcclResult Abort(NcclComm comm) override;
  NcclResult GroupStart() override;
  NcclResult GroupEnd() override;
  NcclResult Send(NcclComm comm, const std::byte* data, int64_t bytes, int32_t peer,
                  CudaStream stream) override;
  NcclResult Receive(NcclComm comm, std::byte* data, int64_t bytes, int32_t peer,
                     CudaStream stream) override;

 private:
  struct Comm;

  std::shared_ptr<Comm> Get(NcclComm comm) const;
  std::shared_ptr<Comm> Take(NcclComm comm);
  void Note(const Comm& comm, const std::vector<SendMessage>& sends,
            const std::vector<ReceiveMessage>& receives);

  const Options options_;
  mutable Mutex mutex_;
  std::map<NcclComm, std::shared_ptr<Comm>> comms_ GUARDED_BY(mutex_);
  std::atomic<bool> asked_{false};
  std::atomic<int64_t> aborts_{0}, groups_{0};
  Pairs sends_ GUARDED_BY(mutex_), receives_ GUARDED_BY(mutex_);
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_COMM_NCCL_STAND_IN_H_
