// annulus-worker: a worker process. docs/reference/flags.md describes the flags.
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/command_line.h"
#include "base/cpu_list.h"
#include "base/device_name.h"
#include "base/error.h"
#include "base/exit_in_time.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "proto/rpc/callback_threads.h"
#include "worker/backend/backend.h"
#include "worker/backend/cuda_backend.h"
#include "worker/backend/hopper_choice.h"
#include "worker/backend/start_rates.h"
#include "worker/device/host.h"
#include "worker/worker.h"

namespace annulus {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kTiB = int64_t{1} << 40;
constexpr int kFailed = 1;
constexpr unsigned kEndSeconds = 15;  // Time limit of the destructors.
// An abort may take 5 s even in a healthy worker, because Gloo's connection to a peer cannot be
// interrupted (worker/comm/gloo.h).
constexpr absl::Duration kMinAbortTimeout = absl::Seconds(7);

constexpr char kCheckHopper[] = "--check-hopper-on";
constexpr char kCheckHopperGradients[] = "--check-hopper-gradients-on";

struct Flags {
  WorkerOptions worker;
  BackendOptions backend;
  std::string comm_address = "127.0.0.1";
  int64_t threads = 0;    // 0: the number of allowed CPUs.
  std::vector<int> cpus;  // Empty: the CPUs that the system allows.
  int64_t copy_threads = 2;
  int64_t link_rate = 0;
  absl::Duration measure_time = absl::Seconds(1);
  LogOptions log;
};

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 && name[0] != 0 ? name : "worker";
}

Flags Defaults() {
  Flags flags;
  flags.worker.coordinator = "127.0.0.1:8003";
  flags.worker.slot = HostName();
  flags.worker.data_address = "127.0.0.1:8004";
  flags.worker.staging_bytes = 4 * kGiB;
  flags.worker.device_bytes = 4 * kGiB;
  return flags;
}

void AddPlaces(CLI::App* app, Flags* flags) {
  WorkerOptions* worker = &flags->worker;
  AddAddress(app, {"--coordinator", "Control service of the coordinator"}, &worker->coordinator);
  AddName(app, {"--slot", "Stable name of this worker's place; no two workers may share one"},
          {1, 128}, &worker->slot);
  AddName(app,
          {"--locality", "Workers with equal or neighbouring names are put in one group first"},
          {0, 128}, &worker->locality);
  AddAddress(app, {"--data-address", "Where to listen for tensors; port 0: any"},
             &worker->data_address);
  AddText(app, {"--advertise-address", "Where clients reach --data-address; default: the same"},
          "HOST[:PORT]", "", [worker](const std::string& text) -> absl::Status {
            ASSIGN_OR_RETURN(std::tie(worker->advertise_host, worker->advertise_port),
                             ParseHost(text));
            return absl::OkStatus();
          });
  AddText(app,
          {"--comm-address",
           "Where other workers reach this one: an address or host name of this machine, or a "
           "network interface; any port is used"},
          "HOST|if:NAME", flags->comm_address, [flags](const std::string& text) -> absl::Status {
            if (text.empty() || text == "if:" || absl::StrContains(text, ' ')) {
              return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no HOST or if:NAME"));
            }
            flags->comm_address = text;
            return absl::OkStatus();
          });
  AddAddress(app,
             {"--health-address",
              "A health service of its own, for probes; default: only on --data-address"},
             &worker->health_address);
}

