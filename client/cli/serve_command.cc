// annulus serve: runs a coordinator and workers on this machine until Ctrl-C.
#include <signal.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <iostream>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/command_line.h"
#include "base/cpu_list.h"
#include "base/device_name.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "client/cli/commands.h"
#include "client/cli/interrupts.h"
#include "client/cli/local/cgroup_memory.h"
#include "client/cli/local/child_process.h"
#include "client/cli/report.h"
#include "client/client.h"

namespace annulus {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(20);
constexpr absl::Duration kCoordinatorEnd = absl::Seconds(5);
constexpr absl::Duration kWorkerDrain = absl::Seconds(1);
constexpr absl::Duration kWorkerEnd = absl::Seconds(10);
// The limits of annulus-worker.
constexpr Range<int64_t> kPoolBytes = {int64_t{1} << 20, int64_t{1} << 40};

struct Flags {
  std::string address = "127.0.0.1:8001";
  int64_t workers = 2;
  std::string device = "cpu";
  int64_t threads = 0;
  bool pin = false;
  int64_t staging_bytes = 0;
  int64_t device_bytes = 0;
  absl::Duration ready_timeout = absl::Minutes(1);
  absl::Duration drain_grace = absl::Seconds(10);
  std::vector<std::string> coordinator_flags;
  std::vector<std::string> worker_flags;
  std::string log_level = "info";
  std::string log_format = "text";
};

// The default size of each of a worker's two pools: its share of a quarter of the memory that this
// process may use, 64 MiB to 4 GiB.
int64_t PoolBytes(int64_t workers) {
  struct sysinfo info = {};
  sysinfo(&info);
  const int64_t memory =
      std::min(static_cast<int64_t>(info.totalram) * info.mem_unit, CgroupMemoryBytes("/"));
  return std::clamp(memory / 4 / workers, int64_t{64} << 20, int64_t{4} << 30);
}

// The number of kernel threads of each worker.
int64_t ThreadsOf(const Flags& flags) {
  if (flags.threads > 0) return flags.threads;
  return std::max<int64_t>(1, AllowedCpuCount() / flags.workers);
}

// Each worker has its own GPU: the number of the first one plus the worker's number.
std::string DeviceOf(const std::string& device, int64_t worker) {
  const absl::StatusOr<int> first = GpuNumber(device);
  return first.ok() ? absl::StrCat("cuda:", *first + worker) : device;
}

// A terminal's hangup sends SIGHUP twice, by the shell and by the kernel, so a second SIGHUP does
// not end the wait.
bool AsksForEndAtOnce(int number) { return number == SIGINT || number == SIGTERM; }
bool AsksForEnd(int number) { return AsksForEndAtOnce(number) || number == SIGHUP; }

// The value of "name=value" in a line of words.
std::string ValueOf(const std::string& line, const std::string& name) {
  for (absl::string_view word : absl::StrSplit(line, ' ')) {
    if (absl::StartsWith(word, absl::StrCat(name, "=")))
      return std::string(word.substr(name.size() + 1));
  }
  return "";
}

class Service {
 public:
  explicit Service(const Flags& flags) : flags_(flags) {
    // The parent process may have left SIGCHLD ignored. Then the end of a child would not be
    // signalled.
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&signals_);
    for (int number : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&signals_, number);
    if (!IsIgnored(SIGHUP)) sigaddset(&signals_, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals_, nullptr);
  }

  int Run() {
    absl::Status status = Start();
    if (status.ok()) status = AwaitReady();
    if (status.ok()) {
      ready_ = true;
      std::cout << "ready " << address_ << " workers=" << flags_.workers << std::endl;
      status = Watch();
    }
    const bool good = status.ok() || stopping_;
    const int code = good ? kExitOk : Report(status);
    return Stop() || code != kExitOk ? code : kExitFailed;
  }

 private:
  absl::Status Start();
  absl::Status StartWorker(int64_t index);
  absl::Status AwaitReady();
  absl::Status Watch();
  absl::Status TakeSignal(absl::Duration wait);
  absl::Status CheckChildren();
  // Returns UNAVAILABLE, and stores the exit code for Report().
  absl::Status Ended(const std::string& name, const ChildProcess& child);
  // Prints the error and returns the exit code.
  int Report(const absl::Status& status) const;
  // Ends all programs. True if every program that was ready ended well on request; prints those
  // that did not.
  bool Stop();
  // Waits until all children have ended, the time is up, or a second Ctrl-C comes. True if they
  // have ended.
  bool AwaitEnd(const std::vector<ChildProcess*>& children, absl::Duration wait);
  // For a child that had `wait` to end. True if it ended with exit code 0; else prints why not.
  bool EndedWell(const std::string& name, ChildProcess* child, absl::Duration wait);

