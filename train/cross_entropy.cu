// Softmax cross entropy of one piece of logits, in place: one block of threads a row.
//
// The CPU reference is piece_on_cpu in linear_cross_entropy.cpp; tests/train/cross_entropy_gpu_test.cpp compares the two. Plain C interface, no
// LibTorch: the module compiles in seconds and fits any minor version.
#include <cuda_runtime.h>

#include <cfloat>
#include <cmath>
#include <cstdint>

namespace {

constexpr int kThreads = 256;

struct Best {
  float value;
  int64_t index;
};

// The larger value; among equals the lower index, as on the CPU.
__device__ Best better(Best a, Best b) {
  if (a.value != b.value) return a.value > b.value ? a : b;
  return a.index < b.index ? a : b;
}

__device__ Best block_best(Best mine) {
  __shared__ Best all[kThreads];
  all[threadIdx.x] = mine;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) all[threadIdx.x] = better(all[threadIdx.x], all[threadIdx.x + half]);
  }
  __syncthreads();
  return all[0];
}

__device__ float block_sum(float mine) {
  __shared__ float all[kThreads];
  all[threadIdx.x] = mine;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) all[threadIdx.x] += all[threadIdx.x + half];
  }
  __syncthreads();
  return all[0];
}

__global__ void cross_entropy_rows(float* logits, const int64_t* labels, float* loss, int64_t* predicted, int64_t width) {
  float* row = logits + static_cast<int64_t>(blockIdx.x) * width;
  const int64_t label = labels[blockIdx.x];
  Best best{-FLT_MAX, 0};
  for (int64_t j = threadIdx.x; j < width; j += kThreads) best = better(best, Best{row[j], j});
  best = block_best(best);
  if (threadIdx.x == 0) predicted[blockIdx.x] = best.index;
  if (label < 0) {
    for (int64_t j = threadIdx.x; j < width; j += kThreads) row[j] = 0;
    if (threadIdx.x == 0) loss[blockIdx.x] = 0;
    return;
  }
  const float at_label = row[label];
  __syncthreads();  // everyone has read the label's logit before it is overwritten
  float sum = 0;
  for (int64_t j = threadIdx.x; j < width; j += kThreads) {
    const float e = expf(row[j] - best.value);
    row[j] = e;
    sum += e;
  }
  sum = block_sum(sum);
  for (int64_t j = threadIdx.x; j < width; j += kThreads) row[j] = row[j] / sum - (j == label ? 1.0f : 0.0f);
  if (threadIdx.x == 0) loss[blockIdx.x] = logf(sum) + (best.value - at_label);
}

}  // namespace

// Contract: cross_entropy_cuda.h. Returns a cudaError_t.
extern "C" int draftsmith_cross_entropy(float* logits, const int64_t* labels, float* loss, int64_t* predicted, int64_t rows, int64_t width, void* stream) {
  if (rows > 0) cross_entropy_rows<<<static_cast<unsigned>(rows), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(logits, labels, loss, predicted, width);
  return static_cast<int>(cudaGetLastError());
}
