#include "models/parts/device.h"

#include <dlfcn.h>

#include <filesystem>

#include "launch/check.h"

namespace draftsmith {
namespace {

// libtorch_cuda.so lies beside libtorch_cpu.so, which holds this symbol's code.
void load_cuda_half() {
  if (at::hasCUDA()) return;
  Dl_info info{};
  DS_CHECK(dladdr(reinterpret_cast<void*>(&at::get_num_threads), &info) != 0 && info.dli_fname,
           "device cuda: the folder of LibTorch is not known; use device cpu");
  const std::filesystem::path library = std::filesystem::path(info.dli_fname).parent_path() / "libtorch_cuda.so";
  DS_CHECK(std::filesystem::exists(library),
           "device cuda: {} is absent: this LibTorch was built without CUDA; use device cpu", library.string());
  DS_CHECK(dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL), "device cuda: {} does not load: {}; use device cpu",
           library.string(), dlerror());
}

}  // namespace

at::Device parse_device(const std::string& text) {
  if (text == "cpu") return at::kCPU;
  const std::string number = text.rfind("cuda:", 0) == 0 ? text.substr(5) : text == "cuda" ? "0" : "";
  DS_CHECK(!number.empty() && number.size() <= 3 && number.find_first_not_of("0123456789") == std::string::npos,
           "device \"{}\" is not cpu, cuda or cuda:N", text);
  load_cuda_half();
  const int64_t index = std::stoll(number), count = at::hasCUDA() ? at::detail::getCUDAHooks().deviceCount() : 0;
  DS_CHECK(count > 0, "device {}: no GPU answers (driver absent, or none visible to this process); use device cpu",
           text);
  DS_CHECK(index < count, "device {}: there are {} GPUs, numbered from 0", text, count);
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(index));
}

}  // namespace draftsmith
