#include "client/cli/safetensors/json_names.h"

#include <algorithm>

namespace annulus {

using Event = nlohmann::json::parse_event_t;

void JsonNames::Take(int depth, Event event, const nlohmann::json& value) {
  const auto at = static_cast<size_t>(depth);
  if (event == Event::object_start) {
    open_.resize(std::min(at, max_depth_));
    open_.emplace_back();
  } else if (event == Event::key && at <= max_depth_) {
    open_.resize(at);
    const std::string name = value.get<std::string>();
    if (!open_.back().insert(name).second && !twice_.has_value()) twice_ = name;
  }
}

}  // namespace annulus
