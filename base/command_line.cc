#include "base/command_line.h"

#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <iostream>
#include <limits>
#include <memory>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "base/escape_for_terminal.h"
#include "base/suggest_name.h"
#include "base/version.h"

namespace annulus {
namespace {

// The subcommand that was being parsed.
const CLI::App& CommandOf(const CLI::App& app) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  return parsed.empty() ? app : CommandOf(*parsed.back());
}

std::string Unexpected(const CLI::App& app) {
  const std::vector<std::string> words = app.remaining(/*recurse=*/true);
  if (words.empty()) return "";
  const std::string& first = words.front();
  const std::string written = first.substr(0, first.find('='));
  std::string text = absl::StrCat("not expected: ", absl::StrJoin(words, " "));
  std::vector<std::string> flags;
  for (const CLI::Option* option : CommandOf(app).get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back(absl::StrCat("--", name));
  }
  const std::string meant = absl::StartsWith(written, "--") ? SuggestName(written, flags) : "";
  if (!meant.empty()) absl::StrAppend(&text, "; did you mean ", meant, "?");
  return text;
}

std::string TellUsageError(const CLI::App& app, const CLI::ParseError& error) {
  std::string text = error.what();
  const std::string flag = text.substr(0, text.find(':'));
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const std::string unexpected = Unexpected(app);
    if (!unexpected.empty()) text = unexpected;
  } else if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    if (absl::StrContains(text, ": At Most 1 ")) text = absl::StrCat(flag, ": given twice");
    if (absl::EndsWith(text, " missing")) text = absl::StrCat(flag, ": its value is missing");
  }
  return EscapeForTerminal(text);
}

// `allowed` is the range as text.
template <typename T>
absl::Status StoreInRange(const T& parsed, const Range<T>& range, const std::string& text,
                          const std::string& allowed, T* value) {
  if (parsed < range.min || parsed > range.max) {
    return absl::InvalidArgumentError(absl::StrCat(text, " is out of range, ", allowed));
  }
  *value = parsed;
  return absl::OkStatus();
}

struct Unit {
  absl::string_view name;
  int64_t bytes;
};
constexpr Unit kUnits[] = {
    {"TiB", int64_t{1} << 40},
    {"GiB", int64_t{1} << 30},
    {"MiB", int64_t{1} << 20},
    {"KiB", int64_t{1} << 10},
    {"TB", 1000000000000},
    {"GB", 1000000000},
    {"MB", 1000000},
    {"KB", 1000},
    {"B", 1},
};

AddedFlag AddAnySwitch(CommandLine* app, const Flag& flag, std::function<void(bool on)> store) {
  // CLI11 accepts any number as a flag's value and fails in an undocumented way on other text.
  const auto what_is_wrong = [](const std::string& text) {
    const bool is_one = text == "true" || text == "false";
    return is_one ? std::string() : absl::StrCat("'", text, "' is not one of true|false");
  };
  return AddedFlag(
      app->app()
          ->add_flag_function(
              flag.name, [store = std::move(store)](int64_t sum) { store(sum > 0); }, flag.help)
          ->check(what_is_wrong));
}

std::string TextOf(const Range<int64_t>& bytes) {
  return absl::StrCat(FormatBytes(bytes.min), " to ", FormatBytes(bytes.max));
}

}  // namespace

absl::StatusOr<int64_t> ParseBytes(absl::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const absl::string_view unit = absl::StripAsciiWhitespace(text.substr(digits));
  int64_t scale = unit.empty() ? 1 : 0;
  for (const Unit& known : kUnits) {
    if (unit == known.name) scale = known.bytes;
  }
  int64_t count = 0;
  if (scale == 0 || !absl::SimpleAtoi(text.substr(0, digits), &count) ||
      count > std::numeric_limits<int64_t>::max() / scale) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not a number of bytes such as 64MiB or 2GB"));
  }
  return count * scale;
}

std::string FormatBytes(int64_t bytes) {
  for (const Unit& unit : kUnits) {
    const bool binary = unit.name.size() == 3 || unit.bytes == 1;
    if (binary && bytes >= unit.bytes && bytes % unit.bytes == 0) {
      return absl::StrCat(bytes / unit.bytes, unit.name);
    }
  }
  return absl::StrCat(bytes, "B");
}

absl::StatusOr<std::pair<std::string, int>> ParseAddress(absl::string_view text) {
  const absl::Status wrong = absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not HOST:PORT with a port of 0 to 65535"));
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) return wrong;
  const absl::string_view host = text.substr(0, colon);
  const absl::string_view port_text = text.substr(colon + 1);
  const bool bracketed = host.front() == '[' && host.back() == ']' && host.size() > 2;
  if (!bracketed && host.find_first_of(":[] ") != absl::string_view::npos) return wrong;
  int port = 0;
  if (port_text.empty() || !std::all_of(port_text.begin(), port_text.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(port_text, &port) || port > 65535) {
    return wrong;
  }
  return std::make_pair(std::string(host), port);
}

