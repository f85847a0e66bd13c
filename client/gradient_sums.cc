#include "client/gradient_sums.h"

#include <algorithm>
#include <cmath>

#include "client/verify_rows.h"

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

float Largest(const float* of, int64_t size) {
  float largest = 0;
  for (int64_t i = 0; i < size; ++i) largest = std::max(largest, std::abs(of[i]));
  return largest;
}

void AllowOfTerm(double term, HeadErrors* errors) {
  if (std::isfinite(term)) errors->AllowOfFew(kUlpsOfTerm * UlpOf(DataType::kFp32)(term));
}

void BiasSums::Begin(size_t rows) {
  orders = OrdersOf(static_cast<int64_t>(rows) * width);
  exact.assign(rows * width, 0.0);
  naive.assign(orders, std::vector<float>(rows * width, 0.0f));
}

void BiasSums::Judge(size_t row, const std::vector<float>& answer, HeadErrors* head) {
  for (int64_t n = 0; n < orders; ++n) {
    for (int64_t i = 0; i < width; ++i) head->AddOutput(Exact(row)[i], Naive(n, row)[i], answer[i]);
  }
}

}  // namespace annulus
