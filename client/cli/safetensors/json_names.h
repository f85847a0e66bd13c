#ifndef ANNULUS_CLIENT_CLI_SAFETENSORS_JSON_NAMES_H_
#define ANNULUS_CLIENT_CLI_SAFETENSORS_JSON_NAMES_H_

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace annulus {

// Finds objects of a JSON text that have a member twice, of which a parser keeps one without a
// word. Told by the parser's callback.
class JsonNames {
 public:
  // Objects inside of `max_depth` others, and deeper ones, are not looked at.
  explicit JsonNames(size_t max_depth) : max_depth_(max_depth) {}

  void Take(int depth, nlohmann::json::parse_event_t event, const nlohmann::json& value);
  // The first name that came twice.
  const std::optional<std::string>& twice() const { return twice_; }

 private:
  const size_t max_depth_;
  std::vector<std::set<std::string>> open_;  // Names of the objects that are open, by depth.
  std::optional<std::string> twice_;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_SAFETENSORS_JSON_NAMES_H_
