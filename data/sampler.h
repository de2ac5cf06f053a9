// Which samples, in which order, and which anchors: all functions of a seed and a position, so that a run can be resumed anywhere.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace draftsmith {

// Derived stream: a 64-bit seed from the run's one seed, a purpose ("order", "anchors", "init", "sampling") and an index.
uint64_t derive_seed(uint64_t seed, const std::string& purpose, uint64_t index = 0);

// True when a row belongs to the validation part: by the hash of its id, so that it never changes with the order or number of rows.
bool is_validation(const std::string& row_id, double fraction, uint64_t seed);

// Order of the n training samples in `epoch`: a permutation that depends on seed and epoch only.
std::vector<int64_t> epoch_order(int64_t n, uint64_t seed, int64_t epoch);

// Anchors of one sample: positions a with loss_mask[a] = 1, loss_mask[a+1] = 1 and a <= S-2, uniform without replacement, sorted ascending, at most `count` (count <= 0: all).
// loss_mask: uint8 [S]. Returns int64 [A]; A may be 0. Source: SpecForge (shared/research/dflash.md 2.3).
at::Tensor sample_anchors(const at::Tensor& loss_mask, int64_t count, uint64_t seed);

}  // namespace draftsmith
