// The communicator over the real NCCL: ranks are processes that share one GPU. NCCL refuses this
// for processes of one machine, so each sets a separate host name.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "tests/gpu/real_gpu.h"
#include "tests/worker/comm/group.h"
#include "worker/comm/nccl.h"
#include "worker/comm/nccl_library.h"

namespace annulus {
namespace {

constexpr int32_t kRanks = 2;
constexpr int kSteps = 20;
constexpr int64_t kBytes = (3 << 20) + 40;
constexpr char kMissing[] = "missing: ";  // Prefix for things that the machine lacks.

void WriteText(int fd, const std::string& text) {
  const uint32_t size = text.size();
  if (write(fd, &size, sizeof(size)) != sizeof(size)) _exit(3);
  if (write(fd, text.data(), size) != static_cast<ssize_t>(size)) _exit(3);
}

// Texts are smaller than a pipe's buffer, so each arrives as a whole. "" if the process has ended.
std::string ReadText(int fd) {
  uint32_t size = 0;
  if (read(fd, &size, sizeof(size)) != sizeof(size)) return "";
  std::string text(size, '\0');
  if (read(fd, text.data(), size) != static_cast<ssize_t>(size)) return "";
  return text;
}

std::vector<std::byte> Numbers(int32_t rank, int step) {
  std::vector<std::byte> bytes(kBytes);
  for (int64_t i = 0; i < kBytes; ++i) {
    bytes[i] = static_cast<std::byte>((i + 37 * step + 101 * rank) * 2654435761u >> 13);
  }
  return bytes;
}

// Each rank sends to the next and receives from the one before, step by step.
absl::Status PassAround(CudaDevice* device, Communicator* communicator, int32_t rank) {
  const int32_t next = (rank + 1) % kRanks, before = (rank + kRanks - 1) % kRanks;
  for (int step = 0; step < kSteps; ++step) {
    ASSIGN_OR_RETURN(DeviceMemory out, device->Allocate(kBytes));
    ASSIGN_OR_RETURN(DeviceMemory in, device->Allocate(kBytes));
    const std::vector<std::byte> sent = Numbers(rank, step);
    std::vector<std::byte> received(kBytes);
    RETURN_IF_ERROR(device->CopyIn({out.get(), kBytes, sent.data(), kBytes, kBytes, 1}));
    RETURN_IF_ERROR(communicator->Start({SendMessage{next, out.get(), kBytes}},
                                        {ReceiveMessage{before, in.get(), kBytes}}));
    RETURN_IF_ERROR(communicator->Join(TestDeadline()));
    RETURN_IF_ERROR(device->CopyOut({received.data(), kBytes, in.get(), kBytes, kBytes, 1}));
    RETURN_IF_ERROR(device->Synchronize());
    if (received != Numbers(before, step)) {
      return absl::InternalError(absl::StrCat("wrong bytes in step ", step));
    }
  }
  return absl::OkStatus();
}

// Runs in a rank's process: sends its bootstrap, receives the others', sends its result. NOT_FOUND:
// the machine lacks something.
using Body = absl::Status (*)(int32_t rank, int to_parent, int from_parent);

absl::Status RunRank(int32_t rank, int to_parent, int from_parent) {
  setenv("NCCL_HOSTID", absl::StrCat("annulus-", rank).c_str(), 1);
  const char* const settings[][2] = {{"NCCL_NET", "Socket"},       {"NCCL_IB_DISABLE", "1"},
                                     {"NCCL_SOCKET_IFNAME", "lo"}, {"NCCL_NVLS_ENABLE", "0"},
                                     {"NCCL_MAX_CTAS", "2"},       {"NCCL_RAS_ENABLE", "0"}};
  for (const auto& [name, value] : settings) setenv(name, value, /*overwrite=*/0);
  if (const std::string lacks = WhyNoGpu(); !lacks.empty()) return absl::NotFoundError(lacks);
  ASSIGN_OR_RETURN(const std::shared_ptr<CudaContext> context, RealGpu(int64_t{64} << 20));
  // A named library must exist, and a library that exists must work.
  const char* const library = std::getenv("ANNULUS_NCCL_LIBRARY");
  const auto nccl = LoadNccl(library == nullptr ? "libnccl.so.2" : library);
  if (library == nullptr && absl::StartsWith(nccl.status().message(), "no NCCL: ")) {
    return absl::NotFoundError(nccl.status().message());
  }
  RETURN_IF_ERROR(nccl.status());
  ASSIGN_OR_RETURN(const std::unique_ptr<CudaDevice> device, CudaDevice::Create(context));
  NcclOptions options;
  options.api = nccl->get();
  options.device = device.get();
  options.rank = rank;
  options.size = kRanks;
  ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> communicator, MakeNcclCommunicator(options));
  ASSIGN_OR_RETURN(const std::string own, communicator->Bootstrap());
  WriteText(to_parent, own);
  std::vector<std::string> all;
  for (int32_t r = 0; r < kRanks; ++r) all.push_back(ReadText(from_parent));
  RETURN_IF_ERROR(communicator->Connect(all, TestDeadline()));
  return PassAround(device.get(), communicator.get(), rank);
}

struct Process {
  pid_t pid = -1;
  int to = -1, from = -1;
};

// Must be called before CUDA is used, which does not survive a fork. `before`: processes started
// earlier, whose pipe ends this one must close.
Process StartRank(int32_t rank, Body body, const std::vector<Process>& before) {
  int down[2], up[2];
  if (pipe(down) != 0 || pipe(up) != 0) abort();
  Process process;
  process.pid = fork();
  if (process.pid == 0) {
    close(down[1]);
    close(up[0]);
    for (const Process& other : before) {
      close(other.to);
      close(other.from);
    }
    const absl::Status status = body(rank, up[1], down[0]);
    WriteText(up[1], absl::IsNotFound(status) ? absl::StrCat(kMissing, status.message())
                     : status.ok()            ? "done"
                                              : status.ToString());
    _exit(0);
  }
  close(down[0]);
  close(up[1]);
  process.to = down[1];
  process.from = up[0];
  return process;
}

// Runs all ranks to their ends. Returns each one's last text. If one fails before it sends its
// bootstrap, the others receive none.
std::vector<std::string> RunProcesses(Body body) {
  std::vector<Process> processes;
  for (int32_t r = 0; r < kRanks; ++r) processes.push_back(StartRank(r, body, processes));
  std::vector<std::string> said;
  for (const Process& process : processes) said.push_back(ReadText(process.from));
  const std::vector<std::string> endpoints = said;
  const auto started = [](const std::string& text) { return absl::StartsWith(text, "nccl/"); };
  const bool all_here = std::all_of(endpoints.begin(), endpoints.end(), started);
  for (const Process& process : processes) {
    if (all_here) {
      for (const std::string& text : endpoints) WriteText(process.to, text);
    }
    close(process.to);
  }
  for (int32_t r = 0; r < kRanks; ++r) {
    if (started(endpoints[r])) said[r] = ReadText(processes[r].from);
    close(processes[r].from);
    waitpid(processes[r].pid, nullptr, 0);
  }
  return said;
}

bool SaysWhatIsMissing(const std::string& text) { return absl::StartsWith(text, kMissing); }

TEST(NcclRanks, PassBytesAroundAsProcessesOnOneGpu) {
  const std::vector<std::string> said = RunProcesses(RunRank);
  if (std::all_of(said.begin(), said.end(), SaysWhatIsMissing)) {
    GTEST_SKIP() << said[0].substr(sizeof(kMissing) - 1);
  }
  for (int32_t r = 0; r < kRanks; ++r) EXPECT_EQ(said[r], "done") << "rank " << r;
}

template <int32_t kAbsent>
absl::Status AllButOne(int32_t rank, int to_parent, int from_parent) {
  if (rank == kAbsent) return absl::InternalError("no memory");
  alarm(60);  // Limits the wait.
  WriteText(to_parent, "nccl/here");
  return ReadText(from_parent).empty() ? absl::OkStatus() : absl::UnknownError("heard of others");
}

TEST(NcclRanks, OneThatCannotStartLeavesNobodyWaiting) {
  const std::vector<std::string> without_first = {"INTERNAL: no memory", "done"};
  const std::vector<std::string> without_last = {"done", "INTERNAL: no memory"};
  EXPECT_EQ(RunProcesses(AllButOne<0>), without_first);
  EXPECT_EQ(RunProcesses(AllButOne<1>), without_last);
}

}  // namespace
}  // namespace annulus
