#ifndef ANNULUS_CLIENT_CLI_FLAGS_LAYOUT_FLAG_H_
#define ANNULUS_CLIENT_CLI_FLAGS_LAYOUT_FLAG_H_

#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "client/cli/files/tensor_layout.h"

namespace annulus {

// Adds --tensor-layout for the tensors `of`: "auto" (the default) or the name of a layout.
CLI::Option* AddTensorLayout(CLI::App* app, const std::string& of, std::string* name);
// The layout with this name; nothing for "auto".
std::optional<TensorLayout> TensorLayoutOf(const std::string& name);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FLAGS_LAYOUT_FLAG_H_
