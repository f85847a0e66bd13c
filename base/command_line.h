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

// The fault of a command line, as one line of text that is safe on a terminal. Uses CLI11's message
// unless there is a clearer one. `error` must have been thrown by `app`.
std::string TellUsageError(const CLI::App& app, const CLI::ParseError& error);

// Command lines of all programs: CLI11 with common units, ranges and exit codes. Every Add function
// takes the initial value of *value as the default; --help shows it with the unit and the range.
// ParseCommandLine refuses a value that is outside the range or has another form. `value` must
// outlive the parse. Not thread-safe.

struct Flag {
  // The name with its dashes: "--lease".
  std::string name;
  // The effect of the flag, without unit, range and default.
  std::string help;
};

// Both ends are allowed values.
template <typename T>
struct Range {
  T min;
  T max;
};

// A whole number. `unit` is a plural noun: "workers".
CLI::Option* AddInteger(CLI::App* app, const Flag& flag, Range<int64_t> range, int64_t* value,
                        const std::string& unit);
// A duration: "250ms", "30s", "1h30m", or 0 without a unit.
CLI::Option* AddDuration(CLI::App* app, const Flag& flag, Range<absl::Duration> range,
                         absl::Duration* value);
// A size: "64MiB", "2GB", or a number of bytes without a unit.
CLI::Option* AddBytes(CLI::App* app, const Flag& flag, Range<int64_t> range, int64_t* value);
// AddBytes, which also accepts 0. `help` must say what 0 means.
CLI::Option* AddBytesOrZero(CLI::App* app, const Flag& flag, Range<int64_t> range, int64_t* value);
// HOST:PORT with a port of 0 to 65535. An IPv6 host is in brackets.
CLI::Option* AddAddress(CLI::App* app, const Flag& flag, std::string* value);
// One of `choices`. '_' in the given word equals '-'.
CLI::Option* AddChoice(CLI::App* app, const Flag& flag, const std::vector<std::string>& choices,
                       std::string* value);
// The path of a file; not empty. Does not check that the file exists.
CLI::Option* AddFile(CLI::App* app, const Flag& flag, std::string* value);
// AddFile for a flag that may be repeated. The files keep their order.
CLI::Option* AddFiles(CLI::App* app, const Flag& flag, std::vector<std::string>* values);
// A name whose length is within `characters`.
CLI::Option* AddName(CLI::App* app, const Flag& flag, Range<int64_t> characters,
                     std::string* value);
// Text of another form. --help shows `form` ("HOST[:PORT]"). `store` keeps the text, or returns an
// error that says what is wrong with it and keeps nothing.
CLI::Option* AddText(CLI::App* app, const Flag& flag, const std::string& form,
                     const std::string& initial,
                     std::function<absl::Status(const std::string& text)> store);
// A flag without a value, --flag, or with one: --flag=true, --flag=false. With std::optional,
// absent means not given.
CLI::Option* AddSwitch(CLI::App* app, const Flag& flag, std::optional<bool>* value);
CLI::Option* AddSwitch(CLI::App* app, const Flag& flag, bool* value);
// Adds --log-level and --log-format.
void AddLogFlags(CLI::App* app, LogOptions* options);

// Parses the command line; adds --version first. Returns nullopt if the program should continue,
// else its exit code. It is 0 after --help or --version, which write to standard output. It is
// kUsageExitCode after an error, which writes one line to standard error. No exception of CLI11
// leaves this function.
std::optional<int> ParseCommandLine(CLI::App* app, int argc, const char* const* argv);
constexpr int kUsageExitCode = 2;

// The parsers of the flags, for other text of the same form. INVALID_ARGUMENT describes the fault.
absl::StatusOr<int64_t> ParseBytes(absl::string_view text);
absl::StatusOr<std::pair<std::string, int>> ParseAddress(absl::string_view text);
// ParseAddress, which also accepts HOST alone, as port 0.
absl::StatusOr<std::pair<std::string, int>> ParseHost(absl::string_view text);
// True if a host of an address stands for all addresses of the machine: "0.0.0.0", "[::]". A
// program can listen there, but clients cannot connect to it.
bool IsEveryAddress(const std::string& host);
// The size in the largest binary unit that divides it: "64MiB" for 67108864.
std::string FormatBytes(int64_t bytes);

}  // namespace annulus

#endif  // ANNULUS_BASE_COMMAND_LINE_H_
