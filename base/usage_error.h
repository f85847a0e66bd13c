#ifndef ANNULUS_BASE_USAGE_ERROR_H_
#define ANNULUS_BASE_USAGE_ERROR_H_

#include <string>

#include "CLI/CLI.hpp"

namespace annulus {

// What is wrong with a command line, in one line: CLI11's words where they are good ones. `app`
// has thrown `error`.
std::string TellUsageError(const CLI::App& app, const CLI::ParseError& error);

}  // namespace annulus

#endif  // ANNULUS_BASE_USAGE_ERROR_H_
