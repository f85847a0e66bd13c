#include "base/log.h"

#include <unistd.h>

#include <memory>
#include <utility>

#include "base/escape_for_terminal.h"
#include "base/nonblocking_sink.h"
#include "nlohmann/json.hpp"
#include "spdlog/logger.h"
#include "spdlog/pattern_formatter.h"
#include "spdlog/sinks/ostream_sink.h"

namespace annulus {
namespace {

// Long enough for a slow reader.
constexpr absl::Duration kPatience = absl::Milliseconds(100);

struct Log {
  LogFormat format;
  std::string component;
  std::shared_ptr<spdlog::logger> logger;
};

spdlog::level::level_enum SpdlogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// Adds to each line its time and level, which only the logger has. `%v` is the rest.
const char* Pattern(LogFormat format) {
  return format == LogFormat::kJson ? R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v)"
                                    : "%Y-%m-%dT%H:%M:%S.%eZ %L %v";
}

std::string JsonRest(const std::string& component, absl::string_view job,
                     absl::string_view message) {
  nlohmann::ordered_json line;
  if (!component.empty()) line["component"] = component;
  if (!job.empty()) line["job"] = std::string(job);
  line["message"] = std::string(message);
  // Text from elsewhere may not be UTF-8, and dump() would throw.
  const auto replace = nlohmann::ordered_json::error_handler_t::replace;
  return line.dump(-1, ' ', false, replace).substr(1);
}

std::string TextRest(const std::string& component, absl::string_view job,
                     absl::string_view message) {
  std::string line;
  if (!component.empty()) absl::StrAppend(&line, component, " ");
  if (!job.empty()) absl::StrAppend(&line, "job=", EscapeForTerminal(job), " ");
  absl::StrAppend(&line, EscapeForTerminal(message));
  return line;
}

std::string Rest(LogFormat format, const std::string& component, absl::string_view job,
                 absl::string_view message) {
  return format == LogFormat::kJson ? JsonRest(component, job, message)
                                    : TextRest(component, job, message);
}

std::unique_ptr<Log> MakeLog(const LogOptions& options) {
  std::shared_ptr<spdlog::sinks::sink> sink;
  if (options.stream != nullptr) {
    sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(*options.stream, true);
  } else {
    const LogFormat format = options.format;
    const std::string component = options.component;
    sink = std::make_shared<NonblockingSink>(
        STDERR_FILENO, kPatience, [format, component](int64_t lines) {
          return Rest(format, component, kNoJob,
                      absl::StrCat("standard error was blocked: ", lines, " lines were dropped"));
        });
  }
  auto logger = std::make_shared<spdlog::logger>("annulus", std::move(sink));
  logger->set_level(SpdlogLevel(options.level));
  logger->flush_on(spdlog::level::debug);
  logger->set_formatter(std::make_unique<spdlog::pattern_formatter>(
      Pattern(options.format), spdlog::pattern_time_type::utc));
  return std::make_unique<Log>(Log{options.format, options.component, std::move(logger)});
}

std::unique_ptr<Log>& ProcessLog() {
  // Never destroyed: a thread may log while the process exits.
  static auto* log = new std::unique_ptr<Log>(MakeLog({}));
  return *log;
}

}  // namespace

absl::StatusOr<LogLevel> ParseLogLevel(absl::string_view text) {
  if (text == "debug") return LogLevel::kDebug;
  if (text == "info") return LogLevel::kInfo;
  if (text == "warning") return LogLevel::kWarning;
  if (text == "error") return LogLevel::kError;
  return absl::InvalidArgumentError(
      absl::StrCat("log level is debug, info, warning or error, not '", text, "'"));
}

absl::StatusOr<LogFormat> ParseLogFormat(absl::string_view text) {
  if (text == "text") return LogFormat::kText;
  if (text == "json") return LogFormat::kJson;
  return absl::InvalidArgumentError(absl::StrCat("log format is text or json, not '", text, "'"));
}

void InitLogging(const LogOptions& options) { ProcessLog() = MakeLog(options); }

bool LogEnabled(LogLevel level) { return ProcessLog()->logger->should_log(SpdlogLevel(level)); }

void WriteLog(LogLevel level, absl::string_view job, absl::string_view message) {
  const Log& log = *ProcessLog();
  const std::string rest = Rest(log.format, log.component, job, message);
  log.logger->log(SpdlogLevel(level), spdlog::string_view_t(rest.data(), rest.size()));
}

}  // namespace annulus
