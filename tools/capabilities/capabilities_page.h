#ifndef ANNULUS_TOOLS_CAPABILITIES_CAPABILITIES_PAGE_H_
#define ANNULUS_TOOLS_CAPABILITIES_CAPABILITIES_PAGE_H_

#include <string>

namespace annulus {

// docs/reference/capabilities.md: the capability table (attention/validate/capability.h) as a page.
std::string CapabilitiesPage();

}  // namespace annulus

#endif  // ANNULUS_TOOLS_CAPABILITIES_CAPABILITIES_PAGE_H_
