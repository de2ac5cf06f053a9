// The out-of-line part of {fmt}, compiled from the headers that are found first.
//
// LibTorch brings its own, newer {fmt} headers, which everything that sees tensors includes; the system's library holds the functions of the system's
// version only, under another inline namespace. This unit gives the ones that are missing.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE

template FMT_API auto detail::thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto detail::decimal_point_impl(locale_ref) -> char;

FMT_END_NAMESPACE
