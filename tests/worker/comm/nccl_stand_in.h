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

// A fake NCCL whose ranks are communicators of this process on streams of a CudaStandIn. It
// imitates the difficult behaviour of NCCL: calls stay in progress for a while; a group becomes one
// operation on its stream; errors appear only when polled; and operations with a lost peer stay on
// the stream until the abort. Plays configured failures. It is as thread-safe as NCCL. Ends the
// process on misuse that NCCL would not survive: two simultaneous calls on one communicator, a
// communicator begun inside a group, an abort after the communicator variable has moved.
class NcclStandIn final : public NcclApi {
 public:
  struct Options {
    CudaStandIn* cuda = nullptr;
    int version = 22809;
    // The number of state polls for which a call stays in progress.
    int polls = 3;
    // Minimum time for which a group is in progress before it is on its stream.
    absl::Duration launch_time = absl::ZeroDuration();
    // Results of these calls, immediate or later by AsyncError. 0: success.
    NcclResult id = 0, init = 0, init_later = 0, group_end = 0;
    // True if CommInit creates a communicator even if `init` is an error.
    bool init_leaves = false;
    // The result of Destroy. After an error the communicator remains and, since NCCL 2.24, the
    // thread is in a group; after a CUDA error neither is the case.
    NcclResult destroy = 0;
    // From this group on (of any rank; 1 is a rank's greeting), groups end with this error, or
    // never if it is kNcclInProgress.
    int group = 0;
    NcclResult group_later = 0;
    // NCCL's last error text, once a communicator is requested or an id cannot be made; and its
    // text before.
    std::string words = "the stand-in's last word", words_before;
  };
  explicit NcclStandIn(const Options& options) : options_(options) {}
  ~NcclStandIn() override;

  // The number of groups that this thread is in, of any stand-in.
  static int group_depth();
  // Communicators that have not been freed; the number of aborts.
  int64_t live() const;
  int64_t aborts() const { return aborts_; }
  // Groups of calls that any rank has completed successfully, and their (source, target) pairs of
  // sends and receives.
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
