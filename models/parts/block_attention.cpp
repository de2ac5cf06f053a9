#include "models/parts/block_attention.h"

#include <cblas.h>

#include <cmath>

#include "launch/check.h"
#include "models/parts/vector_math.h"

namespace draftsmith {

namespace {

// Query rows of a tile on a CPU: large enough for its products, small enough that its scores stay in the cache. On
// other devices launches are what costs.
constexpr int64_t kTileRows = 64;
constexpr int64_t kTileRowsOffCpu = 1024;

// Whole blocks of one sample whose scores are computed together.
struct Tile {
  int64_t block, blocks;    // which blocks
  int64_t row, rows;        // their query rows
  int64_t context, length;  // context rows that the last of them sees
};

std::vector<Tile> make_tiles(const BlockView& view, int64_t most_rows) {
  std::vector<Tile> tiles;
  for (int64_t a = 0; a < view.blocks(); ++a) {
    const int64_t row = view.row_begin[a], rows = view.row_begin[a + 1] - row, begin = view.context_begin[a];
    const bool joins = !tiles.empty() && tiles.back().context == begin && tiles.back().rows + rows <= most_rows;
    if (!joins) tiles.push_back(Tile{a, 0, row, 0, begin, 0});
    Tile& tile = tiles.back();
    tile.blocks += 1;
    tile.rows += rows;
    tile.length = view.context_end[a] - begin;
  }
  return tiles;
}

// Row-major products on raw memory, on the calling thread: the tiles are what is spread over threads (library_product.h
// says why OpenBLAS keeps to one). c[m, n] = alpha op(a) op(b) + beta c; op transposes when its flag is set.
template <class T>
void gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t lda,
          const T* b, int64_t ldb, T beta, T* c, int64_t ldc) {
  static const bool single = (scipy_openblas_set_num_threads(1), true);
  static_cast<void>(single);
  if (m == 0 || n == 0) return;
  const auto flag = [](bool transpose) { return transpose ? CblasTrans : CblasNoTrans; };
  const auto size = [](int64_t n) { return static_cast<blasint>(n); };
  if constexpr (std::is_same_v<T, float>) {
    scipy_cblas_sgemm(CblasRowMajor, flag(transpose_a), flag(transpose_b), size(m), size(n), size(k), alpha, a,
                      size(lda), b, size(ldb), beta, c, size(ldc));
  } else {
    scipy_cblas_dgemm(CblasRowMajor, flag(transpose_a), flag(transpose_b), size(m), size(n), size(k), alpha, a,
                      size(lda), b, size(ldb), beta, c, size(ldc));
  }
}

// What one call works on. Pointers into contiguous [.., heads, d] data, except context rows, which are `context_stride`
// apart.
template <class T>
struct Operands {
  const T *q, *block_k, *block_v, *context_k, *context_v;
  int64_t context_k_stride, context_v_stride;
  int64_t heads, kv_heads, d;
  T scale;
  const BlockView* view;

  int64_t group() const { return heads / kv_heads; }
};

// One tile of one kv head: its queries packed as [group * rows, d], scores as [group * rows, length + blocks * slots].
template <class T>
class TileWork {
 public:
  TileWork(const Operands<T>& operands, const Tile& tile, int64_t kv_head) : o_(operands), tile_(tile), kv_(kv_head) {
    keys_ = tile.blocks * o_.view->slots;
    width_ = tile.length + keys_;
    count_ = o_.group() * tile.rows;
  }

  int64_t width() const { return width_; }
  int64_t count() const { return count_; }

  // [rows, heads, d] -> [group * rows, d] of this head's group.
  void pack(const T* from, std::vector<T>& to) const {
    to.resize(static_cast<size_t>(count_ * o_.d));
    for (int64_t g = 0; g < o_.group(); ++g)
      for (int64_t r = 0; r < tile_.rows; ++r)
        std::copy_n(from + offset(g, r), o_.d, to.data() + (g * tile_.rows + r) * o_.d);
  }
  void unpack(const std::vector<T>& from, T* to) const {
    for (int64_t g = 0; g < o_.group(); ++g)
      for (int64_t r = 0; r < tile_.rows; ++r)
        std::copy_n(from.data() + (g * tile_.rows + r) * o_.d, o_.d, to + offset(g, r));
  }

