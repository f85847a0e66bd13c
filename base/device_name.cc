#include "base/device_name.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace annulus {

absl::StatusOr<int> GpuNumber(absl::string_view device) {
  constexpr int kMostGpus = 1024;
  absl::string_view digits = device;
  int number = 0;
  if (absl::ConsumePrefix(&digits, "cuda:") && !digits.empty() && absl::ascii_isdigit(digits[0]) &&
      absl::SimpleAtoi(digits, &number) && number < kMostGpus) {
    return number;
  }
  return absl::InvalidArgumentError(absl::StrCat("'", device, "' is not cpu, auto or cuda:N"));
}

absl::Status CheckDeviceName(absl::string_view device) {
  if (device == "cpu" || device == "auto") return absl::OkStatus();
  return GpuNumber(device).status();
}

}  // namespace annulus
