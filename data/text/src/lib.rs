//! Hugging Face `tokenizers` and `minijinja` behind the C ABI of `text_abi.h`.
//!
//! Every entry point runs inside `guard`: an error comes back as text, a panic never crosses the boundary. Memory handed out is
//! freed by the matching `ds_*_free`. The C++ face (`data/text.h`) is the only caller.

mod python;
mod tags;
mod template;
mod tokenizer;

use std::ffi::c_int;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

use template::Template;
use tokenizer::{Stream, Tokenizer};

/// A buffer owned by this library; `size` bytes at `data`, no terminator.
#[repr(C)]
pub struct Bytes {
    data: *mut u8,
    size: usize,
}

/// A text owned by the caller.
#[repr(C)]
pub struct Text {
    data: *const u8,
    size: usize,
}

/// Encodings of a batch, flattened: text i owns tokens `starts[i]..starts[i + 1]`; token t covers bytes
/// `offsets[2 t]..offsets[2 t + 1]` of its text.
#[repr(C)]
pub struct Encodings {
    ids: *mut i64,
    offsets: *mut i64,
    starts: *mut i64,
    texts: usize,
    tokens: usize,
}

/// A rendered chat; span i is `spans[2 i]..spans[2 i + 1]` in bytes.
#[repr(C)]
pub struct Render {
    text: Bytes,
    spans: *mut u64,
    span_count: usize,
}

fn leak<T>(values: Vec<T>) -> *mut T {
    Box::into_raw(values.into_boxed_slice()) as *mut T
}

unsafe fn unleak<T>(data: *mut T, size: usize) {
    if !data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(data, size)));
    }
}

fn to_bytes(text: String) -> Bytes {
    let bytes = text.into_bytes();
    let size = bytes.len();
    Bytes { data: leak(bytes), size }
}

unsafe fn text<'a>(data: *const u8, size: usize, what: &str) -> Result<&'a str, String> {
    if size == 0 {
        return Ok("");
    }
    std::str::from_utf8(std::slice::from_raw_parts(data, size))
        .map_err(|e| format!("{what} is not valid UTF-8 at byte {}", e.valid_up_to()))
}

unsafe fn slice<'a, T>(data: *const T, size: usize) -> &'a [T] {
    if size == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, size)
    }
}

/// Runs `work`; on an error or a panic stores its text in `error` and returns `fallback`.
fn guard<T>(error: *mut Bytes, fallback: T, work: impl FnOnce() -> Result<T, String>) -> T {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    let message = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => return value,
        Ok(Err(message)) => message,
        Err(panic) => {
            let cause = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no reason given");
            format!("the text library failed inside: {cause}")
        }
    };
    if !error.is_null() {
        unsafe { error.write(to_bytes(message)) };
    }
    fallback
}

#[no_mangle]
pub unsafe extern "C" fn ds_bytes_free(bytes: Bytes) {
    unleak(bytes.data, bytes.size);
}

#[no_mangle]
pub unsafe extern "C" fn ds_tokenizer_load(json: *const u8, size: usize, error: *mut Bytes) -> *mut Tokenizer {
    guard(error, std::ptr::null_mut(), || {
        Ok(Box::into_raw(Box::new(Tokenizer::load(text(json, size, "the file")?)?)))
    })
}

#[no_mangle]
pub unsafe extern "C" fn ds_tokenizer_free(tokenizer: *mut Tokenizer) {
    if !tokenizer.is_null() {
        drop(Box::from_raw(tokenizer));
    }
}

#[no_mangle]
pub unsafe extern "C" fn ds_tokenizer_encode(
    tokenizer: *const Tokenizer,
    texts: *const Text,
    count: usize,
    add_special: c_int,
    out: *mut Encodings,
    error: *mut Bytes,
) -> c_int {
    guard(error, 0, || {
        let mut inputs = Vec::with_capacity(count);
        for item in slice(texts, count) {
            inputs.push(text(item.data, item.size, "the text")?);
        }
        let (ids, offsets, starts) = (*tokenizer).encode(inputs, add_special != 0)?;
        let tokens = ids.len();
        out.write(Encodings { ids: leak(ids), offsets: leak(offsets), starts: leak(starts), texts: count, tokens });
        Ok(1)
    })
}

#[no_mangle]
pub unsafe extern "C" fn ds_encodings_free(encodings: Encodings) {
    unleak(encodings.ids, encodings.tokens);
    unleak(encodings.offsets, 2 * encodings.tokens);
    unleak(encodings.starts, encodings.texts + 1);
}

