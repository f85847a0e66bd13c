// annulus cancel: cancels a job, also one of other callers.
#include <iostream>

#include "absl/strings/str_cat.h"
#include "base/command_line.h"
#include "client/cli/commands.h"
#include "client/cli/flags/service_flags.h"
#include "client/cli/report.h"
#include "client/client.h"

namespace annulus {
namespace {

struct Flags {
  ServiceFlags service;
  std::string job;
};

int Run(const Flags& flags) {
  Client client(ClientOptionsOf(flags.service));
  const absl::StatusOr<v1::Job> job = client.CancelJob(flags.job, flags.service.timeout);
  if (!job.ok()) return ReportError(job.status(), flags.service.json);
  const std::string state = LowerSuffix(v1::Job::State_Name(job->state()));
  if (flags.service.json) {
    std::cout << nlohmann::json{{"job_id", job->job_id()}, {"state", state}}.dump(2) << std::endl;
  } else {
    std::cout << "job " << job->job_id() << ": " << state << "\n";
  }
  return kExitOk;
}

}  // namespace

Command AddCancelCommand(CommandLine* program) {
  auto flags = std::make_shared<Flags>();
  flags->service.timeout = absl::Seconds(30);
  CommandLine* app = program->AddCommand(
      "cancel", "Cancel a job, also a job of another caller; a job that has ended does not change");
  AddServiceFlags(app, &flags->service);
  AddName(app, {"--job", "ID of the job, as in the output of `annulus cluster`"}, {1, 64},
          &flags->job)
      .Required();
  return [flags] { return Run(*flags); };
}

}  // namespace annulus
