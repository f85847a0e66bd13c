// The machine code of the sm_90a kernel, read by cuobjdump: products use groups of warps (HGMMA),
// tiles come by TMA (UTMALDG), registers move between groups, and the loop with products keeps
// everything in registers.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "worker/kernel/cuda/launch/hopper_config.h"
#include "worker/kernel/cuda/sm90/hopper_gradient_config.h"

namespace annulus::cuda {
namespace {

constexpr char kObject[] = "worker/kernel/cuda/sm90/instantiations/compiled_hopper_nvcc/hopper_";
constexpr char kGradients[] =
    "worker/kernel/cuda/sm90/instantiations/compiled_hopper_gradients_nvcc/hopper_gradient_";
constexpr char kCuobjdump[] = "external/python_tools/cuobjdump";

struct Function {
  std::map<std::string, int> count;  // Count by instruction.
  // Addresses of products, of accesses to thread-local memory, and of backward jumps with their
  // targets.
  std::vector<int64_t> products, spills;
  std::vector<std::pair<int64_t, int64_t>> loops;
  // Products: shape and types, location of the left side, and layout of the right side.
  std::set<std::string> kinds;
  // The most exponentials between a wait that leaves products running and the wait for these.
  int exponentials_beside_products = 0;

  // In the smallest loop around each product; -1 if one is in none.
  int64_t SpillsBesideProducts() const {
    std::set<int64_t> within;
    for (const int64_t product : products) {
      const std::pair<int64_t, int64_t>* least = nullptr;
      for (const auto& loop : loops) {
        if (loop.first > product || loop.second < product) continue;
        if (least == nullptr || loop.second - loop.first < least->second - least->first)
          least = &loop;
      }
      if (least == nullptr) return -1;
      for (const int64_t at : spills)
        if (at >= least->first && at <= least->second) within.insert(at);
    }
    return products.empty() ? -1 : static_cast<int64_t>(within.size());
  }

  void Add(int64_t at, const std::string& text) {
    static const auto& back = *new std::regex("\\bBRA\\b.* 0x([0-9a-f]+)");
    for (const std::string name :
         {"HGMMA", "UTMALDG.3D", "USETMAXREG", "USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xe8",
          "USETMAXREG.DEALLOC.CTAPOOL 0x28", "USETMAXREG.DEALLOC.CTAPOOL 0x38", "SYNCS",
          "SR_CLOCKHI", "BAR.ARV", "STL", "LDL"}) {
      if (text.find(" " + name) == std::string::npos) continue;
      ++count[name];
      if (name == "HGMMA") AddProduct(at, text);
      if (name == "STL" || name == "LDL") spills.push_back(at);
    }
    CountExponentials(text);
    std::smatch found;
    if (!std::regex_search(text, found, back)) return;
    const int64_t to = std::stoll(found[1], nullptr, 16);
    if (to < at) loops.emplace_back(to, at);
  }

 private:
  void AddProduct(int64_t at, const std::string& text) {
    static const auto& parts =
        *new std::regex("(HGMMA[^ ]*) R[0-9]+, (R[0-9]+, )?gdesc\\[UR[0-9]+\\]([.A-Za-z]*)");
    products.push_back(at);
    std::smatch found;
    const bool known = std::regex_search(text, found, parts);
    kinds.insert(known ? found[1].str() + (found[2].matched ? " R" : " gdesc") + found[3].str()
                       : text);
  }

  void CountExponentials(const std::string& text) {
    if (text.find("WARPGROUP.DEPBAR") != std::string::npos) {
      exponentials_ = text.find("gsb0, 0x1") != std::string::npos ? 0 : -1;
    } else if (exponentials_ >= 0 && text.find("MUFU.EX2") != std::string::npos) {
      ++exponentials_;
      exponentials_beside_products = std::max(exponentials_beside_products, exponentials_);
    }
  }