  const Flags& flags_;
  sigset_t signals_;
  bool stopping_ = false;
  bool hurried_ = false;  // True after a second Ctrl-C.
  bool ready_ = false;
  std::optional<int> child_code_;  // The exit code of the last child that ended.
  std::string address_, control_address_;
  ChildProcess coordinator_;
  std::vector<ChildProcess> workers_;
  std::vector<bool> mourned_;
};

absl::Status Service::Start() {
  std::vector<std::string> arguments = {FindProgram("annulus-coordinator"),
                                        "--address",
                                        flags_.address,
                                        "--control-address",
                                        "127.0.0.1:0",
                                        "--drain-grace",
                                        absl::FormatDuration(flags_.drain_grace),
                                        "--log-level",
                                        flags_.log_level,
                                        "--log-format",
                                        flags_.log_format};
  arguments.insert(arguments.end(), flags_.coordinator_flags.begin(),
                   flags_.coordinator_flags.end());
  ASSIGN_OR_RETURN(coordinator_, ChildProcess::Start(arguments, /*pipe_output=*/true));
  const absl::StatusOr<std::string> line =
      coordinator_.ReadLine(SteadyNow() + flags_.ready_timeout);
  if (absl::IsUnavailable(line.status()) && AwaitEnd({&coordinator_}, kCoordinatorEnd)) {
    return Ended("the coordinator", coordinator_);
  }
  if (!line.ok()) {
    return absl::UnavailableError(
        absl::StrCat("the coordinator did not start: ", line.status().message()));
  }
  address_ = ValueOf(*line, "address");
  control_address_ = ValueOf(*line, "control-address");
  if (address_.empty() || control_address_.empty()) {
    return absl::InternalError(
        absl::StrCat("unexpected first line of the coordinator: '", *line, "'"));
  }
  for (int64_t i = 0; i < flags_.workers; ++i) RETURN_IF_ERROR(StartWorker(i));
  mourned_.assign(workers_.size(), false);
  return absl::OkStatus();
}

absl::Status Service::StartWorker(int64_t index) {
  std::string host = address_.substr(0, address_.rfind(':'));
  if (IsEveryAddress(host)) host = "127.0.0.1";
  const int64_t threads = ThreadsOf(flags_);
  const int64_t pool = PoolBytes(flags_.workers);
  std::vector<std::string> arguments = {
      FindProgram("annulus-worker"),
      "--coordinator",
      control_address_,
      "--slot",
      absl::StrCat("worker-", index),
      "--data-address",
      absl::StrCat(host, ":0"),
      "--threads",
      absl::StrCat(threads),
      "--staging-bytes",
      absl::StrCat(flags_.staging_bytes > 0 ? flags_.staging_bytes : pool),
      "--device-bytes",
      absl::StrCat(flags_.device_bytes > 0 ? flags_.device_bytes : pool),
      "--device",
      DeviceOf(flags_.device, index),
      "--log-level",
      flags_.log_level,
      "--log-format",
      flags_.log_format};
  if (flags_.pin) {
    const std::vector<int> cpus = AllowedCpus();
    const auto first = cpus.begin() + index * threads;
    arguments.insert(arguments.end(), {"--cpus", CpuListText({first, first + threads})});
  }
  arguments.insert(arguments.end(), flags_.worker_flags.begin(), flags_.worker_flags.end());
  ASSIGN_OR_RETURN(ChildProcess worker, ChildProcess::Start(arguments, /*pipe_output=*/false));
  workers_.push_back(std::move(worker));
  return absl::OkStatus();
}