  // scores = alpha x [context; block]^T for packed x: with keys the scores, with values the gradient of the
  // probabilities.
  void times_transposed(const std::vector<T>& x, T alpha, const T* context, int64_t context_stride, const T* block,
                        std::vector<T>& scores) const {
    scores.resize(static_cast<size_t>(count_ * width_));
    gemm<T>(false, true, count_, tile_.length, o_.d, alpha, x.data(), o_.d, context_at(context, context_stride),
            context_stride, T(0), scores.data(), width_);
    gemm<T>(false, true, count_, keys_, o_.d, alpha, x.data(), o_.d, block_at(block), block_stride(), T(0),
            scores.data() + tile_.length, width_);
  }
  // y = p [context; block].
  void times(const std::vector<T>& p, const T* context, int64_t context_stride, const T* block,
             std::vector<T>& y) const {
    y.resize(static_cast<size_t>(count_ * o_.d));
    gemm<T>(false, false, count_, o_.d, keys_, T(1), p.data() + tile_.length, width_, block_at(block), block_stride(),
            T(0), y.data(), o_.d);
    if (tile_.length > 0)
      gemm<T>(false, false, count_, o_.d, tile_.length, T(1), p.data(), width_, context_at(context, context_stride),
              context_stride, T(1), y.data(), o_.d);
  }
  // context += p^T x, block = p^T x; context gradients are contiguous [C, kv_heads, d].
  void transposed_times(const std::vector<T>& p, const std::vector<T>& x, T* context, T* block) const {
    gemm<T>(true, false, keys_, o_.d, count_, T(1), p.data() + tile_.length, width_, x.data(), o_.d, T(0),
            const_cast<T*>(block_at(block)), block_stride());
    gemm<T>(true, false, tile_.length, o_.d, count_, T(1), p.data(), width_, x.data(), o_.d, T(1),
            const_cast<T*>(context_at(context, block_stride())), block_stride());
  }

  // Calls per_row(i, prefix, block_column): row i of the packed order sees columns [0, prefix) and [block_column,
  // block_column + slots).
  template <class F>
  void for_each_row(const F& per_row) const {
    for (int64_t g = 0; g < o_.group(); ++g)
      for (int64_t b = 0; b < tile_.blocks; ++b) {
        const int64_t a = tile_.block + b, prefix = o_.view->context_end[a] - tile_.context;
        for (int64_t row = o_.view->row_begin[a]; row < o_.view->row_begin[a + 1]; ++row)
          per_row(g * tile_.rows + row - tile_.row, prefix, tile_.length + b * o_.view->slots);
      }
  }

  // Scores -> probabilities over what each row sees, zero elsewhere. `lse` [count]: log of the row's sum, written when
  // `known` is false and used when it is true.
  void softmax(std::vector<T>& scores, T* lse, bool known) const {
    const int64_t slots = o_.view->slots;
    for_each_row([&](int64_t i, int64_t prefix, int64_t column) {
      T* row = scores.data() + i * width_;
      std::fill(row + prefix, row + column, T(0));
      std::fill(row + column + slots, row + width_, T(0));
      if (known) {
        exp_minus(row, prefix, lse[i]);
        exp_minus(row + column, slots, lse[i]);
        return;
      }
      const T in_block = max_of(row + column, slots);
      const T most = prefix > 0 ? std::max(in_block, max_of(row, prefix)) : in_block;
      const T sum = exp_minus(row, prefix, most) + exp_minus(row + column, slots, most);
      scale(row, prefix, T(1) / sum);
      scale(row + column, slots, T(1) / sum);
      lse[i] = most + std::log(sum);
    });
  }

 private:
  int64_t offset(int64_t g, int64_t r) const { return ((tile_.row + r) * o_.heads + kv_ * o_.group() + g) * o_.d; }
  int64_t block_stride() const { return o_.kv_heads * o_.d; }
  const T* block_at(const T* data) const { return data + (tile_.block * o_.view->slots * o_.kv_heads + kv_) * o_.d; }
  const T* context_at(const T* data, int64_t stride) const { return data + tile_.context * stride + kv_ * o_.d; }

  const Operands<T>& o_;
  const Tile& tile_;
  int64_t kv_, keys_, width_, count_;
};

// Items (tile, kv head) are dealt to a fixed number of parts, so that sums over tiles have one order.
struct Parts {
  std::vector<Tile> tiles;
  int64_t items, parts;

