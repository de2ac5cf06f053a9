#include "models/drafters/parameters.h"

#include <ATen/CPUGeneratorImpl.h>

#include "data/sampler.h"

namespace draftsmith {

at::Tensor ParameterSet::matrix(const std::string& name, int64_t rows, int64_t columns, double deviation) {
  if (options_.device().is_meta()) return values(name, at::empty({rows, columns}, options_));
  at::Generator generator = at::detail::createCPUGenerator(derive_seed(seed_, "init " + name));
  return values(name, at::empty({rows, columns}).normal_(0.0, deviation, generator));
}

at::Tensor ParameterSet::vector(const std::string& name, int64_t size, double value) {
  return values(name, at::full({size}, value, options_));
}

at::Tensor ParameterSet::values(const std::string& name, const at::Tensor& start) {
  const at::Tensor parameter = start.to(options_).set_requires_grad(true);
  named_.emplace_back(name, parameter);
  return parameter;
}

}  // namespace draftsmith