absl::Status Service::AwaitReady() {
  ClientOptions options;
  options.address = address_;
  Client client(options);
  const absl::Time deadline = SteadyNow() + flags_.ready_timeout;
  while (SteadyNow() < deadline) {
    const absl::StatusOr<v1::ServerInfo> info = client.GetServerInfo(absl::Seconds(5));
    if (info.ok() && info->ready()) {
      const auto ready = std::count_if(
          info->workers().begin(), info->workers().end(),
          [](const auto& worker) { return worker.state() == v1::WorkerInfo::STATE_READY; });
      const bool groups = std::all_of(info->groups().begin(), info->groups().end(),
                                      [](const auto& group) { return group.ready(); });
      if (ready >= flags_.workers && groups) return absl::OkStatus();
    }
    RETURN_IF_ERROR(TakeSignal(kPoll));
  }
  return absl::DeadlineExceededError(
      absl::StrCat("not all workers were ready in ", absl::FormatDuration(flags_.ready_timeout)));
}

absl::Status Service::Watch() {
  for (;;) RETURN_IF_ERROR(TakeSignal(absl::Hours(1)));
}

absl::Status Service::TakeSignal(absl::Duration wait) {
  const timespec time = absl::ToTimespec(wait);
  if (AsksForEnd(sigtimedwait(&signals_, nullptr, &time))) {
    stopping_ = true;
    return absl::CancelledError("interrupted");
  }
  return CheckChildren();
}

absl::Status Service::CheckChildren() {
  if (!coordinator_.Running()) return Ended("the coordinator", coordinator_);
  int64_t left = 0;
  for (size_t i = 0; i < mourned_.size(); ++i) {
    left += workers_[i].Running() ? 1 : 0;
    if (workers_[i].Running() || mourned_[i]) continue;
    mourned_[i] = true;
    const absl::Status ended = Ended(absl::StrCat("worker-", i), workers_[i]);
    if (!ready_) return ended;
    // One write, because the children share standard error.
    std::cerr << absl::StrCat("annulus serve: ", ended.message(), "\n");
  }
  return left > 0 || mourned_.empty() ? absl::OkStatus()
                                      : absl::UnavailableError("all workers have ended");
}

absl::Status Service::Ended(const std::string& name, const ChildProcess& child) {
  child_code_ = child.exit_code();
  return absl::UnavailableError(absl::StrCat(name, " ", child.HowItEnded()));
}

// The child has printed why it does not start. With these exit codes a retry does not help, so the
// exit code of this program must not be kExitTryAgain.
int Service::Report(const absl::Status& status) const {
  if (child_code_ != kExitUsage && child_code_ != kExitFailed) return ReportError(status, false);
  std::cerr << absl::StrCat("annulus serve: ", status.message(), "\n");
  return *child_code_;
}

bool Service::AwaitEnd(const std::vector<ChildProcess*>& children, absl::Duration wait) {
  const absl::Time deadline = SteadyNow() + wait;
  for (;;) {
    const bool ended = std::none_of(children.begin(), children.end(),
                                    [](ChildProcess* child) { return child->Running(); });
    if (ended || SteadyNow() >= deadline) return ended;
    const timespec time =
        absl::ToTimespec(std::min(absl::Milliseconds(100), deadline - SteadyNow()));
    if (AsksForEndAtOnce(sigtimedwait(&signals_, nullptr, &time))) {
      hurried_ = true;
      return false;
    }
  }
}

bool Service::EndedWell(const std::string& name, ChildProcess* child, absl::Duration wait) {
  // A program that is not ready may ignore the signal. If the service ended by itself, the cause is
  // already printed.
  if (!ready_ || !stopping_) return true;
  const bool late = child->Running();
  if ((late && hurried_) || child->exit_code() == 0) return true;
  const std::string how =
      late ? absl::StrCat("did not end in ", absl::FormatDuration(wait)) : child->HowItEnded();
  std::cerr << absl::StrCat("annulus serve: ", name, " ", how, "\n");
  return false;
}

