#include "worker/worker.h"

#include <unistd.h>

#include <map>
#include <optional>
#include <random>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "attention/schedule/schedule.h"
#include "base/error.h"
#include "base/exit_in_time.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "base/version.h"
#include "proto/wire/convert.h"
#include "proto/wire/rates.h"
#include "proto/wire/ticket.h"
#include "worker/agent/agent.h"
#include "worker/agent/control_link.h"
#include "worker/data_plane_server.h"
#include "worker/lane/lane.h"
#include "worker/lane/solo_lane.h"
#include "worker/lane/watchdog.h"
#include "worker/shard_opener.h"
#include "worker/watched_lanes.h"

namespace annulus {
namespace {

using control::v1::WorkerEvent;

constexpr int kStuckExitCode = 70;
constexpr int kDeviceLostExitCode = 71;
constexpr int kWornExitCode = 72;

std::string RandomBytes(size_t count) {
  std::random_device device;
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(device());
  return bytes;
}

// The device fault in an event; nullptr if it has none.
const v1::Error* DeviceFaultIn(const WorkerEvent& fact) {
  for (const v1::Error* error : {&fact.shard_failed().error(), &fact.group_broken().cause(),
                                 &fact.group_connected().error()}) {
    if (error->reason() == kReasonDeviceFault) return error;
  }
  return nullptr;
}

[[noreturn]] void Die(absl::string_view job, const std::string& record) {
  ExitInTime(kStuckExitCode, 1);  // Ends the process even if logging blocks.
  LogError(job, "flight record: ", record, "; ending the process");
  _exit(kStuckExitCode);
}

}  // namespace

// Executes the agent's actions in its turns, and passes reports to it. Members are destroyed in
// reverse order, so objects that report to the agent go before it.
class Worker::Impl {
 public:
  explicit Impl(WorkerOptions options)
      : options_(std::move(options)),
        staging_(MemoryBudget::Create("staging", options_.staging_bytes)),
        device_(MemoryBudget::Create("device", options_.device_bytes)),
        pool_(PagePool::Create(staging_, options_.engine.take_staging)) {}
  ~Impl();

  absl::Status Start();
  void Terminate(Terminated event = {}) {
    leaving_ = true;
    agent_->Post(event);
  }
  const std::string& data_endpoint() const { return data_endpoint_; }

 private:
  absl::Status StartLanes();
  absl::Status StartDataPlane();
  void StartAgent();
  void StartWatchdog();
  control::v1::Register Self() const;

  void Perform(const Connect& connect) { link_->Connect(connect.stream); }
  void Perform(const Disconnect&) { link_->Drop(); }
  void Perform(const Send& action) { link_->Send(action.event); }
  void Perform(const OpenShard& action);
  void Perform(const PrepareShard& action) { lane_->Prepare(*WorkOf(action.id)); }
  void Perform(const CloseShard& action);
  void Perform(const CommandGroup& action) { lane_->Command(action.command); }
  void Perform(const TakeIdentity& action) { board_->SetIdentity(action.identity); }
  void Perform(const SetReady& action) { server_->SetReady(action.ready); }
  void Perform(const Exit& action);

  // Called in the agent's turn or on the opener's thread.
  void OpenNow(const OpenShard& action);
  void CloseNow(const ShardId& id, const absl::Status& why);
  std::optional<ShardWork> WorkOf(const ShardId& id) EXCLUDES(works_mutex_);

  // Any thread. Effects inside the worker do not wait for the agent. The event is queued in the
  // agent's mailbox first, which keeps events in order.
  void Report(WorkerEvent fact);
  void LogEndOfStream(const absl::Status& status) const;
  void LeaveIfWorn() EXCLUDES(works_mutex_);

