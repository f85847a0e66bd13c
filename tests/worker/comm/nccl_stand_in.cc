#include "tests/worker/comm/nccl_stand_in.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace annulus {
namespace {

// Connects the ranks of all stand-ins of this process by id.
struct Meetings {
  Mutex mutex;
  int64_t next GUARDED_BY(mutex) = 0;
  std::map<std::string, std::weak_ptr<InProcessHub>> hubs GUARDED_BY(mutex);
};

Meetings& TheMeetings() {
  static auto* const meetings = new Meetings;
  return *meetings;
}

}  // namespace

struct NcclStandIn::Comm {
  NcclComm* where = nullptr;  // NCCL's threads read it.
  std::shared_ptr<InProcessHub> hub;
  std::unique_ptr<Communicator> inner;
  std::thread init, launch;
  std::atomic<bool> in_call{false};
  std::atomic<bool> aborted{false};
  // The first error of operations; and the remaining polls of the last call.
  std::atomic<NcclResult> error{kNcclSuccess};
  std::atomic<int> polls{0};
  std::atomic<bool> initializing{true}, launching{false};
  int groups = 0;

  // Keeps the first error.
  void Fail(NcclResult result) {
    NcclResult none = kNcclSuccess;
    error.compare_exchange_strong(none, result);
  }
  ~Comm() {
    if (init.joinable()) init.join();
    if (launch.joinable()) launch.join();
  }
};

namespace {

// Ends the process if two threads call one communicator at the same time.
template <typename Comm>
class OneCall {
 public:
  explicit OneCall(Comm* comm) : comm_(comm) {
    if (comm_->in_call.exchange(true)) std::abort();
  }
  ~OneCall() { comm_->in_call = false; }

 private:
  Comm* const comm_;
};

// The thread's open group.
struct OpenGroup {
  void* comm = nullptr;
  CudaStream stream = nullptr;
  std::vector<SendMessage> sends;
  std::vector<ReceiveMessage> receives;
};
thread_local OpenGroup open_group;
thread_local int depth = 0;

}  // namespace

NcclStandIn::~NcclStandIn() {
  MutexLock lock(&mutex_);
  for (const auto& [name, comm] : comms_) {
    comm->aborted = true;
    comm->inner->Abort();
  }
}

int NcclStandIn::group_depth() { return depth; }

int64_t NcclStandIn::live() const {
  MutexLock lock(&mutex_);
  return static_cast<int64_t>(comms_.size());
}

std::shared_ptr<NcclStandIn::Comm> NcclStandIn::Get(NcclComm comm) const {
  MutexLock lock(&mutex_);
  const auto found = comms_.find(comm);
  if (found == comms_.end()) std::abort();  // NCCL would crash too.
  return found->second;
}

std::shared_ptr<NcclStandIn::Comm> NcclStandIn::Take(NcclComm comm) {
  std::shared_ptr<Comm> taken = Get(comm);
  MutexLock lock(&mutex_);
  comms_.erase(comm);
  return taken;
}

std::string NcclStandIn::ErrorText(NcclResult result) { return absl::StrCat("error ", result); }

NcclResult NcclStandIn::GetUniqueId(std::string* id) {
  if (options_.id != kNcclSuccess) asked_ = true;
  Meetings& meetings = TheMeetings();
  MutexLock lock(&meetings.mutex);
  *id = absl::StrCat("id ", ++meetings.next);
  id->resize(kNcclIdBytes, '.');
  return options_.id;
}

NcclResult NcclStandIn::CommInit(NcclComm* comm, int32_t size, const std::string& id,
                                 int32_t rank) {
  asked_ = true;
  if (depth > 0) std::abort();
  if (options_.init != kNcclSuccess && !options_.init_leaves) return options_.init;
  auto made = std::make_shared<Comm>();
  made->where = comm;
  {
    Meetings& meetings = TheMeetings();
    MutexLock lock(&meetings.mutex);
    made->hub = meetings.hubs[id].lock();
    if (made->hub == nullptr) {
      made->hub =
          std::make_shared<InProcessHub>(InProcessHub::Options{size, absl::Microseconds(50), 11});
      meetings.hubs[id] = made->hub;
    }
  }
  made->inner = made->hub->MakeCommunicator(rank);
  made->polls = options_.polls;
  if (options_.init != kNcclSuccess) made->error = options_.init;
  if (options_.init_later != kNcclSuccess) made->error = options_.init_later;
  const std::string own = *made->inner->Bootstrap();
  std::vector<std::string> bootstraps;
  for (int32_t r = 0; r < size; ++r) {
    bootstraps.push_back(absl::StrCat(own.substr(0, own.rfind('/') + 1), r));
  }
  made->init = std::thread([self = made.get(), bootstraps] {
    const absl::Status status = self->inner->Connect(bootstraps, absl::InfiniteFuture());
    if (!status.ok()) self->Fail(kNcclRemoteError);
    self->initializing = false;
  });
  *comm = made.get();
  MutexLock lock(&mutex_);
  comms_[*comm] = std::move(made);
  return options_.init != kNcclSuccess ? options_.init : kNcclInProgress;
}