// The coordinator ends first, so that the workers are there while it drains. Workers that are not
// ready have nothing to finish; they end first, or they would try to connect to a coordinator that
// is gone.
bool Service::Stop() {
  if (!ready_) {
    for (ChildProcess& worker : workers_) worker.Signal(SIGTERM);
  }
  coordinator_.Signal(SIGTERM);
  const absl::Duration drain = flags_.drain_grace + absl::Seconds(5);
  if (coordinator_.pid() != 0) AwaitEnd({&coordinator_}, drain);
  bool well = EndedWell("the coordinator", &coordinator_, drain);
  coordinator_.Signal(SIGKILL);
  std::vector<ChildProcess*> workers;
  for (ChildProcess& worker : workers_) {
    if (ready_) worker.Signal(SIGTERM);
    workers.push_back(&worker);
  }
  if (!AwaitEnd(workers, kWorkerDrain)) {
    // The workers wait for jobs that the coordinator's end has cut off. A second SIGTERM ends them
    // without waiting.
    for (ChildProcess* worker : workers) worker->Signal(SIGTERM);
    AwaitEnd(workers, hurried_ ? kWorkerDrain : kWorkerEnd - kWorkerDrain);
  }  // The destructors end what is left.
  for (size_t i = 0; i < mourned_.size(); ++i) {
    if (!mourned_[i]) well &= EndedWell(absl::StrCat("worker-", i), workers[i], kWorkerEnd);
  }
  return well;
}

}  // namespace

Command AddServeCommand(CommandLine* program) {
  auto flags = std::make_shared<Flags>();
  CommandLine* app =
      program->AddCommand("serve",
                          "Run a coordinator and workers on this machine until Ctrl-C; prints "
                          "`ready ADDRESS workers=N` when all are ready");
  AddAddress(app, {"--address", "Address for clients; port 0: any free port"}, &flags->address);
  AddInteger(app, {"--workers", "Number of worker processes"}, {1, 64}, &flags->workers, "workers");
  AddText(app,
          {"--device",
           "Device that computes; cuda:N: worker i uses GPU N + i; auto: only with one worker"},
          "cpu|auto|cuda:N", flags->device, [flags](const std::string& text) -> absl::Status {
            flags->device = text;
            return CheckDeviceName(text);
          });
  AddInteger(
      app, {"--threads", "Kernel threads of each worker; 0: an equal share of the machine's cores"},
      {0, 1024}, &flags->threads, "threads");
  AddSwitch(app, {"--pin", "Pin each worker to its own CPUs, one for each thread of its kernel"},
            &flags->pin);
  AddBytesOrZero(app,
                 {"--staging-bytes",
                  "Memory of each worker for inputs and outputs; 0: a share of the memory of the "
                  "machine, or of its cgroup"},
                 kPoolBytes, &flags->staging_bytes);
  AddBytesOrZero(app,
                 {"--device-bytes",
                  "Memory of each worker for running jobs; 0: a share of the memory of the "
                  "machine, or of its cgroup"},
                 kPoolBytes, &flags->device_bytes);
  AddDuration(app, {"--ready-timeout", "Time for all workers to be ready"},
              {absl::Seconds(1), absl::Hours(1)}, &flags->ready_timeout);
  AddDuration(app, {"--drain-grace", "Time for jobs to end after Ctrl-C"},
              {absl::ZeroDuration(), absl::Hours(1)}, &flags->drain_grace);
  AddChoice(app, {"--log-level", "Level of the programs' logs on standard error"},
            {"debug", "info", "warning", "error"}, &flags->log_level);
  AddChoice(app, {"--log-format", "Format of the programs' logs on standard error"},
            {"text", "json"}, &flags->log_format);
  for (const auto& [name, program, values] :
       {std::tuple("--coordinator-flag", "annulus-coordinator", &flags->coordinator_flags),
        std::tuple("--worker-flag", "every annulus-worker", &flags->worker_flags)}) {
    AddTexts(
        app, {name, absl::StrCat("A flag for ", program, "; may be repeated")}, "--FLAG=VALUE",
        [](const std::string& text) {
          return absl::StartsWith(text, "--")
                     ? absl::OkStatus()
                     : absl::InvalidArgumentError(absl::StrCat("'", text, "' is no flag"));
        },
        values);
  }
  return [flags] {
    if (flags->device == "auto" && flags->workers > 1) {
      std::cerr << "annulus serve: --device auto needs --workers 1; with cuda:0 each worker has "
                   "its own GPU\n";
      return kUsageExitCode;
    }
    const auto cpus = static_cast<int64_t>(AllowedCpus().size());
    const int64_t wanted = flags->workers * ThreadsOf(*flags);
    if (flags->pin && wanted > cpus) {
      std::cerr << absl::StrCat("annulus serve: --pin needs ", wanted, " CPUs for ", flags->workers,
                                " workers, but ", cpus, " are available\n");
      return kUsageExitCode;
    }
    return Service(*flags).Run();
  };
}

}  // namespace annulus
