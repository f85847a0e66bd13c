#ifndef ANNULUS_CLIENT_CLI_FILES_MERGE_COPIES_H_
#define ANNULUS_CLIENT_CLI_FILES_MERGE_COPIES_H_

#include <string>
#include <utility>
#include <vector>

#include "client/cli/safetensors/safetensors.h"

namespace annulus {

// Finds files whose `output`, `lse` and `lse_rest` equal those of an earlier file bit for bit, so
// that their keys would count twice. Returns pairs (copy, earlier file). Files in which no row has
// seen a key are skipped: they do not count.
std::vector<std::pair<std::string, std::string>> CopiedPartials(
    const std::vector<SafetensorsFile>& files);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_MERGE_COPIES_H_
