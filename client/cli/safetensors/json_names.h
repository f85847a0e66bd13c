#ifndef ANNULUS_CLIENT_CLI_SAFETENSORS_JSON_NAMES_H_
#define ANNULUS_CLIENT_CLI_SAFETENSORS_JSON_NAMES_H_

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace annulus {

// Finds duplicate members of JSON objects, which the parser would drop without an error. Take() is
// for the parser's callback.
class JsonNames {
 public:
  // Objects nested in more than `max_depth` others are not checked.
  explicit JsonNames(size_t max_depth) : max_depth_(max_depth) {}

  void Take(int depth, nlohmann::json::parse_event_t event, const nlohmann::json& value);
  // The first duplicate name.
  const std::optional<std::string>& twice() const { return twice_; }

 private:
  const size_t max_depth_;
  // The names of the enclosing objects, by depth.
  std::vector<std::set<std::string>> open_;
  std::optional<std::string> twice_;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_SAFETENSORS_JSON_NAMES_H_
