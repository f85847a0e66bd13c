// annulus: the client's command line. One file for each command.
#include <signal.h>

#include <optional>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/command_line.h"
#include "client/cli/commands.h"
#include "client/cli/report.h"

namespace annulus {
namespace {

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
    if (all[i]->parsed()) return commands[i]();
  }
  return kExitUsage;
}

}  // namespace
}  // namespace annulus

int main(int argc, char** argv) { return annulus::Main(argc, argv); }
