// annulus release: releases the state that a forward job keeps.
#include <iostream>

#include "base/command_line.h"
#include "client/cli/commands.h"
#include "client/cli/flags/service_flags.h"
#include "client/cli/report.h"
#include "client/client.h"

namespace annulus {
namespace {

struct Flags {
  ServiceFlags service;
  std::string handle;
};

int Run(const Flags& flags) {
  Client client(ClientOptionsOf(flags.service));
  const absl::StatusOr<v1::Job> job = client.ReleaseState(flags.handle, flags.service.timeout);
  if (!job.ok()) return ReportError(job.status(), flags.service.json);
  if (flags.service.json) {
    std::cout << KeptStateJson(*job).dump(2) << std::endl;
  } else {
    std::cout << "job " << job->job_id() << ": its state is " << KeptStateText(*job) << "\n";
  }
  return kExitOk;
}

}  // namespace

Command AddReleaseCommand(CommandLine* program) {
  auto flags = std::make_shared<Flags>();
  flags->service.timeout = absl::Seconds(30);
  CommandLine* app = program->AddCommand(
      "release", "Release the state that a job of `attend --keep-for` keeps on the workers");
  AddServiceFlags(app, &flags->service);
  AddName(app, {"--handle", "ID of the job that keeps the state"}, {1, 64}, &flags->handle)
      .Required();
  return [flags] { return Run(*flags); };
}

}  // namespace annulus
