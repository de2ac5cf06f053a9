#include "train/cross_entropy_cuda.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <filesystem>

#include "launch/check.h"

namespace draftsmith {
namespace {

using Kernel = int (*)(float*, const int64_t*, float*, int64_t*, int64_t, int64_t, void*);

Kernel load_kernel() {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (const auto& place : {folder, folder.parent_path()}) {
    const auto module = place / "libdraftsmith_cuda.so";
    if (!std::filesystem::exists(module)) continue;
    void* handle = dlopen(module.c_str(), RTLD_NOW | RTLD_LOCAL);
    DS_CHECK(handle != nullptr,
             "{} does not load: {}; build it again with launch/setup, or build with DRAFTSMITH_CUDA=OFF",
             module.string(), dlerror());
    return reinterpret_cast<Kernel>(dlsym(handle, "draftsmith_cross_entropy"));
  }
  return nullptr;
}

Kernel kernel() {
  static const Kernel loaded = load_kernel();
  return loaded;
}

}  // namespace

bool has_cross_entropy_cuda() {
  return kernel() != nullptr;
}

void cross_entropy_cuda(at::Tensor& logits, const at::Tensor& labels, at::Tensor& loss, at::Tensor& predicted) {
  DS_CHECK(logits.is_cuda() && logits.is_contiguous() && logits.scalar_type() == at::kFloat && labels.is_contiguous() &&
               loss.is_contiguous() && predicted.is_contiguous(),
           "cross entropy on a GPU: contiguous fp32 logits are needed");
  const c10::impl::VirtualGuardImpl guard(logits.device().type());
  void* stream = guard.getStream(logits.device()).native_handle();
  const int error =
      kernel()(logits.mutable_data_ptr<float>(), labels.const_data_ptr<int64_t>(), loss.mutable_data_ptr<float>(),
               predicted.mutable_data_ptr<int64_t>(), logits.size(0), logits.size(1), stream);
  DS_CHECK(error == 0, "cross entropy on {}: CUDA error {}", logits.device().str(), error);
}

}  // namespace draftsmith