  int exponentials_ = -1;
};

// Code for sm_90a, by function. `said` is the tool's output if there is none.
std::map<std::string, Function> Disassemble(const std::string& object, std::string* said) {
  const std::string command = std::string(kCuobjdump) + " -arch sm_90a -sass " + object + " 2>&1";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  const std::regex instruction("^\\s*/\\*([0-9a-f]+)\\*/( .*);");
  std::map<std::string, Function> found;
  std::string function;
  std::array<char, 4096> buffer;
  while (pipe != nullptr && fgets(buffer.data(), buffer.size(), pipe.get()) != nullptr) {
    const std::string line = buffer.data();
    std::smatch parts;
    if (const size_t at = line.find("Function : "); at != std::string::npos) {
      function = line.substr(at + 11);
    } else if (function.empty()) {
      *said += line;
    } else if (std::regex_search(line, parts, instruction)) {
      found[function].Add(std::stoll(parts[1], nullptr, 16), parts[2]);
    }
  }
  return found;
}

// The products that ptxas also makes from CuTe's MMA_64xNx16_F32…_SS<K, K> and …_RS<K, MN> (CUTLASS
// 4.2). Scores: both sides K-major. Sums: the left side in registers and the right side MN-major.
std::set<std::string> ProductsOf(const std::string& type, int dim) {
  const auto shape = [&](int columns) {
    return "HGMMA.64x" + std::to_string(columns) + "x16.F32" + (type == "bf16" ? ".BF16" : "");
  };
  return {shape(HopperKeys(dim)) + " gdesc", shape(dim > 128 ? 64 : dim) + " R.tnspB"};
}

static_assert(kConsumerRegisters == 0xe8 && kProducerRegisters == 0x28);
static_assert(kGradientConsumerRegisters == 0xe0 && kGradientProducerRegisters == 0x38);

std::set<std::string> GradientProductsOf(const std::string& type, int dim, bool queries) {
  const std::string shape = "HGMMA.64x",
                    deep = "x16.F32" + std::string(type == "bf16" ? ".BF16" : "");
  return {shape + std::to_string(HopperOthers(dim, queries)) + deep + " gdesc",
          shape + std::to_string(queries ? dim : 64) + deep + " R.tnspB"};
}

TEST(SassTest, HopperKernelsUseWhatTheyAreFor) {
  for (const std::string type : {"bf16", "fp16"}) {
    int kernels = 0;
    std::string said;
    for (auto& [name, function] : Disassemble(kObject + type + ".o", &said)) {
      if (name.find("HopperForward") == std::string::npos) continue;
      ++kernels;
      EXPECT_GE(function.count["HGMMA"], 12) << name;
      EXPECT_GE(function.count["UTMALDG.3D"], 2) << name;
      EXPECT_EQ(function.count["USETMAXREG"], 2) << name;
      EXPECT_GE(function.count["SYNCS"], 8) << name;
      EXPECT_GE(function.count["SR_CLOCKHI"], 2) << name;  // Every wait has a time limit.
      EXPECT_GE(function.count["BAR.ARV"], 3) << name;     // The turns are passed on.
      EXPECT_EQ(function.SpillsBesideProducts(), 0) << name;
      // A thread has half as many scores of a tile as the tile has keys. Dimension 256 runs
      // sequentially.
      const int dim = name.find("Li256E") != std::string::npos   ? 256
                      : name.find("Li128E") != std::string::npos ? 128
                                                                 : 64;
      EXPECT_EQ(function.kinds, ProductsOf(type, dim)) << name;
      EXPECT_EQ(function.count["USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xe8"], 1) << name;
      EXPECT_EQ(function.count["USETMAXREG.DEALLOC.CTAPOOL 0x28"], 1) << name;
      EXPECT_GE(function.exponentials_beside_products, dim == 256 ? 0 : HopperKeys(dim) / 2)
          << name;
      // A few belong to an item, not to its tiles.
      EXPECT_LE(function.spills.size(), 12u) << name;
    }
    EXPECT_EQ(kernels, 3) << type << ": " << said;
  }
}

TEST(SassTest, HopperGradientsUseWhatTheyAreFor) {
  for (const std::string type : {"bf16", "fp16"}) {
    int kernels = 0;
    std::string said;
    for (auto& [name, function] : Disassemble(kGradients + type + ".o", &said)) {
      if (name.find("HopperGradients") == std::string::npos) continue;
      ++kernels;
      EXPECT_GE(function.count["UTMALDG.3D"], 2) << name;
      EXPECT_EQ(function.count["USETMAXREG"], 2) << name;
      EXPECT_EQ(function.count["USETMAXREG.DEALLOC.CTAPOOL 0x38"], 1) << name;
      EXPECT_GE(function.count["SR_CLOCKHI"], 2) << name;  // Every wait has a time limit.
      EXPECT_EQ(function.SpillsBesideProducts(), 0) << name;
      const int dim = name.find("Li128E") != std::string::npos ? 128 : 64;
      const bool queries = name.find("GradientSideE0") != std::string::npos;
      EXPECT_EQ(function.kinds, GradientProductsOf(type, dim, queries)) << name;
      EXPECT_GE(function.exponentials_beside_products, HopperOthers(dim, queries) / 2) << name;
    }
    EXPECT_EQ(kernels, 4) << type << ": " << said;
  }
}

// Shows that a loop with spills would be detected.
TEST(SassTest, TheLoopsOfProductsAreTheSmallestAroundThem) {
  Function function;
  const char* const code[] = {" LDL R2, [R1]",
                              " HGMMA.64x64x16.F32.BF16 R24",
                              " @!P0 BRA 0x10",
                              " STL [R1], R2",
                              " HGMMA.64x64x16.F32",
                              " @!P3 BRA 0x10",
                              " LDL R3, [R1]",
                              " @!P0 BRA 0x0",
                              " EXIT"};
  for (int64_t i = 0; i < 9; ++i) function.Add(i * 16, code[i]);
  EXPECT_EQ(function.SpillsBesideProducts(), 1);
  function.spills.clear();
  EXPECT_EQ(function.SpillsBesideProducts(), 0);
  function.loops.clear();
  EXPECT_EQ(function.SpillsBesideProducts(), -1);
}

// Shows that a softmax which ptxas moves after the wait would be detected.
TEST(SassTest, ExponentialsBesideProductsAreCounted) {
  Function function;
  const char* const code[] = {" MUFU.EX2 R1, R2",
                              " WARPGROUP.DEPBAR.LE gsb0, 0x1",
                              " MUFU.EX2 R1, R2",
                              " MUFU.EX2 R3, R4",
                              " WARPGROUP.DEPBAR.LE gsb0, 0x0",
                              " MUFU.EX2 R5, R6",
                              " WARPGROUP.DEPBAR.LE gsb0, 0x1",
                              " WARPGROUP.DEPBAR.LE gsb0, 0x0",
                              " MUFU.EX2 R7, R8"};
  for (int64_t i = 0; i < 9; ++i) function.Add(i * 16, code[i]);
  EXPECT_EQ(function.exponentials_beside_products, 2);
}

}  // namespace
}  // namespace annulus::cuda