  const WorkerOptions options_;
  std::string data_endpoint_;
  const std::shared_ptr<MemoryBudget> staging_;
  const std::shared_ptr<MemoryBudget> device_;
  const std::shared_ptr<PagePool> pool_;
  // Shared, because gRPC may briefly hold the last reference to a shard after all else is
  // destroyed.
  std::shared_ptr<Agent> agent_;
  std::unique_ptr<ShardBoard> board_;
  std::unique_ptr<CopyPool> copies_;
  std::unique_ptr<Lane> lane_;
  std::unique_ptr<SoloLane> solo_;
  Mutex works_mutex_;
  std::map<ShardId, ShardWork> works_ GUARDED_BY(works_mutex_);
  std::unique_ptr<DataPlaneServer> server_;
  std::unique_ptr<AsyncShardOpener> opener_ = std::make_unique<AsyncShardOpener>();
  std::unique_ptr<ControlLink> link_;
  std::atomic<bool> device_lost_{false};
  std::atomic<bool> leaving_{false};  // True once the worker has been asked to exit.
  std::atomic<bool> exited_{false};   // True once the worker has no shards and exits.
  bool worn_ = false;                 // Used only in the agent's turn.
  std::unique_ptr<Watchdog> watchdog_;
};

absl::Status Worker::Impl::Start() {
  // The agent is created first, because the others report to it. It starts last, because it
  // commands the others.
  StartAgent();
  RETURN_IF_ERROR(StartLanes());
  RETURN_IF_ERROR(StartDataPlane());
  ControlLink::Options link;
  link.coordinator = options_.coordinator;
  link.credentials = grpc::InsecureChannelCredentials();
  link.on_command = [this](int64_t stream, control::v1::WorkerCommand command) {
    agent_->Post(CommandArrived{stream, std::move(command)});
  };
  link.on_closed = [this](int64_t stream, absl::Status status) {
    LogEndOfStream(status);
    agent_->Post(LinkClosed{stream, std::move(status)});
  };
  link_ = std::make_unique<ControlLink>(std::move(link));
  StartWatchdog();
  agent_->Start();
  return absl::OkStatus();
}

// A lost coordinator is a warning. It is not one if the coordinator announced its shutdown, or if
// this worker exits.
void Worker::Impl::LogEndOfStream(const absl::Status& status) const {
  const bool expected =
      DetailOf(status).reason == "DRAINING" || exited_ || (leaving_ && status.ok());
  LogAt(expected ? LogLevel::kInfo : LogLevel::kWarning, kNoJob, "the control stream to ",
        options_.coordinator, " has ended",
        status.ok()
            ? ""
            : absl::StrCat(": ", absl::StatusCodeToString(status.code()), ": ", status.message()));
}

Worker::Impl::~Impl() {
  exited_ = true;
  watchdog_.reset();
  if (agent_ != nullptr) agent_->Stop();
  opener_.reset();
  // Closed here: an action may run in a callback of this stream.
  if (link_ != nullptr) link_->Close(absl::Seconds(1));
  if (board_ != nullptr) board_->Shutdown(LeavingError());
  link_.reset();
  server_.reset();
  copies_.reset();  // Must end before the solo lane: a copy that completes a shard starts its run.
}

void Worker::Impl::Report(WorkerEvent fact) {
  agent_->Enqueue(Reported{fact});
  if (fact.has_shard_complete()) solo_->Run(IdOf(fact.shard_complete().shard()));
  if (fact.has_output_ready()) {
    board_->Publish(IdOf(fact.output_ready().shard()), fact.output_ready().report());
  }
  agent_->Wake();
  // The coordinator has the reason now. A new process may find the device working.
  if (const v1::Error* fault = DeviceFaultIn(fact);
      fault != nullptr && !device_lost_.exchange(true)) {
    LogError(kNoJob, "the device is lost: ", fault->message(), "; the worker exits");
    options_.exit(kDeviceLostExitCode);
  }
}

absl::Status Worker::Impl::StartLanes() {
  Lane::Options lane;
  lane.engine = options_.engine;
  lane.device_budget = device_;
  lane.report = [this](WorkerEvent fact) { Report(std::move(fact)); };
  lane.now = SteadyNow;
  lane.step_timeout = options_.step_timeout;
  ASSIGN_OR_RETURN(lane_, Lane::Create(std::move(lane)));
  SoloLane::Options solo;
  solo.engine = options_.engine;
  solo.device_budget = device_;
  solo.report = [this](WorkerEvent fact) { Report(std::move(fact)); };
  solo.rates = options_.rates.kernels;
  ASSIGN_OR_RETURN(solo_, SoloLane::Create(std::move(solo)));
  return absl::OkStatus();
}

absl::Status Worker::Impl::StartDataPlane() {
  ShardBoard::Options board;
  board.now = SteadyNow;
  board.wall = absl::Now;
  board.report = [this](WorkerEvent fact) { Report(std::move(fact)); };
  board.rate = options_.rate;
  board_ = std::make_unique<ShardBoard>(std::move(board));
  copies_ = std::make_unique<CopyPool>(options_.copy_threads);
  ASSIGN_OR_RETURN(server_, DataPlaneServer::Start({options_.data_address, options_.health_address,
                                                    board_.get(), copies_.get()}));
  const std::string& listens = options_.data_address;
  const std::string host = options_.advertise_host.empty() ? listens.substr(0, listens.rfind(':'))
                                                           : options_.advertise_host;
  data_endpoint_ = absl::StrCat(
      host, ":", options_.advertise_port != 0 ? options_.advertise_port : server_->port());
  return absl::OkStatus();
}

void Worker::Impl::StartAgent() {
  Agent::Options agent;
  agent.now = SteadyNow;
  agent.state.new_identity = [] {
    return Identity{absl::BytesToHexString(RandomBytes(16)), RandomBytes(kTicketKeyBytes)};
  };
  agent.state.self = [this] { return Self(); };
  agent.state.link.random = [engine = std::make_shared<std::mt19937>(std::random_device()())] {
    return std::uniform_real_distribution<double>(0, 1)(*engine);
  };
  agent.state.drain_timeout = options_.drain_timeout;
  agent.perform = [this](const AgentAction& action) {
    std::visit([this](const auto& typed) { Perform(typed); }, action);
  };
  agent.housekeeping = [this] {
    board_->Tick();
    LeaveIfWorn();
  };
  agent.overflow = [] { Die(kNoJob, "the agent's mailbox is full"); };
  agent_ = std::make_shared<Agent>(std::move(agent));
}

void Worker::Impl::StartWatchdog() {
  Watchdog::Options watchdog;
  watchdog.budgets.stall = options_.stall_timeout;
  watchdog.budgets.abort = options_.abort_timeout;
  watchdog.now = SteadyNow;
  watchdog.stuck = Die;
  watchdog.lanes = WatchedLanes(lane_.get(), solo_.get(), agent_.get());
  watchdog_ = std::make_unique<Watchdog>(std::move(watchdog));
}

control::v1::Register Worker::Impl::Self() const {
  control::v1::Register self;
  self.set_slot(options_.slot);
  self.set_locality(options_.locality);
  self.set_data_endpoint(data_endpoint_);
  self.set_backend(options_.engine.description);
  self.set_arithmetic(options_.engine.arithmetic);
  self.set_staging_limit_bytes(options_.staging_bytes);
  self.set_device_limit_bytes(options_.device_bytes);
  *self.mutable_rates() = RatesToProto(options_.rates);
  self.set_schedule_version(kScheduleVersion);
  self.set_protocol_version(control::v1::PROTOCOL_VERSION_CURRENT);
  self.set_version(kVersion);
  self.set_device_kind(options_.engine.device_kind == DeviceKind::kCuda
                           ? control::v1::DEVICE_KIND_CUDA
                           : control::v1::DEVICE_KIND_CPU);
  for (const Capability& lack : options_.engine.lacks) {
    control::v1::Lack* said = self.add_lacks();
    said->set_feature(lack.feature);
    said->set_why_not(lack.why_not);
  }
  return self;
}

std::optional<ShardWork> Worker::Impl::WorkOf(const ShardId& id) {
  MutexLock lock(&works_mutex_);
  const auto work = works_.find(id);
  return work == works_.end() ? std::nullopt : std::make_optional(work->second);
}

void Worker::Impl::Perform(const OpenShard& action) {
  if (!LaysOutLong(action.reserve)) return OpenNow(action);
  const ShardId id = IdOf(action.reserve.shard());
  opener_->Begin(
      id, [this, action] { OpenNow(action); },
      [this, id](const absl::Status& why) { CloseNow(id, why); });
}

void Worker::Impl::OpenNow(const OpenShard& action) {
  const ShardId id = IdOf(action.reserve.shard());
  std::weak_ptr<Agent> agent = agent_;
  ShardResources means;
  means.pool = pool_.get();
  means.lacks = options_.engine.lacks;
  means.on_freed = [agent, id] {
    if (const auto alive = agent.lock(); alive != nullptr) alive->PostAside(ShardFreed{id});
  };
  const std::optional<ShardWork> lender = WorkOf(IdOf(action.reserve.lender()));
  if (lender) means.lender = &*lender;
  absl::StatusOr<ShardWork> work = OpenReserve(action.reserve, std::move(means));
  if (!work.ok()) {
    LogWarning(id.job_id, "cannot reserve rank ", id.rank, ": ", ErrorText(work.status()));
    return agent_->Post(Reported{ShardFailedEvent(id, work.status())});
  }
  LogDebug(id.job_id, "reserved rank ", id.rank, " of attempt ", id.attempt);
  {
    MutexLock lock(&works_mutex_);
    works_[id] = *work;
  }
  ShardBoard::Times times{DurationFromProto(action.reserve.upload_time()), std::nullopt};
  if (action.reserve.has_download_time()) {
    times.download = DurationFromProto(action.reserve.download_time());
  }
  if (action.reserve.solo()) solo_->Add(*work);
  board_->Open(id, action.reserve.principal(), work->staged, times);
}

void Worker::Impl::Perform(const CloseShard& action) {
  if (!opener_->Close(action.id, action.why)) CloseNow(action.id, action.why);
}

void Worker::Impl::CloseNow(const ShardId& id, const absl::Status& why) {
  board_->Close(id, why);
  solo_->Release(id);
  lane_->Release(id);
  std::map<ShardId, ShardWork>::node_type work;  // Destroyed without the lock.
  {
    MutexLock lock(&works_mutex_);
    work = works_.extract(id);
  }
  // Nothing was reserved, so on_freed will not be called.
  if (work.empty()) agent_->Post(ShardFreed{id});
}

// Waits until no shard is left: otherwise kept states would be lost and jobs would fail.
void Worker::Impl::LeaveIfWorn() {
  const std::string why = options_.engine.worn ? options_.engine.worn() : "";
  if (leaving_ || why.empty()) return;
  {
    MutexLock lock(&works_mutex_);
    if (!works_.empty()) return;
  }
  LogWarning(kNoJob, why, "; the worker exits, so that a new process can replace it");
  worn_ = true;
  Terminate({/*asked=*/false});
}

void Worker::Impl::Perform(const Exit& action) {
  exited_ = true;
  LogInfo(kNoJob, "leaving: ", action.why);
  options_.exit(worn_ && action.code == 0 ? kWornExitCode : action.code);
}

absl::StatusOr<std::unique_ptr<Worker>> Worker::Start(WorkerOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Worker>(new Worker(std::move(impl)));
}

Worker::Worker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Worker::~Worker() = default;

void Worker::Terminate() { impl_->Terminate(); }
const std::string& Worker::data_endpoint() const { return impl_->data_endpoint(); }

}  // namespace annulus
