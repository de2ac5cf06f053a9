#include "train/optimizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "launch/check.h"
#include "models/parts/linear.h"

namespace draftsmith {

namespace {

constexpr int64_t kElementsPerTask = 1 << 16;

struct AdamStep {
  float lr, keep, beta1, beta2, eps, correction1, root_correction2;  // keep = 1 - lr * weight decay
};

// One pass over memory. scale: [columns] or null.
void adamw_on_cpu(const AdamStep& s, int64_t count, int64_t columns, const float* scale, const float* g, float* p,
                  float* m, float* v) {
  const float step = s.lr / s.correction1;
  at::parallel_for(0, count, kElementsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      m[i] = s.beta1 * m[i] + (1 - s.beta1) * g[i];
      v[i] = s.beta2 * v[i] + (1 - s.beta2) * g[i] * g[i];
      const float update = step * m[i] / (std::sqrt(v[i]) / s.root_correction2 + s.eps);
      p[i] = s.keep * p[i] - (scale != nullptr ? update / scale[i % columns] : update);
    }
  });
}

constexpr double kNewtonSchulz[] = {3.4445, -4.7750, 2.0315};
constexpr int64_t kPanels = 4;  // a symmetric product computes 10 of 16 pieces

// a b for factors whose product is symmetric: row panels up to and including the diagonal, mirrored.
at::Tensor symmetric_product(const at::Tensor& a, const at::Tensor& b) {
  const int64_t n = a.size(0);
  if (n < 16 * kPanels) return draftsmith::matmul(a, b);
  at::Tensor c = at::empty({n, n}, a.options());
  for (int64_t i = 0; i < kPanels; ++i) {
    const int64_t begin = n * i / kPanels, end = n * (i + 1) / kPanels;
    const at::Tensor panel = draftsmith::matmul(a.narrow(0, begin, end - begin), b.narrow(1, 0, end));
    c.narrow(0, begin, end - begin).narrow(1, 0, end).copy_(panel);
    if (begin > 0) c.narrow(0, 0, begin).narrow(1, begin, end - begin).copy_(panel.narrow(1, 0, begin).t());
  }
  return c;
}

}  // namespace

at::Tensor orthogonalise(const at::Tensor& matrix, int64_t iterations) {
  const at::NoGradGuard no_grad;
  const bool tall = matrix.size(0) > matrix.size(1);
  const at::Tensor x = (tall ? matrix.t() : matrix).contiguous(), unit = x / (x.norm() + 1e-7);
  // x_k = q_k x_0 with q_k a polynomial of the Gram matrix: the iteration runs on the small side only, where all
  // matrices are symmetric and commute.
  at::Tensor gram = symmetric_product(unit, unit.t()), q;
  for (int64_t i = 0; i < iterations; ++i) {
    at::Tensor p = symmetric_product(gram, gram).mul_(kNewtonSchulz[2]).add_(gram, kNewtonSchulz[1]);
    p.diagonal().add_(kNewtonSchulz[0]);
    q = q.defined() ? symmetric_product(p, q) : p;
    if (i + 1 < iterations) gram = symmetric_product(symmetric_product(p, gram), p);
  }
  const at::Tensor result = draftsmith::matmul(q, unit);
  return tall ? result.t() : result;
}

Optimizer::Optimizer(const OptimizerSection& section, const NamedTensors& parameters, const NamedTensors& scales,
                     const std::vector<std::string>& plain)
    : section_(section) {
  const at::NoGradGuard no_grad;
  const std::map<std::string, at::Tensor> scale_of(scales.begin(), scales.end());
  for (const auto& [name, parameter] : parameters) {
    DS_CHECK(parameter.is_contiguous(), "optimizer: parameter `{}` is not contiguous", name);
    Entry entry{name, parameter, {}, at::zeros_like(parameter), {}};
    entry.matrix = parameter.dim() == 2 && std::find(plain.begin(), plain.end(), name) == plain.end();
    entry.muon = entry.matrix && section.kind == "muon";
    if (!entry.muon) entry.second = at::zeros_like(parameter);
    if (const auto found = scale_of.find(name); found != scale_of.end()) entry.scale = found->second.contiguous();
    entries_.push_back(entry);
  }
}

double Optimizer::finish_gradients(double denominator) {
  const at::NoGradGuard no_grad;
  double squares = 0;
  for (Entry& entry : entries_) {
    at::Tensor& gradient = entry.parameter.mutable_grad();
    if (!gradient.defined()) continue;
    gradient.mul_(1.0 / denominator);
    if (entry.scale.defined()) gradient.div_(entry.scale);
    const double norm = gradient.norm().item<double>();
    squares += norm * norm;
  }
  const double norm = std::sqrt(squares);
  const double coefficient = section_.clip > 0 ? section_.clip / (norm + 1e-6) : 1.0;
  if (coefficient < 1)
    for (Entry& entry : entries_)
      if (entry.parameter.grad().defined()) entry.parameter.mutable_grad().mul_(coefficient);
  return norm;
}

