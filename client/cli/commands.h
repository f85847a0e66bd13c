#ifndef ANNULUS_CLIENT_CLI_COMMANDS_H_
#define ANNULUS_CLIENT_CLI_COMMANDS_H_

#include <functional>
#include <memory>

#include "base/command_line.h"

namespace annulus {

// The commands of `annulus`, one file each. Add…Command() adds a command to the program and returns
// the function that runs it. Call the function if the command was named; it returns the exit code.
using Command = std::function<int()>;
Command AddAttendCommand(CommandLine* program);
Command AddGradientsCommand(CommandLine* program);
Command AddMergeCommand(CommandLine* program);
Command AddCancelCommand(CommandLine* program);
Command AddReleaseCommand(CommandLine* program);
Command AddShardCommand(CommandLine* program);
Command AddUnshardCommand(CommandLine* program);
Command AddPlanCommand(CommandLine* program);
Command AddClusterCommand(CommandLine* program);
Command AddServeCommand(CommandLine* program);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_COMMANDS_H_
