// annulus: the client's command line. One file for each command.
#include <signal.h>

#include <iostream>
#include <optional>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "attention/error.h"
#include "base/command_line.h"
#include "client/cli/commands.h"
#include "client/cli/report.h"

namespace annulus {
namespace {

// An answer that nobody can read is none.
int CheckOutput() {
  if (std::cout.flush().good()) return kExitOk;
  return ReportError(MakeError(absl::StatusCode::kUnknown, "standard output cannot be written",
                               {"FILE_ERROR", {}, {}, {}}),
                     /*json=*/false);
}

int Main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  CLI::App program("Annulus: exact attention as a service.", "annulus");
  program.require_subcommand(1);
  program.footer(kExitCodes);
  const std::vector<Command> commands = {
      AddAttendCommand(&program), AddGradientsCommand(&program), AddReleaseCommand(&program),
      AddMergeCommand(&program),  AddPlanCommand(&program),      AddClusterCommand(&program),
      AddShardCommand(&program),  AddUnshardCommand(&program),   AddServeCommand(&program)};
  if (const std::optional<int> code = ParseCommandLine(&program, argc, argv)) return *code;
  const std::vector<CLI::App*> all = program.get_subcommands([](CLI::App*) { return true; });
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i]->parsed()) continue;
    const int code = commands[i]();
    return code == kExitOk ? CheckOutput() : code;
  }
  return kExitUsage;
}

}  // namespace
}  // namespace annulus

int main(int argc, char** argv) { return annulus::Main(argc, argv); }
