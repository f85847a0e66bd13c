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

// Parse "debug", "info", "warning", "error"; "text", "json". INVALID_ARGUMENT for other text.
absl::StatusOr<LogLevel> ParseLogLevel(absl::string_view text);
absl::StatusOr<LogFormat> ParseLogFormat(absl::string_view text);

struct LogOptions {
  // Lines below this level are dropped before their text is formatted.
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;
  // The process, as named in every line: "coordinator", "worker-3". May be empty.
  std::string component;
  // The destination; nullptr: standard error. Not owned; must outlive the last line.
  std::ostream* stream = nullptr;
};

// Configures the log of the process. Call it once, before other threads log. Without a call, the
// defaults of LogOptions apply. A second call, in tests, replaces the first.
void InitLogging(const LogOptions& options);

// The `job` of a line that belongs to no job.
inline constexpr absl::string_view kNoJob = "";

// True if a line of this level is written.
bool LogEnabled(LogLevel level);

// Writes one line: time (UTC), level, component, job id, message. Thread-safe, never fails, and
// waits only briefly if standard error is not read (base/nonblocking_sink.h).
//
// Text is for people: the message is escaped (base/escape_for_terminal.h), so one call writes one
// line. JSON is for programs: its fields are time, level, component, job and message; empty fields
// are left out.
void WriteLog(LogLevel level, absl::string_view job, absl::string_view message);

// LogInfo(job_id, "placed on ", count, " workers"). `parts` are those of absl::StrCat.
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
