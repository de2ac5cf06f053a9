#include "train/linear_cross_entropy.h"

#include <cmath>

#include "launch/check.h"
#include "models/parts/linear.h"
#include "models/parts/vector_math.h"

namespace draftsmith {

namespace {

int64_t rows_per_chunk(const at::Tensor& hidden, const at::Tensor& head, int64_t chunk_bytes) {
  return std::max<int64_t>(1, chunk_bytes / (head.size(0) * static_cast<int64_t>(hidden.element_size())));
}

// One piece on a CPU: logits [m, V] become softmax - one-hot (zero where there is no label), a row at a time while it
// is in the cache.
template <class T>
void piece_on_cpu(at::Tensor& logits, const int64_t* labels, T* loss, int64_t* predicted) {
  const int64_t width = logits.size(1);
  T* data = logits.mutable_data_ptr<T>();
  at::parallel_for(0, logits.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* row = data + i * width;
      const T most = max_of(row, width);
      predicted[i] = std::find(row, row + width, most) - row;
      if (predicted[i] == width) predicted[i] = 0;  // only when the row is not finite, which the trainer reports
      loss[i] = 0;
      if (labels[i] < 0) {
        std::fill_n(row, width, T(0));
        continue;
      }
      const T at_label = row[labels[i]];
      const T sum = exp_minus(row, width, most);
      loss[i] = std::log(sum) + (most - at_label);
      scale(row, width, T(1) / sum);
      row[labels[i]] -= T(1);
    }
  });
}

// The same by ATen operations, for other devices and dtypes.
void piece_by_operations(at::Tensor& logits, const at::Tensor& labels, at::Tensor loss, at::Tensor predicted) {
  const at::Tensor has_label = labels >= 0, column = labels.clamp_min(0).unsqueeze(1);
  predicted.copy_(logits.argmax(1));
  const at::Tensor log_probabilities = at::log_softmax(logits.to(loss.scalar_type()), 1);
  loss.copy_(at::where(has_label, log_probabilities.gather(1, column).squeeze(1).neg(), at::zeros_like(loss)));
  at::Tensor gradient = log_probabilities.exp();
  gradient.scatter_add_(1, column, at::full_like(column, -1).to(gradient.scalar_type()));
  logits.copy_(gradient.mul_(has_label.unsqueeze(1)));
}

struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const at::Tensor& hidden,
                                                const at::Tensor& head, const at::Tensor& labels, int64_t chunk_bytes,
                                                bool with_gradient) {
    const int64_t count = hidden.size(0), step = rows_per_chunk(hidden, head, chunk_bytes);
    const bool own_loop =
        hidden.is_cpu() && (hidden.scalar_type() == at::kFloat || hidden.scalar_type() == at::kDouble);
    const auto loss_type = hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    at::Tensor loss = at::empty({count}, hidden.options().dtype(loss_type));
    at::Tensor predicted = at::empty({count}, labels.options());
    at::Tensor gradient = with_gradient ? at::empty_like(hidden) : at::Tensor();
    for (int64_t first = 0; first < count; first += step) {
      const int64_t rows = std::min(step, count - first);
      at::Tensor logits = draftsmith::matmul(hidden.narrow(0, first, rows), head.t());  // [rows, V]
      if (own_loop) {
        AT_DISPATCH_FLOATING_TYPES(hidden.scalar_type(), "linear_cross_entropy", [&] {
          piece_on_cpu(logits, labels.const_data_ptr<int64_t>() + first, loss.mutable_data_ptr<scalar_t>() + first,
                       predicted.mutable_data_ptr<int64_t>() + first);
        });
      } else {
        piece_by_operations(logits, labels.narrow(0, first, rows), loss.narrow(0, first, rows),
                            predicted.narrow(0, first, rows));
      }
      if (with_gradient) gradient.narrow(0, first, rows).copy_(draftsmith::matmul(logits, head));
    }
    context->mark_non_differentiable({predicted});
    if (with_gradient) context->save_for_backward({gradient});
    return {loss, predicted};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const at::Tensor gradient = context->get_saved_variables()[0];
    return {gradient * grads[0].unsqueeze(1).to(gradient.scalar_type()), at::Tensor(), at::Tensor(), at::Tensor(),
            at::Tensor()};
  }
};

}  // namespace

SlotLosses linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& head, const at::Tensor& labels,
                                int64_t chunk_bytes) {
  DS_CHECK(hidden.dim() == 2 && head.dim() == 2 && hidden.size(1) == head.size(1) && labels.size(0) == hidden.size(0),
           "linear cross entropy: states [{}, {}], head [{}, {}], {} labels", hidden.size(0), hidden.size(1),
           head.size(0), head.size(1), labels.size(0));
  const bool with_gradient = at::GradMode::is_enabled() && hidden.requires_grad();
  const auto outputs =
      LinearCrossEntropy::apply(hidden.contiguous(), head, labels.contiguous(), chunk_bytes, with_gradient);
  return SlotLosses{outputs[0], outputs[1]};
}

at::Tensor linear_argmax(const at::Tensor& hidden, const at::Tensor& head, int64_t chunk_bytes) {
  const at::NoGradGuard no_grad;
  const int64_t count = hidden.size(0), step = rows_per_chunk(hidden, head, chunk_bytes);
  std::vector<at::Tensor> pieces;
  for (int64_t first = 0; first < count; first += step)
    pieces.push_back(draftsmith::matmul(hidden.narrow(0, first, std::min(step, count - first)), head.t()).argmax(1));
  return pieces.empty() ? at::empty({0}, hidden.options().dtype(at::kLong)) : at::cat(pieces);
}

}  // namespace draftsmith
