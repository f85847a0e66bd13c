#ifndef ANNULUS_BASE_COMMAND_LINE_H_
#define ANNULUS_BASE_COMMAND_LINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/log.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace annulus {

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

// A flag that was added to a command line. A handle: copies stand for the same flag. Valid while
// its command line is.
class AddedFlag {
 public:
  explicit AddedFlag(CLI::Option* option) : option_(option) {}
  AddedFlag& Required();
  // This flag is refused without the other one, or with it.
  AddedFlag& Needs(const AddedFlag& other);
  AddedFlag& Excludes(const AddedFlag& other);
  // The value of this environment variable where the flag is not given.
  AddedFlag& FromEnvironment(const std::string& name);
  // --help shows no default.
  AddedFlag& HideDefault();
  // After ParseCommandLine.
  bool given() const;
  // The name with its dashes.
  std::string name() const;

 private:
  CLI::Option* option_;
};

// A program's command line or one of its commands. CLI11's types end behind it, so that a source
// with flags does not compile them. Not thread-safe.
//
//   CommandLine program("annulus", "Exact attention as a service.");
//   CommandLine* cancel = program.AddCommand("cancel", "End a job");
//   AddName(cancel, {"--job", "Job to end"}, {1, 64}, &job).Required();
//   if (const std::optional<int> code = ParseCommandLine(&program, argc, argv)) return *code;
class CommandLine {
 public:
  CommandLine(const std::string& name, const std::string& about);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // The command belongs to this command line.
  CommandLine* AddCommand(const std::string& name, const std::string& about);
  // One command must be given; --help ends with `footer`.
  void RequireCommand(const std::string& footer);
  // Names of the commands, in the order of AddCommand.
  std::vector<std::string> command_names() const;
  // After ParseCommandLine: the number of the command that was given, in that order.
  std::optional<size_t> given_command() const;
  // A flag that was added, by its name with the dashes; absent if there is none.
  std::optional<AddedFlag> Find(const std::string& flag) const;

  CLI::App* app() const { return app_; }  // For the Add functions.

 private:
  explicit CommandLine(CLI::App* app);

  std::unique_ptr<CLI::App> program_;  // Null for a command.
  CLI::App* app_;
  std::vector<std::unique_ptr<CommandLine>> commands_;
};

// A whole number. `unit` is a plural noun: "workers".
AddedFlag AddInteger(CommandLine* app, const Flag& flag, Range<int64_t> range, int64_t* value,
                     const std::string& unit);
// A duration: "250ms", "30s", "1h30m", or 0 without a unit.
AddedFlag AddDuration(CommandLine* app, const Flag& flag, Range<absl::Duration> range,
                      absl::Duration* value);
// A size: "64MiB", "2GB", or a number of bytes without a unit.
AddedFlag AddBytes(CommandLine* app, const Flag& flag, Range<int64_t> range, int64_t* value);
// AddBytes, which also accepts 0. `help` must say what 0 means.
AddedFlag AddBytesOrZero(CommandLine* app, const Flag& flag, Range<int64_t> range, int64_t* value);
// HOST:PORT with a port of 0 to 65535. An IPv6 host is in brackets.
AddedFlag AddAddress(CommandLine* app, const Flag& flag, std::string* value);
// One of `choices`. '_' in the given word equals '-'.
AddedFlag AddChoice(CommandLine* app, const Flag& flag, const std::vector<std::string>& choices,
                    std::string* value);
// The path of a file; not empty. Does not check that the file exists.
AddedFlag AddFile(CommandLine* app, const Flag& flag, std::string* value);
// AddFile for a flag that may be repeated. The files keep their order.
AddedFlag AddFiles(CommandLine* app, const Flag& flag, std::vector<std::string>* values);
// Text of the form `form`, given any number of times; `check` says what is wrong with one.
AddedFlag AddTexts(CommandLine* app, const Flag& flag, const std::string& form,
                   std::function<absl::Status(const std::string& text)> check,
                   std::vector<std::string>* values);
// A name whose length is within `characters`.
AddedFlag AddName(CommandLine* app, const Flag& flag, Range<int64_t> characters,
                  std::string* value);
// Text of another form. --help shows `form` ("HOST[:PORT]"). `store` keeps the text, or returns an
// error that says what is wrong with it and keeps nothing.
AddedFlag AddText(CommandLine* app, const Flag& flag, const std::string& form,
                  const std::string& initial,
                  std::function<absl::Status(const std::string& text)> store);
// A flag without a value, --flag, or with one: --flag=true, --flag=false. With std::optional,
// absent means not given.
AddedFlag AddSwitch(CommandLine* app, const Flag& flag, std::optional<bool>* value);
AddedFlag AddSwitch(CommandLine* app, const Flag& flag, bool* value);
// Adds --log-level and --log-format.
void AddLogFlags(CommandLine* app, LogOptions* options);

// Parses the command line; adds --version first. Returns nullopt if the program should continue,
// else its exit code. It is 0 after --help or --version, which write to standard output. It is
// kUsageExitCode after an error, which writes one line to standard error. No exception of CLI11
// leaves this function.
std::optional<int> ParseCommandLine(CommandLine* app, int argc, const char* const* argv);
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
