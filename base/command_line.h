#ifndef ANNULUS_BASE_COMMAND_LINE_H_
#define ANNULUS_BASE_COMMAND_LINE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/log.h"

namespace annulus {

// What is wrong with a command line, in one line: CLI11's words where they are good ones. `app`
// has thrown `error`.
std::string TellUsageError(const CLI::App& app, const CLI::ParseError& error);

// The command lines of our programs: CLI11 with our units, ranges and exit codes. Every Add
// function takes the initial content of *value as the default, which --help shows with the unit and
// the range; a value outside the range, or of another form, is refused by ParseCommandLine.

struct Flag {
  // With its dashes: "--lease".
  std::string name;
  // What it does, without unit, range and default.
  std::string help;
};

// Both ends are allowed values.
template <typename T>
struct Range {
  T min;
  T max;
};

// A whole number; `unit` is a noun in the plural: "workers".
CLI::Option* AddInteger(CLI::App* app, const Flag& flag, Range<int64_t> range, int64_t* value,
                        const std::string& unit);
// "250ms", "30s", "1h30m"; a bare 0.
CLI::Option* AddDuration(CLI::App* app, const Flag& flag, Range<absl::Duration> range,
                         absl::Duration* value);
// "64MiB", "2GB", or a bare number of bytes.
CLI::Option* AddBytes(CLI::App* app, const Flag& flag, Range<int64_t> range, int64_t* value);
// The same, or 0, of which `help` says what it stands for.
CLI::Option* AddBytesOrZero(CLI::App* app, const Flag& flag, Range<int64_t> range, int64_t* value);
// HOST:PORT with a port of 0 to 65535; an IPv6 host in brackets.
CLI::Option* AddAddress(CLI::App* app, const Flag& flag, std::string* value);
// One of the choices; '_' in a given word equals '-'.
CLI::Option* AddChoice(CLI::App* app, const Flag& flag, const std::vector<std::string>& choices,
                       std::string* value);
// The path of a file; whether it is there is not asked.
CLI::Option* AddFile(CLI::App* app, const Flag& flag, std::string* value);
// The same, given once for each of several files; they keep their order.
CLI::Option* AddFiles(CLI::App* app, const Flag& flag, std::vector<std::string>* values);
// A name of so many characters.
CLI::Option* AddName(CLI::App* app, const Flag& flag, Range<int64_t> characters,
                     std::string* value);
// Text of another form, as --help shows it ("HOST[:PORT]"). `store` keeps the text, or says what is
// wrong with it and keeps nothing.
CLI::Option* AddText(CLI::App* app, const Flag& flag, const std::string& form,
                     const std::string& initial,
                     std::function<absl::Status(const std::string& text)> store);
// A flag without a value, --flag, or --flag=true, that may be switched off as well, --flag=false;
// absent: not given.
CLI::Option* AddSwitch(CLI::App* app, const Flag& flag, std::optional<bool>* value);
CLI::Option* AddSwitch(CLI::App* app, const Flag& flag, bool* value);
// --log-level and --log-format.
void AddLogFlags(CLI::App* app, LogOptions* options);

// Parses, and adds --version. Nothing: the program goes on. Else the exit code to end with: 0 after
// --help or --version (on standard output), 2 after one line on standard error that names what is
// wrong. The wall at which CLI11's exceptions end.
std::optional<int> ParseCommandLine(CLI::App* app, int argc, const char* const* argv);
constexpr int kUsageExitCode = 2;

// The parsers behind the flags, for other text of the same form. INVALID_ARGUMENT says what is
// wrong.
absl::StatusOr<int64_t> ParseBytes(absl::string_view text);
absl::StatusOr<std::pair<std::string, int>> ParseAddress(absl::string_view text);
// The same, or HOST alone: port 0.
absl::StatusOr<std::pair<std::string, int>> ParseHost(absl::string_view text);
// Whether a host of an address stands for all addresses of the machine: "0.0.0.0", "[::]". One can
// listen there, but not be reached.
bool IsEveryAddress(const std::string& host);
// "64MiB" of 67108864: the largest unit that divides it.
std::string FormatBytes(int64_t bytes);

}  // namespace annulus

#endif  // ANNULUS_BASE_COMMAND_LINE_H_