void AddSizes(CLI::App* app, Flags* flags) {
  WorkerOptions* worker = &flags->worker;
  AddBytes(app, {"--staging-bytes", "Memory for inputs and outputs of jobs"}, {1 << 20, kTiB},
           &worker->staging_bytes);
  AddBytes(app, {"--device-bytes", "Memory for the working sets of running jobs"},
           {1 << 20, kMostHostBytes}, &worker->device_bytes);
  AddInteger(app,
             {"--threads",
              "Threads of the attention kernel; 0: as many as CPUs may be used. Up to 8 "
              "that are as many as those each keep to a CPU of their own"},
             {0, 1024}, &flags->threads, "threads");
  AddText(app, {"--cpus", "CPUs, 0 to 1023, that all threads of the worker keep to; default: any"},
          "N[-M][,N[-M]…]", "", [flags](const std::string& text) -> absl::Status {
            absl::StatusOr<std::vector<int>> cpus = ParseCpuList(text);
            if (cpus.ok()) flags->cpus = *std::move(cpus);
            return cpus.status();
          });
  AddInteger(app, {"--copy-threads", "Threads that begin shards and check large pieces of outputs"},
             {1, 64}, &flags->copy_threads, "threads");
  AddText(app,
          {"--device",
           "What computes: the CPU, a GPU, or the first GPU where there is one and else the CPU"},
          "cpu|auto|cuda:N", flags->backend.device,
          [flags](const std::string& text) -> absl::Status {
            flags->backend.device = text;
            return CheckDeviceName(text);
          });
  AddText(app, {"--nccl-library", "NCCL's library, which workers with GPUs load"}, "LIBRARY",
          flags->backend.nccl_library, [flags](const std::string& text) -> absl::Status {
            if (text.empty()) return absl::InvalidArgumentError("no library");
            flags->backend.nccl_library = text;
            return absl::OkStatus();
          });
  AddText(
      app,
      {"--cudnn-library",
       "cuDNN's library, \"libcudnn.so.9\" for instance, to which workers with GPUs hand what it "
       "serves; off: none"},
      "LIBRARY|off", "off", [flags](const std::string& text) -> absl::Status {
        if (text.empty()) return absl::InvalidArgumentError("no library");
        flags->backend.cudnn_library = text == "off" ? "" : text;
        return absl::OkStatus();
      });
  AddChoice(app, {"--kernel", "Instruction set of the CPU's attention kernel"},
            {"auto", "amx", "avx512bf16", "avx512", "avx2", "portable"}, &flags->backend.kernel);
  AddChoice(app,
            {"--cuda-kernel",
             "Kernels of a GPU: hopper's, for compute capability 9.0, are taken where they pass a "
             "check at start"},
            {"auto", "portable", "hopper"}, &flags->backend.cuda_kernel);
  AddBytes(app,
           {"--link-rate",
            "Bytes per second between this worker and others, for planning; 0: measured on this "
            "machine, or 20 GB/s between GPUs"},
           {0, kTiB}, &flags->link_rate);
}

void AddTimes(CLI::App* app, Flags* flags) {
  WorkerOptions* worker = &flags->worker;
  AddDuration(app,
              {"--measure-time",
               "Time for measuring forward passes at start, about half of it for gradients and "
               "as long again for the link"},
              {absl::Milliseconds(1), absl::Seconds(10)}, &flags->measure_time);
  AddBytes(app, {"--min-rate", "Bytes per second below which an upload or a download has stalled"},
           {1, kTiB}, &worker->rate.floor_bytes_per_second);
  AddDuration(app,
              {"--min-rate-window",
               "Time without a byte after which it has stalled, however fast it was before"},
              {absl::Seconds(1), absl::Hours(1)}, &worker->rate.window);
  AddDuration(app,
              {"--step-timeout",
               "Longest time that a step's transfers may take beyond its tasks; twice what is "
               "predicted more where long steps could not be split, or peers have other groups' "
               "segments to run first"},
              {absl::Seconds(1), absl::Hours(1)}, &worker->step_timeout);
  AddDuration(
      app,
      {"--stall-timeout",
       "Time without progress after which the worker ends with exit code 70, above --step-timeout, "
       "and longer where that is"},
      {absl::Seconds(2), absl::Hours(2)}, &worker->stall_timeout);
  AddDuration(
      app,
      {"--abort-timeout", "Time that an abort may take before the worker ends with exit code 70"},
      {kMinAbortTimeout, absl::Hours(1)}, &worker->abort_timeout);
  AddDuration(app, {"--drain-timeout", "Longest time from SIGTERM to the end"},
              {absl::ZeroDuration(), absl::Hours(24)}, &worker->drain_timeout);
}

