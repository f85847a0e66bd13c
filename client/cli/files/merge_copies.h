#ifndef ANNULUS_CLIENT_CLI_FILES_MERGE_COPIES_H_
#define ANNULUS_CLIENT_CLI_FILES_MERGE_COPIES_H_

#include <string>
#include <utility>
#include <vector>

#include "client/cli/safetensors/safetensors.h"

namespace annulus {

// Files of partials whose `output`, `lse` and `lse_rest` are those of another file before them, bit
// for bit, each with that file: their keys would count twice. Those in which no row has seen
// anything are left out, as they count for nothing.
std::vector<std::pair<std::string, std::string>> CopiedPartials(
    const std::vector<SafetensorsFile>& files);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_MERGE_COPIES_H_