absl::StatusOr<std::pair<std::string, int>> ParseHost(absl::string_view text) {
  for (const std::string& address : {std::string(text), absl::StrCat(text, ":0")}) {
    if (auto parsed = ParseAddress(address); parsed.ok()) return parsed;
  }
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is neither HOST nor HOST:PORT"));
}

bool IsEveryAddress(const std::string& host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* list = nullptr;
  const std::string bare = bracketed ? host.substr(1, host.size() - 2) : host;
  if (getaddrinfo(bare.c_str(), nullptr, &hints, &list) != 0) return false;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  if (list->ai_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(list->ai_addr)->sin_addr.s_addr == INADDR_ANY;
  }
  return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(list->ai_addr)->sin6_addr);
}

AddedFlag AddText(CommandLine* app, const Flag& flag, const std::string& form,
                  const std::string& initial,
                  std::function<absl::Status(const std::string& text)> store) {
  // CLI11 expects an exception for an error; it reaches ParseCommandLine.
  auto parse = [name = flag.name, store = std::move(store)](const std::string& text) {
    const absl::Status status = store(text);
    if (!status.ok()) {
      throw CLI::ValidationError(name, std::string(status.message()));
    }
  };
  CLI::Option* option = app->app()->add_option_function<std::string>(flag.name, parse, flag.help);
  option->type_name(form);
  if (!initial.empty()) option->default_str(initial);
  return AddedFlag(option);
}

AddedFlag AddInteger(CommandLine* app, const Flag& flag, Range<int64_t> range, int64_t* value,
                     const std::string& unit) {
  const std::string allowed = absl::StrCat(range.min, " to ", range.max, " ", unit);
  return AddText(
      app, flag, absl::StrCat("NUMBER, ", allowed), absl::StrCat(*value),
      [=](const std::string& text) -> absl::Status {
        int64_t parsed = 0;
        if (!absl::SimpleAtoi(text, &parsed)) {
          return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not a whole number"));
        }
        return StoreInRange(parsed, range, text, allowed, value);
      });
}

AddedFlag AddDuration(CommandLine* app, const Flag& flag, Range<absl::Duration> range,
                      absl::Duration* value) {
  const std::string allowed =
      absl::StrCat(absl::FormatDuration(range.min), " to ", absl::FormatDuration(range.max));
  return AddText(app, flag, absl::StrCat("TIME, ", allowed), absl::FormatDuration(*value),
                 [=](const std::string& text) -> absl::Status {
                   absl::Duration parsed;
                   if (!absl::ParseDuration(text, &parsed)) {
                     return absl::InvalidArgumentError(
                         absl::StrCat("'", text, "' is not a time such as 250ms or 30s"));
                   }
                   return StoreInRange(parsed, range, text, allowed, value);
                 });
}

AddedFlag AddBytes(CommandLine* app, const Flag& flag, Range<int64_t> range, int64_t* value) {
  return AddText(app, flag, absl::StrCat("BYTES, ", TextOf(range)), FormatBytes(*value),
                 [=](const std::string& text) -> absl::Status {
                   const absl::StatusOr<int64_t> parsed = ParseBytes(text);
                   if (!parsed.ok()) return parsed.status();
                   return StoreInRange(*parsed, range, text, TextOf(range), value);
                 });
}

AddedFlag AddBytesOrZero(CommandLine* app, const Flag& flag, Range<int64_t> range, int64_t* value) {
  const std::string allowed = absl::StrCat("0 or ", TextOf(range));
  return AddText(app, flag, absl::StrCat("BYTES, ", allowed),
                 *value == 0 ? "0" : FormatBytes(*value),
                 [=](const std::string& text) -> absl::Status {
                   const absl::StatusOr<int64_t> parsed = ParseBytes(text);
                   if (!parsed.ok()) return parsed.status();
                   const Range<int64_t> zero = {0, 0};
                   return StoreInRange(*parsed, *parsed == 0 ? zero : range, text, allowed, value);
                 });
}

AddedFlag AddAddress(CommandLine* app, const Flag& flag, std::string* value) {
  return AddText(app, flag, "HOST:PORT", *value, [=](const std::string& text) -> absl::Status {
    const auto parsed = ParseAddress(text);
    if (parsed.ok()) *value = text;
    return parsed.status();
  });
}

AddedFlag AddChoice(CommandLine* app, const Flag& flag, const std::vector<std::string>& choices,
                    std::string* value) {
  const std::string form = absl::StrJoin(choices, "|");
  return AddText(app, flag, form, *value, [=](const std::string& text) -> absl::Status {
    const std::string word = absl::StrReplaceAll(text, {{"_", "-"}});
    if (std::find(choices.begin(), choices.end(), word) == choices.end()) {
      return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not one of ", form));
    }
    *value = word;
    return absl::OkStatus();
  });
}

AddedFlag AddFile(CommandLine* app, const Flag& flag, std::string* value) {
  return AddText(app, flag, "[DIR/]FILE", *value, [=](const std::string& text) -> absl::Status {
    if (text.empty()) return absl::InvalidArgumentError("the file name is empty");
    *value = text;
    return absl::OkStatus();
  });
}