NcclResult NcclStandIn::AsyncError(NcclComm name, NcclResult* state) {
  const std::shared_ptr<Comm> comm = Get(name);
  const OneCall<Comm> call(comm.get());
  if (comm->error != kNcclSuccess) {
    *state = comm->error;
  } else if (comm->initializing || comm->launching || comm->polls > 0) {
    if (comm->polls > 0) --comm->polls;
    *state = kNcclInProgress;
  } else {
    *state = kNcclSuccess;
  }
  return kNcclSuccess;
}

NcclResult NcclStandIn::Finalize(NcclComm name) {
  const std::shared_ptr<Comm> comm = Get(name);
  const OneCall<Comm> call(comm.get());
  comm->polls = options_.polls;
  return kNcclInProgress;
}

NcclResult NcclStandIn::Destroy(NcclComm name) {
  if (options_.destroy != kNcclSuccess && options_.destroy != kNcclUnhandledCudaError) {
    if (options_.version >= 22400) ++depth;
    return options_.destroy;
  }
  const std::shared_ptr<Comm> comm = Take(name);
  const OneCall<Comm> call(comm.get());
  if (comm->polls > 0 || comm->initializing) std::abort();
  return options_.destroy;
}

NcclResult NcclStandIn::Abort(NcclComm name) {
  const std::shared_ptr<Comm> comm = Take(name);
  const OneCall<Comm> call(comm.get());
  if (*comm->where != name) std::abort();
  ++aborts_;
  comm->aborted = true;
  comm->inner->Abort();
  return kNcclSuccess;
}

NcclResult NcclStandIn::GroupStart() {
  if (depth++ == 0) open_group = OpenGroup();
  return kNcclSuccess;
}

NcclResult NcclStandIn::Send(NcclComm comm, const std::byte* data, int64_t bytes, int32_t peer,
                             CudaStream stream) {
  open_group.comm = comm;
  open_group.stream = stream;
  open_group.sends.push_back({peer, data, bytes});
  return kNcclSuccess;
}

NcclResult NcclStandIn::Receive(NcclComm comm, std::byte* data, int64_t bytes, int32_t peer,
                                CudaStream stream) {
  open_group.comm = comm;
  open_group.stream = stream;
  open_group.receives.push_back({peer, data, bytes});
  return kNcclSuccess;
}

void NcclStandIn::Note(const Comm& comm, const std::vector<SendMessage>& sends,
                       const std::vector<ReceiveMessage>& receives) {
  ++groups_;
  const int32_t rank = comm.inner->rank();
  MutexLock lock(&mutex_);
  for (const SendMessage& m : sends) sends_.emplace(rank, m.peer);
  for (const ReceiveMessage& m : receives) receives_.emplace(m.peer, rank);
}

NcclStandIn::Pairs NcclStandIn::sends() const {
  MutexLock lock(&mutex_);
  return sends_;
}

NcclStandIn::Pairs NcclStandIn::receives() const {
  MutexLock lock(&mutex_);
  return receives_;
}

NcclResult NcclStandIn::GroupEnd() {
  if (depth == 0) return kNcclInvalidUsage;
  if (--depth > 0) return kNcclSuccess;
  if (options_.group_end != kNcclSuccess) return options_.group_end;
  const OpenGroup group = std::exchange(open_group, OpenGroup());
  if (group.comm == nullptr) return kNcclSuccess;
  const std::shared_ptr<Comm> comm = Get(group.comm);
  const OneCall<Comm> call(comm.get());
  comm->polls = options_.polls;
  Note(*comm, group.sends, group.receives);
  const bool fails = options_.group > 0 && ++comm->groups >= options_.group;
  const NcclResult later = fails ? options_.group_later : kNcclSuccess;
  const auto work = [comm, group, later] {
    absl::Status status;
    if (later == kNcclSuccess) {
      status = comm->inner->Start(group.sends, group.receives);
      if (status.ok()) status = comm->inner->Join(absl::InfiniteFuture());
    }
    const NcclResult wrong = later != kNcclSuccess ? later : kNcclRemoteError;
    if (status.ok() && later == kNcclSuccess) return;
    if (wrong != kNcclInProgress) comm->Fail(wrong);
    // A kernel that waits for a peer ends only by the abort.
    while (!comm->aborted) std::this_thread::yield();
  };
  if (options_.launch_time > absl::ZeroDuration()) {
    if (comm->launch.joinable()) comm->launch.join();
    comm->launching = true;
    comm->launch = std::thread([this, self = comm.get(), stream = group.stream, work] {
      const absl::Time end = absl::Now() + options_.launch_time;
      while (absl::Now() < end) std::this_thread::yield();
      (void)options_.cuda->Launch(stream, work);
      self->launching = false;
    });
    return kNcclInProgress;
  }
  return options_.cuda->Launch(group.stream, work) == 0 ? kNcclInProgress : kNcclUnhandledCudaError;
}

}  // namespace annulus