  Parts(const BlockView& view, int64_t kv_heads) : tiles(make_tiles(view, kTileRows)) {
    items = static_cast<int64_t>(tiles.size()) * kv_heads;
    parts = std::max<int64_t>(1, std::min<int64_t>(items, at::get_num_threads()));
  }

  // work(part, tile index, kv head) for every item; items of one part run one after another on one thread.
  template <class F>
  void run(int64_t kv_heads, const F& work) const {
    at::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part)
        for (int64_t item = part; item < items; item += parts) work(part, item / kv_heads, item % kv_heads);
    });
  }
};

template <class T>
Operands<T> operands(const at::Tensor& q, const at::Tensor& block_k, const at::Tensor& block_v,
                     const at::Tensor& context_k, const at::Tensor& context_v, const BlockView& view) {
  Operands<T> o;
  o.q = q.const_data_ptr<T>();
  o.block_k = block_k.const_data_ptr<T>();
  o.block_v = block_v.const_data_ptr<T>();
  o.context_k = context_k.const_data_ptr<T>();
  o.context_v = context_v.const_data_ptr<T>();
  o.heads = q.size(1);
  o.kv_heads = block_k.size(1);
  o.d = q.size(2);
  o.context_k_stride =
      std::max(context_k.stride(0), o.kv_heads * o.d);  // an empty or single-row context may state any stride
  o.context_v_stride = std::max(context_v.stride(0), o.kv_heads * o.d);
  o.scale = T(1) / std::sqrt(static_cast<T>(o.d));
  o.view = &view;
  return o;
}

// Where the log-sum-exp of a tile and kv head lies in a flat [R * heads] array: tile by tile, head by head.
template <class T>
T* lse_of(T* lse, const Operands<T>& o, const Tile& tile, int64_t kv_head) {
  return lse + tile.row * o.heads + kv_head * o.group() * tile.rows;
}

template <class T>
void forward_cpu(const Operands<T>& o, T* out, T* lse) {
  const Parts parts(*o.view, o.kv_heads);
  parts.run(o.kv_heads, [&](int64_t, int64_t t, int64_t kv_head) {
    thread_local std::vector<T> q, scores, result;
    const Tile& tile = parts.tiles[static_cast<size_t>(t)];
    const TileWork<T> work(o, tile, kv_head);
    work.pack(o.q, q);
    work.times_transposed(q, o.scale, o.context_k, o.context_k_stride, o.block_k, scores);
    work.softmax(scores, lse_of(lse, o, tile, kv_head), false);
    work.times(scores, o.context_v, o.context_v_stride, o.block_v, result);
    work.unpack(result, out);
  });
}

// Gradients; context ones arrive as [parts, C, kv_heads, d] partial sums, zero-filled.
template <class T>
struct Gradients {
  T *q, *block_k, *block_v, *context_k, *context_v;
  int64_t context_size;
};

template <class T>
void backward_cpu(const Operands<T>& o, const T* out, T* lse, const T* grad, const Parts& parts,
                  const Gradients<T>& to) {
  parts.run(o.kv_heads, [&](int64_t part, int64_t t, int64_t kv_head) {
    thread_local std::vector<T> q, p, d_out, d_scores, packed_out, d_q;
    const Tile& tile = parts.tiles[static_cast<size_t>(t)];
    const TileWork<T> work(o, tile, kv_head);
    work.pack(o.q, q);
    work.pack(grad, d_out);
    work.pack(out, packed_out);
    work.times_transposed(q, o.scale, o.context_k, o.context_k_stride, o.block_k, p);
    work.softmax(p, lse_of(lse, o, tile, kv_head), true);
    work.transposed_times(p, d_out, to.context_v + part * to.context_size, to.block_v);
    work.times_transposed(d_out, T(1), o.context_v, o.context_v_stride, o.block_v, d_scores);
    // dS = P (dP - sum P dP) scale, and sum P dP = out . d_out; where P is zero so is dS.
    for (int64_t i = 0; i < work.count(); ++i) {
      const T inner = dot(packed_out.data() + i * o.d, d_out.data() + i * o.d, o.d);
      softmax_backward(d_scores.data() + i * work.width(), p.data() + i * work.width(), work.width(), inner, o.scale);
    }
    work.transposed_times(d_scores, q, to.context_k + part * to.context_size, to.block_k);
    work.times(d_scores, o.context_k, o.context_k_stride, o.block_k, d_q);
    work.unpack(d_q, to.q);
  });
}

