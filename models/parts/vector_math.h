// Loops over one row of numbers, written so that the compiler turns them into vector code (AVX2 where the machine has
// it, chosen at run time).
//
// Sums go through eight partial sums in a fixed order, so results do not depend on alignment or thread count.
#pragma once

#include <cstdint>

namespace draftsmith {

// Largest of x[0..n), n >= 1.
float max_of(const float* x, int64_t n);
double max_of(const double* x, int64_t n);

// x[i] = e^(x[i] - shift) with shift >= x[i]; returns the sum. fp32: relative error below 2e-7 (range reduction by ln 2
// and a polynomial of degree 6, coefficients of the Taylor series on [-ln2/2, ln2/2]); below -87 it is 0.
float exp_minus(float* x, int64_t n, float shift);
double exp_minus(double* x, int64_t n, double shift);

// x[i] *= factor.
void scale(float* x, int64_t n, float factor);
void scale(double* x, int64_t n, double factor);

// Sum of x[i] y[i].
float dot(const float* x, const float* y, int64_t n);
double dot(const double* x, const double* y, int64_t n);

// Backward of a softmax row, in place: d[i] = p[i] (d[i] - inner) factor, where inner = sum p d.
void softmax_backward(float* d, const float* p, int64_t n, float inner, float factor);
void softmax_backward(double* d, const double* p, int64_t n, double inner, double factor);

}  // namespace draftsmith