#[no_mangle]
pub unsafe extern "C" fn ds_tokenizer_decode(
    tokenizer: *const Tokenizer,
    ids: *const i64,
    count: usize,
    skip_special: c_int,
    out: *mut Bytes,
    error: *mut Bytes,
) -> c_int {
    guard(error, 0, || {
        out.write(to_bytes((*tokenizer).decode(slice(ids, count), skip_special != 0)?));
        Ok(1)
    })
}

/// The id of a token, -1 when the vocabulary has none of that text.
#[no_mangle]
pub unsafe extern "C" fn ds_tokenizer_token_to_id(tokenizer: *const Tokenizer, token: *const u8, size: usize) -> i64 {
    guard(std::ptr::null_mut(), -1, || Ok((*tokenizer).token_to_id(text(token, size, "the token")?)))
}

/// 1 and the token's text, or 0 when no token has that id.
#[no_mangle]
pub unsafe extern "C" fn ds_tokenizer_id_to_token(tokenizer: *const Tokenizer, id: i64, out: *mut Bytes) -> c_int {
    guard(std::ptr::null_mut(), 0, || {
        let token = (*tokenizer).id_to_token(id).ok_or_else(String::new)?;
        out.write(to_bytes(token));
        Ok(1)
    })
}

/// One more than the highest id.
#[no_mangle]
pub unsafe extern "C" fn ds_tokenizer_size(tokenizer: *const Tokenizer) -> i64 {
    (*tokenizer).size()
}

/// Writes up to `capacity` ids of special tokens, ascending; returns how many there are.
#[no_mangle]
pub unsafe extern "C" fn ds_tokenizer_special_ids(tokenizer: *const Tokenizer, out: *mut i64, capacity: usize) -> usize {
    let ids = (*tokenizer).special_ids();
    for (i, id) in ids.iter().take(capacity).enumerate() {
        *out.add(i) = *id;
    }
    ids.len()
}

#[no_mangle]
pub extern "C" fn ds_stream_new(skip_special: c_int) -> *mut Stream {
    Box::into_raw(Box::new(Stream::new(skip_special != 0)))
}

#[no_mangle]
pub unsafe extern "C" fn ds_stream_free(stream: *mut Stream) {
    if !stream.is_null() {
        drop(Box::from_raw(stream));
    }
}

/// Adds an id and gives the text that is complete now (may be empty).
#[no_mangle]
pub unsafe extern "C" fn ds_stream_push(
    stream: *mut Stream,
    tokenizer: *const Tokenizer,
    id: i64,
    out: *mut Bytes,
    error: *mut Bytes,
) -> c_int {
    guard(error, 0, || {
        out.write(to_bytes((*stream).push(&*tokenizer, id)?));
        Ok(1)
    })
}

/// Gives what was held back.
#[no_mangle]
pub unsafe extern "C" fn ds_stream_finish(
    stream: *mut Stream,
    tokenizer: *const Tokenizer,
    out: *mut Bytes,
    error: *mut Bytes,
) -> c_int {
    guard(error, 0, || {
        out.write(to_bytes((*stream).finish(&*tokenizer)?));
        Ok(1)
    })
}

#[no_mangle]
pub unsafe extern "C" fn ds_template_compile(source: *const u8, size: usize, error: *mut Bytes) -> *mut Template {
    guard(error, std::ptr::null_mut(), || {
        Ok(Box::into_raw(Box::new(Template::compile(text(source, size, "the template")?)?)))
    })
}

#[no_mangle]
pub unsafe extern "C" fn ds_template_free(template: *mut Template) {
    if !template.is_null() {
        drop(Box::from_raw(template));
    }
}

/// 1 when the template carries generation tags.
#[no_mangle]
pub unsafe extern "C" fn ds_template_has_tags(template: *const Template) -> c_int {
    (*template).has_tags() as c_int
}

/// Renders. `messages` is a JSON array; `context` a JSON object of every other variable; `date` an ISO time or empty.
#[no_mangle]
pub unsafe extern "C" fn ds_template_render(
    template: *const Template,
    messages: Text,
    context: Text,
    date: Text,
    out: *mut Render,
    error: *mut Bytes,
) -> c_int {
    guard(error, 0, || {
        let (rendered, spans) = (*template).render(
            text(messages.data, messages.size, "the messages")?,
            text(context.data, context.size, "the context")?,
            text(date.data, date.size, "the date")?,
        )?;
        let span_count = spans.len() / 2;
        out.write(Render { text: to_bytes(rendered), spans: leak(spans), span_count });
        Ok(1)
    })
}

#[no_mangle]
pub unsafe extern "C" fn ds_render_free(render: Render) {
    ds_bytes_free(render.text);
    unleak(render.spans, 2 * render.span_count);
}