struct ViewHolder : torch::CustomClassHolder {
  BlockView view;
};

// q contiguous; lse: [R * heads] scratch that backward reads.
at::Tensor forward_tiles(const at::Tensor& q, const at::Tensor& block_k, const at::Tensor& block_v,
                         const at::Tensor& context_k, const at::Tensor& context_v, const BlockView& view,
                         at::Tensor& lse) {
  at::Tensor out = at::empty_like(q);
  lse = at::empty({q.size(0) * q.size(1)}, q.options());
  AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "block_attention", [&] {
    forward_cpu<scalar_t>(operands<scalar_t>(q, block_k, block_v, context_k, context_v, view),
                          out.mutable_data_ptr<scalar_t>(), lse.mutable_data_ptr<scalar_t>());
  });
  return out;
}

struct TiledBlockAttention : torch::autograd::Function<TiledBlockAttention> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& q, const at::Tensor& block_k,
                            const at::Tensor& block_v, const at::Tensor& context_k, const at::Tensor& context_v,
                            const BlockView& view) {
    at::Tensor lse;
    const at::Tensor out = forward_tiles(q, block_k, block_v, context_k, context_v, view, lse);
    auto holder = c10::make_intrusive<ViewHolder>();
    holder->view = view;
    context->saved_data["view"] = c10::IValue::make_capsule(holder);
    context->save_for_backward({q, block_k, block_v, context_k, context_v, out, lse});
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto holder = c10::static_intrusive_pointer_cast<ViewHolder>(context->saved_data["view"].toCapsule());
    const BlockView& view = holder->view;
    const at::Tensor &q = saved[0], &block_k = saved[1], &block_v = saved[2], &context_k = saved[3],
                     &context_v = saved[4];
    const at::Tensor grad = grads[0].contiguous();
    const Parts parts(view, block_k.size(1));
    const auto partial = [&](const at::Tensor& like) {
      return at::zeros({parts.parts, like.size(0), like.size(1), like.size(2)}, like.options());
    };
    const at::Tensor d_q = at::empty_like(q), d_block_k = at::zeros_like(block_k), d_block_v = at::zeros_like(block_v);
    const at::Tensor d_context_k = partial(context_k), d_context_v = partial(context_v);
    AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "block_attention_backward", [&] {
      Gradients<scalar_t> to{d_q.mutable_data_ptr<scalar_t>(),         d_block_k.mutable_data_ptr<scalar_t>(),
                             d_block_v.mutable_data_ptr<scalar_t>(),   d_context_k.mutable_data_ptr<scalar_t>(),
                             d_context_v.mutable_data_ptr<scalar_t>(), context_k.numel()};
      backward_cpu<scalar_t>(operands<scalar_t>(q, block_k, block_v, context_k, context_v, view),
                             saved[5].const_data_ptr<scalar_t>(), saved[6].mutable_data_ptr<scalar_t>(),
                             grad.const_data_ptr<scalar_t>(), parts, to);
    });
    return {d_q, d_block_k, d_block_v, d_context_k.sum(0), d_context_v.sum(0), at::Tensor()};
  }
};

void check(const at::Tensor& q, const at::Tensor& block_k, const at::Tensor& context_k, const BlockView& view) {
  DS_CHECK(q.dim() == 3 && block_k.dim() == 3 && context_k.dim() == 3,
           "block attention: [rows, heads, head_dim] tensors are expected");
  DS_CHECK(q.size(1) % block_k.size(1) == 0, "block attention: {} heads do not divide into {} kv heads", q.size(1),
           block_k.size(1));
  DS_CHECK(static_cast<int64_t>(view.row_begin.size()) == view.blocks() + 1 && view.row_begin.back() == q.size(0),
           "block attention: {} query rows, but the blocks name {}", q.size(0),
           view.row_begin.empty() ? 0 : view.row_begin.back());
  DS_CHECK(block_k.size(0) == view.blocks() * view.slots, "block attention: {} keys for {} blocks of {}",
           block_k.size(0), view.blocks(), view.slots);
  for (int64_t a = 0; a < view.blocks(); ++a) {
    DS_CHECK(view.context_begin[a] <= view.context_end[a] && view.context_end[a] <= context_k.size(0),
             "block attention: block {} sees context rows {} to {} of {}", a, view.context_begin[a],
             view.context_end[a], context_k.size(0));
    DS_CHECK(
        a == 0 || view.context_begin[a] != view.context_begin[a - 1] || view.context_end[a] >= view.context_end[a - 1],
        "block attention: anchors must ascend, block {} ends at {} after {}", a, view.context_end[a],
        view.context_end[a > 0 ? a - 1 : 0]);
  }
}