AddedFlag AddTexts(CommandLine* app, const Flag& flag, const std::string& form,
                   std::function<absl::Status(const std::string& text)> check,
                   std::vector<std::string>* values) {
  const auto what_is_wrong = [check = std::move(check)](const std::string& text) {
    return std::string(check(text).message());
  };
  return AddedFlag(app->app()
                       ->add_option(flag.name, *values, flag.help)
                       ->type_name(form)
                       ->check(what_is_wrong)
                       ->allow_extra_args(false)
                       ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll));
}

AddedFlag AddFiles(CommandLine* app, const Flag& flag, std::vector<std::string>* values) {
  return AddTexts(
      app, flag, "[DIR/]FILE",
      [](const std::string& text) {
        return text.empty() ? absl::InvalidArgumentError("'' is no file") : absl::OkStatus();
      },
      values);
}

AddedFlag AddName(CommandLine* app, const Flag& flag, Range<int64_t> characters,
                  std::string* value) {
  const std::string form =
      absl::StrCat("NAME, ", characters.min, " to ", characters.max, " characters");
  return AddText(app, flag, form, *value, [=](const std::string& text) -> absl::Status {
    const auto size = static_cast<int64_t>(text.size());
    if (size < characters.min || size > characters.max) {
      return absl::InvalidArgumentError(absl::StrCat("the name has ", size,
                                                     " characters, allowed are ", characters.min,
                                                     " to ", characters.max));
    }
    *value = text;
    return absl::OkStatus();
  });
}

AddedFlag AddSwitch(CommandLine* app, const Flag& flag, bool* value) {
  return AddAnySwitch(app, flag, [=](bool on) { *value = on; });
}

AddedFlag AddSwitch(CommandLine* app, const Flag& flag, std::optional<bool>* value) {
  return AddAnySwitch(app, flag, [=](bool on) { *value = on; });
}

void AddLogFlags(CommandLine* app, LogOptions* options) {
  const Flag level{"--log-level", "Lowest level of the log lines that are written"};
  AddText(app, level, "debug|info|warning|error", "info", [=](const std::string& text) {
    const absl::StatusOr<LogLevel> parsed = ParseLogLevel(text);
    if (parsed.ok()) options->level = *parsed;
    return parsed.status();
  });
  const Flag format{"--log-format", "Format of the log lines on standard error"};
  AddText(app, format, "text|json", "text", [=](const std::string& text) {
    const absl::StatusOr<LogFormat> parsed = ParseLogFormat(text);
    if (parsed.ok()) options->format = *parsed;
    return parsed.status();
  });
}

AddedFlag& AddedFlag::Required() {
  option_->required();
  return *this;
}
AddedFlag& AddedFlag::Needs(const AddedFlag& other) {
  option_->needs(other.option_);
  return *this;
}
AddedFlag& AddedFlag::Excludes(const AddedFlag& other) {
  option_->excludes(other.option_);
  return *this;
}
AddedFlag& AddedFlag::FromEnvironment(const std::string& name) {
  option_->envname(name);
  return *this;
}
AddedFlag& AddedFlag::HideDefault() {
  option_->default_str("");
  return *this;
}
bool AddedFlag::given() const { return option_->count() > 0; }
std::string AddedFlag::name() const { return option_->get_name(); }

CommandLine::CommandLine(const std::string& name, const std::string& about)
    : program_(std::make_unique<CLI::App>(about, name)), app_(program_.get()) {}
CommandLine::CommandLine(CLI::App* app) : app_(app) {}
CommandLine::~CommandLine() = default;

CommandLine* CommandLine::AddCommand(const std::string& name, const std::string& about) {
  commands_.emplace_back(new CommandLine(app_->add_subcommand(name, about)));
  return commands_.back().get();
}

void CommandLine::RequireCommand(const std::string& footer) {
  app_->require_subcommand(1);
  app_->footer(footer);
}

std::vector<std::string> CommandLine::command_names() const {
  std::vector<std::string> names;
  for (const auto& command : commands_) names.push_back(command->app_->get_name());
  return names;
}

std::optional<size_t> CommandLine::given_command() const {
  for (size_t i = 0; i < commands_.size(); ++i) {
    if (commands_[i]->app_->parsed()) return i;
  }
  return std::nullopt;
}

std::optional<AddedFlag> CommandLine::Find(const std::string& flag) const {
  CLI::Option* const option = app_->get_option_no_throw(flag);
  if (option == nullptr) return std::nullopt;
  return AddedFlag(option);
}

std::optional<int> ParseCommandLine(CommandLine* command_line, int argc, const char* const* argv) {
  CLI::App* const app = command_line->app();
  try {
    app->set_version_flag("--version", absl::StrCat(app->get_name(), " ", kVersion),
                          "Print the version and exit");
    app->parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::Success& asked) {
    return app->exit(asked, std::cout, std::cerr);
  } catch (const CLI::ParseError& error) {
    std::cerr << absl::StrCat(app->get_name(), ": ", TellUsageError(*app, error),
                              " (see --help)\n");
    return kUsageExitCode;
  }
}

}  // namespace annulus
