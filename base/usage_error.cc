#include "base/usage_error.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/nearest.h"
#include "base/printable.h"

namespace annulus {
namespace {

// The command that was being read.
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
  const std::string meant = absl::StartsWith(written, "--") ? Nearest(written, flags) : "";
  if (!meant.empty()) absl::StrAppend(&text, "; did you mean ", meant, "?");
  return text;
}

}  // namespace

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
  return PrintableLine(text);
}

}  // namespace annulus