void AddHopperCheck(CLI::App* app, const char* flag, const std::string& kernel,
                    std::string* device) {
  AddText(app,
          {flag, absl::StrCat("Serves nothing: compares the kernel for ", kernel,
                              " with the CPU's on a GPU, says `passed` or why not, and ends")},
          "cuda:N", "", [device](const std::string& text) -> absl::Status {
            *device = text;
            return GpuNumber(text).ok()
                       ? absl::OkStatus()
                       : absl::InvalidArgumentError(absl::StrCat("'", text, "' is no cuda:N"));
          });
}

// Checks conditions between flags.
absl::Status Check(const Flags& flags) {
  if (flags.worker.stall_timeout <= flags.worker.step_timeout) {
    return absl::InvalidArgumentError("--stall-timeout must be longer than --step-timeout");
  }
  const std::string& advertised = flags.worker.advertise_host;
  if (advertised.empty() && IsEveryAddress(ParseAddress(flags.worker.data_address)->first)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--data-address ", flags.worker.data_address,
                     " listens everywhere: say in --advertise-address where clients reach it"));
  }
  if (IsEveryAddress(advertised)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--advertise-address ", advertised, " is everywhere: say where clients reach this worker"));
  }
  return absl::OkStatus();
}

absl::Status ChooseEngine(Flags* flags) {
  if (absl::StartsWith(flags->comm_address, "if:")) {
    flags->backend.comm_interface = flags->comm_address.substr(3);
  } else {
    flags->backend.comm_host = flags->comm_address;
  }
  flags->backend.threads = static_cast<int>(flags->threads);
  flags->backend.device_bytes = flags->worker.device_bytes;
  flags->backend.staging_bytes = flags->worker.staging_bytes;
  flags->worker.copy_threads = static_cast<int>(flags->copy_threads);
  absl::StatusOr<Engine> engine = MakeEngine(flags->backend);
  if (!engine.ok()) return engine.status();
  flags->worker.engine = *std::move(engine);
  return absl::OkStatus();
}

// Otherwise a wrong address would be detected only when the first group is formed.
absl::Status CheckReachable(const Engine& engine) {
  const auto device = engine.make_device();
  if (!device.ok()) return device.status();
  const auto alone = engine.make_communicator(device->get(), /*rank=*/0, /*size=*/1);
  if (alone.ok()) return absl::OkStatus();
  return absl::Status(alone.status().code(),
                      absl::StrCat("--comm-address: ", alone.status().message()));
}

