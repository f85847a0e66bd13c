// Prints docs/reference/capabilities.md.

#include <cstdio>

#include "tools/capabilities/capabilities_page.h"

int main() {
  std::fputs(annulus::CapabilitiesPage().c_str(), stdout);
  return 0;
}
