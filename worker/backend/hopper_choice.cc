#include "worker/backend/hopper_choice.h"

#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/error.h"
#include "base/log.h"
#include "base/status_macros.h"

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
  const auto brief = [](const std::string& text) { return text.substr(0, text.find(':')); };
  if (!verdict.empty()) return absl::StrCat(" (hopper ", brief(verdict), ")");
  if (gradients_verdict.empty()) return "";
  return absl::StrCat(" (hopper gradients ", brief(gradients_verdict), ")");
}

namespace {

// Returns the verdict and logs it, unless it becomes an error.
absl::StatusOr<std::string> Judge(const std::string& asked, absl::string_view kernel,
                                  const ChildEnd& end) {
  std::string verdict = HopperVerdict(end);
  if (verdict.empty()) {
    LogInfo(kNoJob, "the kernel for ", kernel, " passed its check");
    return verdict;
  }
  if (asked == "auto") {
    LogWarning(kNoJob, "the kernel for ", kernel, " ", verdict, "; the portable kernel is used");
    return verdict;
  }
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   absl::StrCat("the CUDA kernel for ", kernel, " ", verdict),
                   {"KERNEL_SELF_CHECK_FAILED", {{"path", "hopper"}}, {}, {}});
}

}  // namespace

absl::StatusOr<HopperChoice> ChooseHopper(const std::string& asked, bool sm_90,
                                          const HopperCheck& check) {
  HopperChoice choice;
  if (asked == "portable") return choice;
  if (!sm_90) {
    if (asked == "auto") return choice;
    return absl::FailedPreconditionError(
        "the CUDA kernel \"hopper\" needs a GPU of compute capability 9.0");
  }
  ASSIGN_OR_RETURN(choice.verdict, Judge(asked, "Hopper", check(Operation::kForward)));
  choice.on = choice.verdict.empty();
  if (!choice.on) return choice;
  ASSIGN_OR_RETURN(choice.gradients_verdict,
                   Judge(asked, "gradients on Hopper", check(Operation::kGradients)));
  choice.gradients = choice.gradients_verdict.empty();
  return choice;
}

}  // namespace annulus
