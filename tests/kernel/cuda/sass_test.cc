// What ptxas made of the kernel for sm_90a, read by cuobjdump: products are of groups of warps
// (HGMMA), tiles come by TMA (UTMALDG), registers move between groups.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>

namespace annulus::cuda {
namespace {

constexpr char kObject[] = "worker/kernel/cuda/compiled_kernels_nvcc/hopper_";

// Where the toolkit or the pinned tools have it; empty: nowhere.
std::string Cuobjdump() {
  for (const std::string path : {"$CUOBJDUMP", "$CUDA_HOME/bin/cuobjdump",
                                 "/usr/local/cuda/bin/cuobjdump", "$(command -v cuobjdump)"}) {
    const std::string probe = "test -n \"" + path + "\" -a -x \"" + path + "\"";
    if (std::system(probe.c_str()) == 0) return path;
  }
  return "";
}

// How often each instruction occurs in code for sm_90a, by function.
std::map<std::string, std::map<std::string, int>> Disassemble(const std::string& tool,
                                                              const std::string& object,
                                                              std::string* first_line) {
  const std::string command = tool + " -arch sm_90a -sass " + object + " 2>&1";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::map<std::string, std::map<std::string, int>> found;
  std::string function;
  std::array<char, 4096> buffer;
  while (pipe != nullptr && fgets(buffer.data(), buffer.size(), pipe.get()) != nullptr) {
    const std::string line = buffer.data();
    if (first_line->size() < 2) *first_line = line;
    if (const size_t at = line.find("Function : "); at != std::string::npos)
      function = line.substr(at + 11);
    for (const std::string name : {"HGMMA", "UTMALDG", "USETMAXREG", "SYNCS", "STL", "LDL"})
      if (line.find(" " + name) != std::string::npos) ++found[function][name];
  }
  return found;
}

TEST(SassTest, HopperKernelsUseWhatTheyAreFor) {
  const std::string tool = Cuobjdump();
  if (tool.empty()) GTEST_SKIP() << "no cuobjdump here: CUOBJDUMP names one";
  for (const std::string type : {"bf16", "fp16"}) {
    int kernels = 0;
    std::string first_line;
    for (auto& [function, count] : Disassemble(tool, kObject + type + ".o", &first_line)) {
      if (function.find("HopperForward") == std::string::npos) continue;
      ++kernels;
      EXPECT_GE(count["HGMMA"], 12) << function;
      EXPECT_GE(count["UTMALDG"], 2) << function;
      EXPECT_EQ(count["USETMAXREG"], 2) << function;
      EXPECT_GE(count["SYNCS"], 8) << function;
      // Dimension 256 keeps a few numbers of a task there, outside of the loop over tiles.
      if (function.find("Li256E") == std::string::npos) {
        EXPECT_EQ(count["STL"] + count["LDL"], 0) << function;
      }
    }
    EXPECT_EQ(kernels, 3) << type << ": " << first_line;
  }
}

}  // namespace
}  // namespace annulus::cuda
