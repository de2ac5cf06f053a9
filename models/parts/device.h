// Which device a command runs on, from its option's text.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace draftsmith {

// "cpu", "cuda" (GPU 0) or "cuda:N". For a GPU the CUDA half of LibTorch is loaded now: programs that ask for none
// never pay for it. Throws Error for other text, when that half or a driver is absent, or when there is no GPU N.
at::Device parse_device(const std::string& text);

}  // namespace draftsmith
