#include "client/cli/plain_message.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace annulus {
namespace {

constexpr absl::string_view kNoConnection = "failed to connect to all addresses; last error: ";
constexpr absl::string_view kRefused = ": Failed to connect to remote host: ";
constexpr absl::string_view kNoName = "DNS resolution failed for ";

// Input: "… last error: UNKNOWN: ipv4:127.0.0.1:8001: Failed to connect to remote host: …".
std::string OfNoConnection(absl::string_view text) {
  for (const absl::string_view code : {"UNKNOWN: ", "UNAVAILABLE: ", "INTERNAL: "})
    absl::ConsumePrefix(&text, code);
  for (const absl::string_view family : {"ipv4:", "ipv6:"}) absl::ConsumePrefix(&text, family);
  const size_t refused = text.find(kRefused);
  if (refused == absl::string_view::npos) return absl::StrCat("cannot connect: ", text);
  return absl::StrCat("no Annulus at ", text.substr(0, refused), ": ",
                      text.substr(refused + kRefused.size()));
}

// Input: "DNS resolution failed for host:8001: C-ares status is not ARES_SUCCESS …: Domain name not
// found (attempt 2)".
std::string OfNoName(absl::string_view text) {
  const size_t end = text.find(": "), last = text.rfind(": ");
  if (end == absl::string_view::npos || last == end)
    return absl::StrCat("cannot find the host of ", text);
  return absl::StrCat("cannot find the host of ", text.substr(0, end), text.substr(last));
}

}  // namespace

std::string PlainMessage(const absl::Status& status) {
  absl::string_view text = status.message();
  if (absl::ConsumePrefix(&text, kNoConnection)) return OfNoConnection(text);
  if (absl::ConsumePrefix(&text, kNoName)) return OfNoName(text);
  if (absl::IsUnimplemented(status) && absl::StrContains(text, "http2 header with status:")) {
    return absl::StrCat("this address is an HTTP server, not Annulus (", text, ")");
  }
  if (text == "Deadline Exceeded") return "no answer came in time";
  if (!text.empty()) return std::string(text);
  return absl::IsUnimplemented(status) ? "the server does not have this method; check that "
                                         "--address is the coordinator's client port"
                                       : "the server gave no message";
}

}  // namespace annulus