void Optimizer::step(double share) {
  const at::NoGradGuard no_grad;
  ++steps_;
  for (Entry& entry : entries_) {
    at::Tensor& gradient = entry.parameter.mutable_grad();
    if (!gradient.defined()) continue;
    const double decay = entry.matrix ? section_.weight_decay : 0.0;
    if (entry.muon) {
      muon(entry, share * section_.muon_lr, decay);
    } else {
      adamw(entry, share * section_.lr, decay);
    }
    gradient.reset();
  }
}

void Optimizer::adamw(Entry& entry, double rate, double decay) const {
  const double correction1 = 1 - std::pow(section_.beta1, steps_),
               root_correction2 = std::sqrt(1 - std::pow(section_.beta2, steps_));
  const at::Tensor gradient = entry.parameter.grad().contiguous();
  at::Tensor parameter = entry.parameter;
  if (parameter.is_cpu() && parameter.scalar_type() == at::kFloat) {
    const auto f = [](double value) { return static_cast<float>(value); };
    const AdamStep step{f(rate),         f(1 - rate * decay), f(section_.beta1),  f(section_.beta2),
                        f(section_.eps), f(correction1),      f(root_correction2)};
    adamw_on_cpu(step, parameter.numel(), parameter.size(-1),
                 entry.scale.defined() ? entry.scale.const_data_ptr<float>() : nullptr,
                 gradient.const_data_ptr<float>(), parameter.mutable_data_ptr<float>(),
                 entry.first.mutable_data_ptr<float>(), entry.second.mutable_data_ptr<float>());
    return;
  }
  entry.first.mul_(section_.beta1).add_(gradient, 1 - section_.beta1);
  entry.second.mul_(section_.beta2).addcmul_(gradient, gradient, 1 - section_.beta2);
  at::Tensor update = entry.first / (entry.second.sqrt().div_(root_correction2).add_(section_.eps));
  if (entry.scale.defined()) update.div_(entry.scale);
  parameter.mul_(1 - rate * decay).add_(update, -rate / correction1);
}

void Optimizer::muon(Entry& entry, double rate, double decay) const {
  const at::Tensor gradient = entry.parameter.grad();
  entry.first.mul_(section_.muon_momentum).add_(gradient);
  at::Tensor update = orthogonalise(gradient.add(entry.first, section_.muon_momentum), section_.muon_iterations);
  if (entry.scale.defined()) update = update / entry.scale;
  const double ratio = static_cast<double>(entry.parameter.size(0)) / static_cast<double>(entry.parameter.size(1));
  at::Tensor(entry.parameter).mul_(1 - rate * decay).add_(update, -rate * std::sqrt(std::max(1.0, ratio)));
}

NamedTensors Optimizer::state() const {
  NamedTensors state;
  for (const Entry& entry : entries_) {
    state.emplace_back(entry.name + ".first", entry.first);
    if (entry.second.defined()) state.emplace_back(entry.name + ".second", entry.second);
    if (entry.scale.defined()) state.emplace_back(entry.name + ".scale", entry.scale);
  }
  state.emplace_back("steps", at::full({1}, steps_, at::kLong));
  return state;
}

void Optimizer::load(const NamedTensors& state, const std::string& where) {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> given(state.begin(), state.end());
  const auto take = [&](const std::string& name, at::Tensor into) {
    const auto found = given.find(name);
    DS_CHECK(found != given.end(), "{}: tensor `{}` is missing; the checkpoint was written with another optimizer",
             where, name);
    DS_CHECK(found->second.sizes() == into.sizes(), "{}: tensor `{}` has shape [{}], expected [{}]", where, name,
             fmt::join(found->second.sizes(), ", "), fmt::join(into.sizes(), ", "));
    into.copy_(found->second);
    given.erase(found);
  };
  for (Entry& entry : entries_) {
    take(entry.name + ".first", entry.first);
    if (entry.second.defined()) take(entry.name + ".second", entry.second);
    const std::string scale = entry.name + ".scale";
    if (!entry.scale.defined() && given.contains(scale))
      entry.scale = at::empty({entry.parameter.size(1)}, entry.parameter.options().requires_grad(false));
    if (entry.scale.defined()) take(scale, entry.scale);
  }
  at::Tensor steps = at::empty({1}, at::kLong);
  take("steps", steps);
  steps_ = steps.item<int64_t>();
  DS_CHECK(given.empty(), "{}: tensor `{}` belongs to no parameter; the checkpoint was written with another optimizer",
           where, given.begin()->first);
}

}  // namespace draftsmith