// Rows of heads side by side, as the tiles read them; only the first dimension may be strided.
at::Tensor rows_of_heads(const at::Tensor& x) {
  return x.stride(2) == 1 && x.stride(1) == x.size(2) ? x : x.contiguous();
}

}  // namespace

at::Tensor block_attention(const at::Tensor& q, const at::Tensor& block_keys, const at::Tensor& block_values,
                           const at::Tensor& context_keys, const at::Tensor& context_values, const BlockView& view) {
  const bool tiled = q.is_cpu() && (q.scalar_type() == at::kFloat || q.scalar_type() == at::kDouble);
  if (!tiled) return block_attention_by_operations(q, block_keys, block_values, context_keys, context_values, view);
  check(q, block_keys, context_keys, view);
  const at::Tensor queries = q.contiguous(), k = block_keys.contiguous(), v = block_values.contiguous();
  const at::Tensor ck = rows_of_heads(context_keys), cv = rows_of_heads(context_values);
  if (at::GradMode::is_enabled()) return TiledBlockAttention::apply(queries, k, v, ck, cv, view);
  at::Tensor lse;
  return forward_tiles(queries, k, v, ck, cv, view, lse);
}

at::Tensor block_attention_by_operations(const at::Tensor& q, const at::Tensor& block_keys,
                                         const at::Tensor& block_values, const at::Tensor& context_keys,
                                         const at::Tensor& context_values, const BlockView& view) {
  check(q, block_keys, context_keys, view);
  const int64_t group = q.size(1) / block_keys.size(1);
  const auto heads_first = [&](const at::Tensor& x) {
    return x.repeat_interleave(group, 1).transpose(0, 1).unsqueeze(0);
  };
  const auto index = at::TensorOptions().dtype(at::kLong);
  std::vector<at::Tensor> outs;
  for (const Tile& tile : make_tiles(view, kTileRowsOffCpu)) {
    std::vector<int64_t> block_of_row, prefix_of_row;
    for (int64_t a = tile.block; a < tile.block + tile.blocks; ++a) {
      block_of_row.insert(block_of_row.end(), static_cast<size_t>(view.row_begin[a + 1] - view.row_begin[a]),
                          a - tile.block);
      prefix_of_row.insert(prefix_of_row.end(), static_cast<size_t>(view.row_begin[a + 1] - view.row_begin[a]),
                           view.context_end[a] - tile.context);
    }
    const at::Tensor block = at::tensor(block_of_row, index).to(q.device()),
                     prefix = at::tensor(prefix_of_row, index).to(q.device());
    const at::Tensor key_block = at::arange(tile.blocks, index.device(q.device())).repeat_interleave(view.slots);
    const at::Tensor visible =
        at::cat({at::arange(tile.length, index.device(q.device())).unsqueeze(0) < prefix.unsqueeze(1),
                 key_block.unsqueeze(0) == block.unsqueeze(1)},
                1);  // [rows, length + keys]
    const int64_t first = tile.block * view.slots, count = tile.blocks * view.slots;
    const at::Tensor keys =
        at::cat({context_keys.narrow(0, tile.context, tile.length), block_keys.narrow(0, first, count)});
    const at::Tensor values =
        at::cat({context_values.narrow(0, tile.context, tile.length), block_values.narrow(0, first, count)});
    const at::Tensor rows = q.narrow(0, tile.row, tile.rows).transpose(0, 1).unsqueeze(0);
    outs.push_back(at::scaled_dot_product_attention(rows, heads_first(keys), heads_first(values), visible)
                       .squeeze(0)
                       .transpose(0, 1));
  }
  return outs.empty() ? at::zeros_like(q) : at::cat(outs);
}

}  // namespace draftsmith
