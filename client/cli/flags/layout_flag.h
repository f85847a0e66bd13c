#ifndef ANNULUS_CLIENT_CLI_FLAGS_LAYOUT_FLAG_H_
#define ANNULUS_CLIENT_CLI_FLAGS_LAYOUT_FLAG_H_

#include <optional>
#include <string>

#include "base/command_line.h"
#include "client/cli/files/tensor_layout.h"

namespace annulus {

// Adds --tensor-layout for the tensors `of`: "auto" (the default) or the name of a layout.
AddedFlag AddTensorLayout(CommandLine* app, const std::string& of, std::string* name);
// The layout with this name; nothing for "auto".
std::optional<TensorLayout> TensorLayoutOf(const std::string& name);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FLAGS_LAYOUT_FLAG_H_
