#include "client/cli/flags/layout_flag.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/command_line.h"

namespace annulus {

AddedFlag AddTensorLayout(CommandLine* app, const std::string& of, std::string* name) {
  std::string named;
  std::vector<std::string> choices = {"auto"};
  for (const std::string& each : TensorLayoutNames()) {
    absl::StrAppend(&named, each, " ", DimensionNames(*TensorLayoutNamed(each)), ", ");
    choices.push_back(each);
  }
  return AddChoice(
      app,
      {"--tensor-layout", absl::StrCat("Dimensions of ", of, ": ", named,
                                       "or auto (thd or bshd, by the number of dimensions)")},
      choices, name);
}

std::optional<TensorLayout> TensorLayoutOf(const std::string& name) {
  if (name == "auto") return std::nullopt;
  return *TensorLayoutNamed(name);
}

}  // namespace annulus
