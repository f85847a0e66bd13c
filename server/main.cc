// annulus-coordinator: the coordinator with its gateway.

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/command_line.h"
#include "base/log.h"
#include "base/steady_time.h"
#include "proto/rpc/callback_threads.h"
#include "server/coordinator_server.h"

namespace annulus {
namespace {

// Makes malloc keep freed memory for reuse, up to 16 MiB at the end of each of its arenas. By
// default glibc returns what exceeds twice the largest buffers, and the system then takes, clears
// and maps again the memory of every small job.
void RetainFreedMemory() {
  constexpr int kKept = 16 << 20, kOwnMapping = 8 << 20;
  mallopt(M_TRIM_THRESHOLD, kKept);
  // Setting the trim threshold would otherwise fix this one at 128 KiB.
  mallopt(M_MMAP_THRESHOLD, kOwnMapping);
}

constexpr absl::Duration kDrainMargin = absl::Seconds(5);
constexpr int kSignalExitCode = 128;  // Plus the signal's number, as in shells.

void AddFlags(CommandLine* app, CoordinatorServer::Options* options) {
  CoordinatorOptions& coordinator = options->coordinator;
  AddAddress(app, {"--address", "Address for clients; port 0: any free port"}, &options->address);
  AddAddress(app, {"--control-address", "Address for workers; port 0: any free port"},
             &options->control_address);
  AddAddress(app,
             {"--health-address",
              "Address for plain-text health checks and reflection only; default: none"},
             &options->health_address);
  AddDuration(app, {"--beat-interval", "Interval between the beats of a worker"},
              {absl::Milliseconds(50), absl::Minutes(1)}, &coordinator.beat_interval);
  AddDuration(app, {"--lease", "Time without a beat after which a worker is lost"},
              {absl::Milliseconds(100), absl::Minutes(10)}, &coordinator.lease);
  AddDuration(app, {"--drain-grace", "Time for running jobs to end after SIGTERM"},
              {absl::ZeroDuration(), absl::Hours(1)}, &coordinator.drain_grace);
  AddDuration(app, {"--max-timeout", "Longest lifetime of a job"},
              {absl::Seconds(1), absl::Hours(24)}, &coordinator.max_timeout);
  AddDuration(app, {"--max-keep-state", "Longest time for which a job's state is kept"},
              {absl::Milliseconds(1), absl::Hours(24)}, &coordinator.limits.max_keep_state);
  AddDuration(app,
              {"--segment",
               "Predicted time of a segment; a cancelled job waits for the end of its segment"},
              {absl::Milliseconds(1), absl::Minutes(1)}, &coordinator.segment_target);
}

// The values of --device-kind, in the order of WorkerKind.
const std::vector<std::string>& KindNames() {
  static const auto* const names = new std::vector<std::string>{"any", "cpu", "cuda"};
  return *names;
}

WorkerKind KindOf(const std::string& name) {
  const auto& names = KindNames();
  return static_cast<WorkerKind>(std::find(names.begin(), names.end(), name) - names.begin());
}

void AddSizeFlags(CommandLine* app, CoordinatorServer::Options* options) {
  AddBytes(app,
           {"--max-request-bytes",
            "Memory for the requests of all jobs that have not ended or whose state is kept, and "
            "of calls that join them; dry runs may use the same amount in addition"},
           {16 << 20, int64_t{1} << 40}, &options->coordinator.max_request_bytes);
  AddBytes(app,
           {"--max-inline-bytes",
            "Memory for the tensors of all running AttendInline and MergePartials calls; a call "
            "that needs more is refused"},
           {1 << 20, int64_t{1} << 40}, &options->max_inline_bytes);
}

struct Counts {
  int64_t queued, min_workers, planners, attend_calls, streams, kept_percent;
};

Counts CountsOf(const CoordinatorServer::Options& options) {
  return {static_cast<int64_t>(options.coordinator.max_queued_jobs),
          options.coordinator.min_workers,
          options.planner_threads,
          options.max_attend_calls,
          options.max_streams_per_connection,
          std::lround(options.coordinator.kept_share * 100)};
}

void TakeCounts(const Counts& counts, CoordinatorServer::Options* options) {
  options->coordinator.max_queued_jobs = static_cast<size_t>(counts.queued);
  options->coordinator.min_workers = static_cast<int32_t>(counts.min_workers);
  options->planner_threads = static_cast<int>(counts.planners);
  options->max_attend_calls = static_cast<int>(counts.attend_calls);
  options->max_streams_per_connection = static_cast<int>(counts.streams);
  options->coordinator.kept_share = static_cast<double>(counts.kept_percent) / 100;
}

void AddCountFlags(CommandLine* app, Counts* counts) {
  AddInteger(app,
             {"--max-queued-jobs", "Limit of waiting jobs; the same limit applies to dry runs"},
             {1, 100000}, &counts->queued, "jobs");
  AddInteger(app, {"--min-workers", "Number of ready workers that is needed to accept jobs"},
             {1, 1024}, &counts->min_workers, "workers");
  AddInteger(app, {"--planner-threads", "Threads that plan large jobs"}, {1, 64}, &counts->planners,
             "threads");
  AddInteger(app,
             {"--max-attend-calls",
              "Limit of concurrent Attend, AttendMany, AttendInline and MergePartials calls"},
             {1, 100000}, &counts->attend_calls, "calls");
  AddInteger(
      app,
      {"--max-streams",
       "Limit of concurrent calls on one client connection; further calls wait in the client"},
      {1, 100000}, &counts->streams, "calls");
  AddInteger(app, {"--kept-percent", "Share of each worker's staging memory for kept states"},
             {0, 100}, &counts->kept_percent, "percent");
}

// Signals are blocked in every thread and received here.
int AwaitSignal(const sigset_t& signals) {
  int signal = 0;
  sigwait(&signals, &signal);
  return signal;
}

// Ends the process whatever it does, for example while it makes a plan for minutes.
void EndAtSecondSignal(const sigset_t& signals) {
  std::thread([signals] {
    const int signal = AwaitSignal(signals);
    LogInfo(kNoJob, "signal ", signal, " again: ending at once");
    _exit(kSignalExitCode + signal);
  }).detach();
}

int WaitForTheEnd(CoordinatorServer& server, const sigset_t& signals, absl::Duration grace) {
  LogInfo(kNoJob, "signal ", AwaitSignal(signals), ": draining");
  EndAtSecondSignal(signals);
  server.Drain();
  server.WaitUntilDrained(SteadyNow() + grace + kDrainMargin);
  server.Shutdown();
  LogInfo(kNoJob, "stopped");
  return 0;
}

int Main(int argc, char** argv) {
  CommandLine app("annulus-coordinator", "The coordinator of Annulus, with its gateway.");
  CoordinatorServer::Options options;
  LogOptions log;
  log.component = "coordinator";
  Counts counts = CountsOf(options);
  AddFlags(&app, &options);
  AddSizeFlags(&app, &options);
  AddCountFlags(&app, &counts);
  std::string kind = "any";
  AddChoice(&app,
            {"--device-kind", "Device kind of the workers; any: the kind of the first worker"},
            KindNames(), &kind);
  AddLogFlags(&app, &log);
  if (std::optional<int> exit_code = ParseCommandLine(&app, argc, argv)) return *exit_code;
  if (options.coordinator.lease <= options.coordinator.beat_interval) {
    std::cerr << "annulus-coordinator: --lease: must be longer than --beat-interval\n";
    return kUsageExitCode;
  }
  TakeCounts(counts, &options);
  options.coordinator.worker_kind = KindOf(kind);
  InitLogging(log);

  signal(SIGPIPE, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  LimitCallbackThreads();
  RetainFreedMemory();
  auto server = CoordinatorServer::Start(options);
  if (!server.ok()) {
    std::cerr << absl::StrCat("annulus-coordinator: ", server.status().message(), "\n");
    return 1;
  }
  // Needed by callers that request port 0.
  std::cout << "listening address=" << (*server)->address()
            << " control-address=" << (*server)->control_address();
  if (!(*server)->health_address().empty()) {
    std::cout << " health-address=" << (*server)->health_address();
  }
  std::cout << std::endl;
  return WaitForTheEnd(**server, signals, options.coordinator.drain_grace);
}

}  // namespace
}  // namespace annulus

int main(int argc, char** argv) { return annulus::Main(argc, argv); }
