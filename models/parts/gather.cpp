#include "models/parts/gather.h"

namespace draftsmith {

namespace {

struct GatherRows : torch::autograd::Function<GatherRows> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& rows) {
    context->saved_data["count"] = x.size(0);
    context->save_for_backward({rows});
    return x.index_select(0, rows);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    auto sizes = grads[0].sizes().vec();
    sizes[0] = context->saved_data["count"].toInt();
    return {at::zeros(sizes, grads[0].options()).index_copy_(0, context->get_saved_variables()[0], grads[0]),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor gather_rows(const at::Tensor& x, const at::Tensor& rows) {
  return at::GradMode::is_enabled() && x.requires_grad() ? GatherRows::apply(x, rows) : x.index_select(0, rows);
}

}  // namespace draftsmith
