#ifndef ANNULUS_CLIENT_CLI_COMMANDS_H_
#define ANNULUS_CLIENT_CLI_COMMANDS_H_

#include <functional>
#include <memory>

#include "CLI/CLI.hpp"

namespace annulus {

// The commands of `annulus`, one file each. Add…Command() adds a command to the program and returns
// the function that runs it. Call the function if the command was named; it returns the exit code.
using Command = std::function<int()>;
Command AddAttendCommand(CLI::App* program);
Command AddGradientsCommand(CLI::App* program);
Command AddMergeCommand(CLI::App* program);
Command AddCancelCommand(CLI::App* program);
Command AddReleaseCommand(CLI::App* program);
Command AddShardCommand(CLI::App* program);
Command AddUnshardCommand(CLI::App* program);
Command AddPlanCommand(CLI::App* program);
Command AddClusterCommand(CLI::App* program);
Command AddServeCommand(CLI::App* program);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_COMMANDS_H_
