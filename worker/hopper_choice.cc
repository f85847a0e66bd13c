#include "worker/hopper_choice.h"

#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "attention/error.h"
#include "base/log.h"

namespace annulus {

std::string HopperVerdict(const ChildEnd& end) {
  const std::string said =
      absl::StrReplaceAll(absl::StripAsciiWhitespace(end.output), {{"\n", "; "}});
  switch (end.kind) {
    case ChildEnd::Kind::kNotStarted:
      return absl::StrCat("was not checked: ", std::strerror(end.code));
    case ChildEnd::Kind::kSignal:
      return absl::StrCat("crashed in its check (signal ", end.code, ")");
    case ChildEnd::Kind::kLate:
      return "hung in its check";
    case ChildEnd::Kind::kExited:
      break;
  }
  if (end.code == 0 && said == kHopperPassed) return "";
  return absl::StrCat("failed its check: ",
                      said.empty() ? absl::StrCat("exit code ", end.code) : said);
}

std::string HopperChoice::kernels() const { return on ? "cuda/wgmma+mma" : "cuda/mma"; }

std::string HopperChoice::note() const {
  if (verdict.empty()) return "";
  return absl::StrCat(" (hopper ", verdict.substr(0, verdict.find(':')), ")");
}

absl::StatusOr<HopperChoice> ChooseHopper(const std::string& asked, bool sm_90,
                                          const std::function<ChildEnd()>& check) {
  HopperChoice choice;
  if (asked == "portable") return choice;
  if (!sm_90) {
    if (asked == "auto") return choice;
    return absl::FailedPreconditionError(
        "the CUDA kernel \"hopper\" needs a GPU of compute capability 9.0");
  }
  choice.verdict = HopperVerdict(check());
  choice.on = choice.verdict.empty();
  if (choice.on) {
    LogInfo(kNoJob, "the kernel for Hopper passed its check");
    return choice;
  }
  if (asked == "auto") {
    LogWarning(kNoJob, "the kernel for Hopper ", choice.verdict, "; the portable one serves");
    return choice;
  }
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   absl::StrCat("the CUDA kernel \"hopper\" ", choice.verdict),
                   {"KERNEL_SELF_CHECK_FAILED", {{"path", "hopper"}}, {}, {}});
}

}  // namespace annulus
