// annulus: the client's command line. Each command has its own file.
#include <signal.h>

#include <algorithm>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/command_line.h"
#include "base/error.h"
#include "base/escape_for_terminal.h"
#include "client/cli/commands.h"
#include "client/cli/report.h"

namespace annulus {
namespace {

// An answer that cannot be written is a failure.
int CheckOutput() {
  if (std::cout.flush().good()) return kExitOk;
  return ReportError(MakeError(absl::StatusCode::kUnknown, "standard output cannot be written",
                               {"FILE_ERROR", {}, {}, {}}),
                     /*json=*/false);
}

// CLI11 reports only that a command is missing.
bool IsUnknown(const CommandLine& program, const std::string& word) {
  const std::vector<std::string> names = program.command_names();
  if (word.empty() || word[0] == '-') return false;
  if (std::find(names.begin(), names.end(), word) != names.end()) return false;
  std::cerr << EscapeForTerminal(absl::StrCat("annulus: unknown command '", word,
                                              "'; the commands are ", absl::StrJoin(names, ", "),
                                              " (see --help)"))
            << std::endl;
  return true;
}

int Main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  CommandLine program("annulus", "Annulus: exact attention as a service.");
  program.RequireCommand(kExitCodes);
  const std::vector<Command> commands = {AddAttendCommand(&program),  AddGradientsCommand(&program),
                                         AddReleaseCommand(&program), AddCancelCommand(&program),
                                         AddMergeCommand(&program),   AddPlanCommand(&program),
                                         AddClusterCommand(&program), AddShardCommand(&program),
                                         AddUnshardCommand(&program), AddServeCommand(&program)};
  if (argc > 1 && IsUnknown(program, argv[1])) return kExitUsage;
  if (const std::optional<int> code = ParseCommandLine(&program, argc, argv)) return *code;
  const std::optional<size_t> given = program.given_command();
  if (!given.has_value()) return kExitUsage;
  const int code = commands[*given]();
  return code == kExitOk ? CheckOutput() : code;
}

}  // namespace
}  // namespace annulus

int main(int argc, char** argv) { return annulus::Main(argc, argv); }
