#ifndef ANNULUS_BASE_LOG_H_
#define ANNULUS_BASE_LOG_H_

#include <ostream>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace annulus {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };

// Reads "debug", "info", "warning", "error"; "text", "json". INVALID_ARGUMENT on anything else.
absl::StatusOr<LogLevel> ParseLogLevel(absl::string_view text);
absl::StatusOr<LogFormat> ParseLogFormat(absl::string_view text);

struct LogOptions {
  // Lines below it are dropped before their text is made.
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;
  // What every line says of its process: "coordinator", "worker-3". May be empty.
  std::string component;
  // Where lines go; null is standard error. It must outlive the last line. Not owned.
  std::ostream* stream = nullptr;
};

// Configures the process's log. Call it once, before other threads log; without it the defaults of
// LogOptions hold. A second call replaces the first: for tests.
void InitLogging(const LogOptions& options);

// What a line that belongs to no job gives as its job.
inline constexpr absl::string_view kNoJob = "";

// Whether a line of this level would be written.
bool LogEnabled(LogLevel level);

// Writes one line: time (UTC), level, component, job id, message. Thread-safe, never fails, and
// waits for nobody who does not read standard error (base/nonblocking_sink.h). Text is
// for people: the message as it is, by base/escape_for_terminal.h, so that one call is one line;
// what parses lines takes JSON, whose fields are time, level, component, job, message, and the
// absent ones are left out.
void WriteLog(LogLevel level, absl::string_view job, absl::string_view message);

// LogInfo(job_id, "placed on ", count, " workers"): parts as for absl::StrCat.
template <typename... Parts>
void LogAt(LogLevel level, absl::string_view job, const Parts&... parts) {
  if (LogEnabled(level)) WriteLog(level, job, absl::StrCat(parts...));
}
template <typename... Parts>
void LogDebug(absl::string_view job, const Parts&... parts) {
  LogAt(LogLevel::kDebug, job, parts...);
}
template <typename... Parts>
void LogInfo(absl::string_view job, const Parts&... parts) {
  LogAt(LogLevel::kInfo, job, parts...);
}
template <typename... Parts>
void LogWarning(absl::string_view job, const Parts&... parts) {
  LogAt(LogLevel::kWarning, job, parts...);
}
template <typename... Parts>
void LogError(absl::string_view job, const Parts&... parts) {
  LogAt(LogLevel::kError, job, parts...);
}

}  // namespace annulus

#endif  // ANNULUS_BASE_LOG_H_
