// annulus cluster: shows workers, groups and jobs.
#include <iostream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/command_line.h"
#include "base/steady_time.h"
#include "client/cli/all_jobs.h"
#include "client/cli/commands.h"
#include "client/cli/flags/service_flags.h"
#include "client/cli/local/await_workers.h"
#include "client/cli/report.h"
#include "client/client.h"
#include "proto/wire/convert.h"

namespace annulus {
namespace {

// The number of ended jobs shown without --all.
constexpr int kLatest = 10;

struct Flags {
  ServiceFlags service;
  int64_t wait = 0;
  bool all = false;
};

std::string StateText(const v1::WorkerInfo& worker) {
  return LowerSuffix(v1::WorkerInfo::State_Name(worker.state()));
}

std::string StateText(const v1::Job& job) { return LowerSuffix(v1::Job::State_Name(job.state())); }

nlohmann::json BudgetJson(const v1::Budget& budget) {
  return {{"used_bytes", budget.used_bytes()}, {"limit_bytes", budget.limit_bytes()}};
}

nlohmann::json ClusterJson(const v1::ServerInfo& info, const v1::ListJobsResponse& jobs,
                           int left_out) {
  nlohmann::json json = {{"version", info.version()},
                         {"ready", info.ready()},
                         {"term", info.term()},
                         {"queued_jobs", info.queued_jobs()},
                         {"running_jobs", info.running_jobs()},
                         {"workers", nlohmann::json::array()},
                         {"groups", nlohmann::json::array()},
                         {"jobs", nlohmann::json::array()},
                         {"jobs_left_out", left_out}};
  for (const v1::WorkerInfo& worker : info.workers()) {
    json["workers"].push_back({{"slot", worker.slot()},
                               {"state", StateText(worker)},
                               {"backend", worker.backend()},
                               {"data_endpoint", worker.data_endpoint()},
                               {"staging", BudgetJson(worker.staging())},
                               {"device", BudgetJson(worker.device())},
                               {"sessions", BudgetJson(worker.sessions())},
                               {"kept", BudgetJson(worker.kept())}});
  }
  for (const v1::GroupInfo& group : info.groups()) {
    json["groups"].push_back({{"generation", group.generation()},
                              {"ready", group.ready()},
                              {"slots", nlohmann::json(std::vector<std::string>(
                                            group.slots().begin(), group.slots().end()))}});
  }
  for (const v1::Job& job : jobs.jobs()) {
    nlohmann::json entry = {{"job_id", job.job_id()}, {"state", StateText(job)}};
    if (job.has_error())
      entry["error"] = {{"reason", job.error().reason()}, {"message", job.error().message()}};
    if (job.has_plan()) entry["execution"] = ExecutionJson(job.plan().execution());
    if (job.has_kept_state()) entry["kept_state"] = KeptStateJson(job);
    json["jobs"].push_back(entry);
  }
  return json;
}

std::string BudgetText(const v1::Budget& budget) {
  return absl::StrCat(BytesText(static_cast<double>(budget.used_bytes())), " of ",
                      BytesText(static_cast<double>(budget.limit_bytes())));
}

void PrintJob(const v1::Job& job) {
  std::cout << "job " << job.job_id() << ": " << StateText(job);
  if (job.has_end_time()) {
    const absl::Duration took = TimeFromProto(job.end_time()) - TimeFromProto(job.create_time());
    std::cout << " after " << absl::StrFormat("%.1f ms", absl::ToDoubleMilliseconds(took));
  }
  if (job.has_plan()) std::cout << ", " << ExecutionText(job.plan().execution());
  if (job.has_error()) std::cout << ", " << job.error().reason();
  if (job.has_kept_state()) std::cout << ", its state is " << KeptStateText(job);
  std::cout << "\n";
}

void PrintJobs(const v1::ListJobsResponse& jobs, int left_out) {
  for (const v1::Job& job : jobs.jobs()) PrintJob(job);
  if (left_out > 0)
    std::cout << "and " << left_out << " earlier jobs that have ended (--all shows them)\n";
}

std::string Count(int number, absl::string_view one, absl::string_view many) {
  return absl::StrCat(number, " ", number == 1 ? one : many);
}

void PrintCluster(const v1::ServerInfo& info) {
  std::cout << absl::StrFormat("annulus %s, %s, term %d; %s, %s\n", info.version(),
                               info.ready() ? "ready" : "not ready", info.term(),
                               Count(info.queued_jobs(), "job waits", "jobs wait"),
                               Count(info.running_jobs(), "runs", "run"));
  for (const v1::WorkerInfo& worker : info.workers()) {
    std::cout << "worker " << worker.slot() << ": " << StateText(worker) << ", " << worker.backend()
              << ", " << worker.data_endpoint() << "; staging " << BudgetText(worker.staging())
              << ", device " << BudgetText(worker.device()) << ", kept "
              << BudgetText(worker.kept()) << "\n";
  }
  for (const v1::GroupInfo& group : info.groups()) {
    std::cout << "group " << group.generation() << (group.ready() ? ":" : " (forming):");
    for (const std::string& slot : group.slots()) std::cout << " " << slot;
    std::cout << "\n";
  }
}

int Run(const Flags& flags) {
  Client client(ClientOptionsOf(flags.service));
  AwaitContext context;
  context.ask = [&client](absl::Duration limit) { return client.GetServerInfo(limit); };
  context.now = SteadyNow;
  context.sleep = [](absl::Duration time) {
    std::this_thread::sleep_for(absl::ToChronoNanoseconds(time));
  };
  const absl::Time deadline = SteadyNow() + flags.service.timeout;
  const absl::StatusOr<v1::ServerInfo> info =
      AwaitWorkers(flags.wait, flags.service.timeout, context);
  if (!info.ok()) return ReportError(info.status(), flags.service.json);
  absl::StatusOr<v1::ListJobsResponse> jobs = AllJobs(
      deadline - SteadyNow(),
      [&client](const v1::ListJobsRequest& request, absl::Duration limit) {
        return client.ListJobs(request, limit);
      },
      SteadyNow);
  if (!jobs.ok()) return ReportError(jobs.status(), flags.service.json);
  const int left_out = flags.all ? 0 : KeepLatest(kLatest, &*jobs);
  if (flags.service.json) {
    std::cout << ClusterJson(*info, *jobs, left_out).dump(2) << std::endl;
  } else {
    PrintCluster(*info);
    PrintJobs(*jobs, left_out);
  }
  return kExitOk;
}

}  // namespace

Command AddClusterCommand(CommandLine* program) {
  auto flags = std::make_shared<Flags>();
  flags->service.timeout = absl::Minutes(1);
  CommandLine* app = program->AddCommand("cluster", "Show workers, groups, queue and jobs");
  AddServiceFlags(app, &flags->service);
  AddInteger(app, {"--wait", "Wait until this number of workers is ready"}, {0, 1024}, &flags->wait,
             "workers");
  AddSwitch(
      app,
      {"--all",
       "Show all jobs that the coordinator still has, not only the latest 10 of the ended ones"},
      &flags->all);
  return [flags] { return Run(*flags); };
}

}  // namespace annulus
