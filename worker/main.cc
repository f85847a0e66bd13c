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

void AddPlaces(CommandLine* app, Flags* flags) {
  WorkerOptions* worker = &flags->worker;
  AddAddress(app, {"--coordinator", "Control address of the coordinator"}, &worker->coordinator);
  AddName(app, {"--slot", "Stable name of this worker's place, unique among the workers"}, {1, 128},
          &worker->slot);
  AddName(app,
          {"--locality",
           "Name of the location; workers with equal or neighbouring names are grouped first"},
          {0, 128}, &worker->locality);
  AddAddress(app, {"--data-address", "Address for the tensors of clients; port 0: any free port"},
             &worker->data_address);
  AddText(app,
          {"--advertise-address",
           "Address at which clients reach --data-address; default: the same address"},
          "HOST[:PORT]", "", [worker](const std::string& text) -> absl::Status {
            ASSIGN_OR_RETURN(std::tie(worker->advertise_host, worker->advertise_port),
                             ParseHost(text));
            return absl::OkStatus();
          });
  AddText(app,
          {"--comm-address",
           "Address for other workers: an address or host name of this machine, or a network "
           "interface; any port is used"},
          "HOST|if:NAME", flags->comm_address, [flags](const std::string& text) -> absl::Status {
            if (text.empty() || text == "if:" || absl::StrContains(text, ' ')) {
              return absl::InvalidArgumentError(
                  absl::StrCat("'", text, "' is neither HOST nor if:NAME"));
            }
            flags->comm_address = text;
            return absl::OkStatus();
          });
  AddAddress(app,
             {"--health-address",
              "Address of a separate health service for probes; default: only on --data-address"},
             &worker->health_address);
}

void AddSizes(CommandLine* app, Flags* flags) {
  WorkerOptions* worker = &flags->worker;
  AddBytes(app, {"--staging-bytes", "Memory for inputs and outputs of jobs"}, {1 << 20, kTiB},
           &worker->staging_bytes);
  AddBytes(app, {"--device-bytes", "Memory for the working sets of running jobs"},
           {1 << 20, kMostHostBytes}, &worker->device_bytes);
  AddInteger(app,
             {"--threads",
              "Threads of the attention kernel; 0: one for each usable CPU. If there is one thread "
              "for each usable CPU, and at most 8, each is pinned to its own CPU"},
             {0, 1024}, &flags->threads, "threads");
  AddText(
      app,
      {"--cpus", "CPUs, 0 to 1023, to which all threads of the worker are pinned; default: any"},
      "N[-M][,N[-M]…]", "", [flags](const std::string& text) -> absl::Status {
        absl::StatusOr<std::vector<int>> cpus = ParseCpuList(text);
        if (cpus.ok()) flags->cpus = *std::move(cpus);
        return cpus.status();
      });
  AddInteger(app, {"--copy-threads", "Threads that begin shards and check large pieces of outputs"},
             {1, 64}, &flags->copy_threads, "threads");
  AddText(
      app, {"--device", "Device that computes; auto: the first GPU if there is one, else the CPU"},
      "cpu|auto|cuda:N", flags->backend.device, [flags](const std::string& text) -> absl::Status {
        flags->backend.device = text;
        return CheckDeviceName(text);
      });
  AddText(app, {"--nccl-library", "NCCL library that workers with GPUs load"}, "LIBRARY",
          flags->backend.nccl_library, [flags](const std::string& text) -> absl::Status {
            if (text.empty()) return absl::InvalidArgumentError("the name of the library is empty");
            flags->backend.nccl_library = text;
            return absl::OkStatus();
          });
  AddText(app,
          {"--cudnn-library",
           "cuDNN library, for example \"libcudnn.so.9\", which workers with GPUs use for the work "
           "that it supports; off: none"},
          "LIBRARY|off", "off", [flags](const std::string& text) -> absl::Status {
            if (text.empty()) return absl::InvalidArgumentError("the name of the library is empty");
            flags->backend.cudnn_library = text == "off" ? "" : text;
            return absl::OkStatus();
          });
  AddChoice(app, {"--kernel", "Instruction set of the CPU's attention kernel"},
            {"auto", "amx", "avx512bf16", "avx512", "avx2", "portable"}, &flags->backend.kernel);
  AddChoice(app,
            {"--cuda-kernel",
             "Kernels of a GPU; the Hopper kernels, for compute capability 9.0, are used if they "
             "pass a check at start"},
            {"auto", "portable", "hopper"}, &flags->backend.cuda_kernel);
  AddBytes(app,
           {"--link-rate",
            "Bytes per second between this worker and others, for planning; 0: measured on this "
            "machine, or 20 GB/s between GPUs"},
           {0, kTiB}, &flags->link_rate);
}

void AddTimes(CommandLine* app, Flags* flags) {
  WorkerOptions* worker = &flags->worker;
  AddDuration(app,
              {"--measure-time",
               "Time for measuring forward passes at start; gradients add about half of it, and "
               "the link the same time again"},
              {absl::Milliseconds(1), absl::Seconds(10)}, &flags->measure_time);
  AddBytes(app, {"--min-rate", "Bytes per second below which an upload or a download has stalled"},
           {1, kTiB}, &worker->rate.floor_bytes_per_second);
  AddDuration(app,
              {"--min-rate-window",
               "Time without a byte after which an upload or a download has stalled, whatever its "
               "earlier rate"},
              {absl::Seconds(1), absl::Hours(1)}, &worker->rate.window);
  AddDuration(
      app,
      {"--step-timeout",
       "Longest time that a step's transfers may take beyond its tasks; twice the predicted time "
       "is added if long steps could not be split, or if peers first run segments of other groups"},
      {absl::Seconds(1), absl::Hours(1)}, &worker->step_timeout);
  AddDuration(app,
              {"--stall-timeout",
               "Time without progress after which the worker exits with code 70; longer than "
               "--step-timeout, and extended whenever that is extended"},
              {absl::Seconds(2), absl::Hours(2)}, &worker->stall_timeout);
  AddDuration(
      app, {"--abort-timeout", "Time that an abort may take before the worker exits with code 70"},
      {kMinAbortTimeout, absl::Hours(1)}, &worker->abort_timeout);
  AddDuration(app, {"--drain-timeout", "Longest time from SIGTERM to the end of the process"},
              {absl::ZeroDuration(), absl::Hours(24)}, &worker->drain_timeout);
}

void AddHopperCheck(CommandLine* app, const char* flag, const std::string& kernel,
                    std::string* device) {
  AddText(app,
          {flag,
           absl::StrCat("Only check: compare the kernel for ", kernel,
                        " on a GPU with the CPU's kernel, print `passed` or the error, and exit")},
          "cuda:N", "", [device](const std::string& text) -> absl::Status {
            *device = text;
            return GpuNumber(text).ok()
                       ? absl::OkStatus()
                       : absl::InvalidArgumentError(absl::StrCat("'", text, "' is not cuda:N"));
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
                     " is a wildcard address: set --advertise-address to the address for clients"));
  }
  if (IsEveryAddress(advertised)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--advertise-address ", advertised,
                     " is a wildcard address: give the address for clients"));
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
bool StopRequested() {
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
  options.stop_requested = StopRequested;
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
  if ((ready.ok() || absl::IsCancelled(ready)) && StopRequested()) {
    LogInfo(kNoJob, "ended by a signal before it was ready");
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
  CommandLine app(
      "annulus-worker",
      "Annulus worker: holds shards of attention jobs and computes them together with other "
      "workers.");
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
