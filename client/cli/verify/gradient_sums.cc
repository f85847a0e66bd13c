#include "client/cli/verify/gradient_sums.h"

#include <algorithm>
#include <cmath>

namespace annulus {

int64_t OrdersOf(int64_t judged) {
  constexpr int64_t kSteady = 4096, kMaxOrders = 8;
  return std::clamp<int64_t>(kSteady / std::max<int64_t>(judged, 1), 1, kMaxOrders);
}

double SumOfSizes(const float* a, const float* b, int64_t size) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += std::abs(static_cast<double>(a[i]) * b[i]);
  return sum;
}

void BiasSums::Begin(size_t rows) {
  orders = OrdersOf(static_cast<int64_t>(rows) * width);
  exact.assign(rows * width, 0.0);
  sum_errors.assign(rows * width, ErrorOfSum());
  naive.assign(orders, std::vector<float>(rows * width, 0.0f));
}

void BiasSums::Judge(size_t row, const std::vector<float>& answer, HeadErrors* head) {
  for (int64_t i = 0; i < width; ++i) head->AllowOfFew(Error(row)[i].Allowed());
  for (int64_t n = 0; n < orders; ++n) {
    for (int64_t i = 0; i < width; ++i) head->AddOutput(Exact(row)[i], Naive(n, row)[i], answer[i]);
  }
}

}  // namespace annulus