// SIGTERM and SIGINT start the drain. The worker sends SIGUSR1 to itself when it has exited.
sigset_t BlockSignals() {
  signal(SIGPIPE, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  for (int number : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

// True if SIGTERM or SIGINT is pending. Leaves it pending.
bool ToldToEnd() {
  sigset_t waiting;
  sigemptyset(&waiting);
  sigpending(&waiting);
  return sigismember(&waiting, SIGTERM) == 1 || sigismember(&waiting, SIGINT) == 1;
}

// Takes seconds. CANCELLED after any part if a signal to end is pending.
absl::Status MakeReady(Flags* flags) {
  RETURN_IF_ERROR(ChooseEngine(flags));
  RETURN_IF_ERROR(CheckReachable(flags->worker.engine));
  StartRatesOptions options;
  options.threads = static_cast<int>(flags->threads);
  options.link_rate = flags->link_rate;
  options.time = flags->measure_time;
  options.told_to_end = ToldToEnd;
  ASSIGN_OR_RETURN(flags->worker.rates, MeasureStartRates(flags->worker.engine, options));
  return absl::OkStatus();
}

// Must be called before the first thread starts.
absl::Status TakeCpus(Flags* flags) {
  if (!flags->cpus.empty()) {
    const absl::Status kept = KeepToCpus(flags->cpus);
    if (!kept.ok()) return absl::Status(kept.code(), absl::StrCat("--cpus: ", kept.message()));
  }
  if (flags->threads == 0) flags->threads = std::min(AllowedCpuCount(), 1024);
  return absl::OkStatus();
}

int Run(Flags flags) {
  const sigset_t signals = BlockSignals();
  flags.log.component = flags.worker.slot;
  InitLogging(flags.log);
  if (const absl::Status cpus = TakeCpus(&flags); !cpus.ok()) {
    LogError(kNoJob, "cannot start: ", ErrorText(cpus));
    return kFailed;
  }
  LimitCallbackThreads();
  const absl::Status ready = MakeReady(&flags);
  if ((ready.ok() || absl::IsCancelled(ready)) && ToldToEnd()) {
    LogInfo(kNoJob, "ended before it was ready, as it was told to");
    return 0;
  }
  if (!ready.ok()) {
    LogError(kNoJob, "cannot start: ", ErrorText(ready));
    return kFailed;
  }
  std::atomic<int> code{-1};
  flags.worker.exit = [&code](int value) {
    code = value;
    kill(getpid(), SIGUSR1);
  };
  LogInfo(kNoJob, "backend ", flags.worker.engine.description, ", ", flags.threads,
          " threads on CPUs ", CpuListText(AllowedCpus()), ", ", RatesText(flags.worker.rates));
  absl::StatusOr<std::unique_ptr<Worker>> worker = Worker::Start(flags.worker);
  if (!worker.ok()) {
    LogError(kNoJob, "cannot start: ", ErrorText(worker.status()));
    return kFailed;
  }
  LogInfo(kNoJob, "slot ", flags.worker.slot, " serves tensors at ", (*worker)->data_endpoint(),
          ", coordinator ", flags.worker.coordinator);
  while (code < 0) {
    int number = 0;
    sigwait(&signals, &number);
    if (number == SIGUSR1) continue;
    LogInfo(kNoJob, "signal ", number, ": draining");
    (*worker)->Terminate();
  }
  ExitInTime(code, kEndSeconds);
  worker->reset();
  LogInfo(kNoJob, "ended");
  return code;
}

// Runs in a child process that checks the Hopper kernel before the worker uses the GPU
// (worker/backend/hopper_choice.h).
int CheckHopperFor(const std::string& device, Operation operation) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // Ends this child if the worker dies.
  const absl::Status status = CheckHopperOn(device, operation);
  std::cout << (status.ok() ? kHopperPassed : status.message()) << std::endl;
  return status.ok() ? 0 : kFailed;
}

int Main(int argc, char** argv) {
  Flags flags = Defaults();
  flags.backend.hopper_check = {"/proc/self/exe", kCheckHopper};
  flags.backend.hopper_gradients_check = {"/proc/self/exe", kCheckHopperGradients};
  CLI::App app(
      "Annulus worker: holds shards of attention jobs and computes them together with other "
      "workers.",
      "annulus-worker");
  AddPlaces(&app, &flags);
  AddSizes(&app, &flags);
  AddTimes(&app, &flags);
  std::string attends_on, gradients_on;
  AddHopperCheck(&app, kCheckHopper, "Hopper", &attends_on);
  AddHopperCheck(&app, kCheckHopperGradients, "gradients on Hopper", &gradients_on);
  AddLogFlags(&app, &flags.log);
  if (const std::optional<int> code = ParseCommandLine(&app, argc, argv); code.has_value())
    return *code;
  if (!attends_on.empty()) return CheckHopperFor(attends_on, Operation::kForward);
  if (!gradients_on.empty()) return CheckHopperFor(gradients_on, Operation::kGradients);
  if (const absl::Status status = Check(flags); !status.ok()) {
    std::cerr << absl::StrCat("annulus-worker: ", status.message(), "\n");
    return kUsageExitCode;
  }
  return Run(std::move(flags));
}

}  // namespace
}  // namespace annulus

int main(int argc, char** argv) { return annulus::Main(argc, argv); }
