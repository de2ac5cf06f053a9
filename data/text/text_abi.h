/* C ABI of the crate in this folder (src/lib.rs): tokenizers and chat templates.
 *
 * Texts are UTF-8 with their length; text that is not UTF-8 is refused. Functions that can fail return 0 or NULL and put the
 * reason into `error`, which the caller frees with ds_bytes_free. No panic crosses this boundary. Handles may be read from
 * several threads at once; a ds_stream belongs to one. Use data/text.h, which wraps all of this. */
#ifndef DRAFTSMITH_DATA_TEXT_ABI_H
#define DRAFTSMITH_DATA_TEXT_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ds_tokenizer ds_tokenizer;
typedef struct ds_stream ds_stream;
typedef struct ds_template ds_template;

typedef struct {
  uint8_t* data;
  size_t size;
} ds_bytes;

typedef struct {
  const uint8_t* data;
  size_t size;
} ds_text;

/* Text i owns tokens starts[i]..starts[i + 1]; token t covers bytes offsets[2 t]..offsets[2 t + 1] of its text. */
typedef struct {
  int64_t* ids;
  int64_t* offsets;
  int64_t* starts;
  size_t texts;
  size_t tokens;
} ds_encodings;

/* Generation block i is bytes spans[2 i]..spans[2 i + 1] of the text. */
typedef struct {
  ds_bytes text;
  uint64_t* spans;
  size_t span_count;
} ds_render;

void ds_bytes_free(ds_bytes bytes);

ds_tokenizer* ds_tokenizer_load(const uint8_t* json, size_t size, ds_bytes* error);
void ds_tokenizer_free(ds_tokenizer* tokenizer);
int ds_tokenizer_encode(const ds_tokenizer* tokenizer, const ds_text* texts, size_t count, int add_special, ds_encodings* out,
                        ds_bytes* error);
void ds_encodings_free(ds_encodings encodings);
int ds_tokenizer_decode(const ds_tokenizer* tokenizer, const int64_t* ids, size_t count, int skip_special, ds_bytes* out,
                        ds_bytes* error);
int64_t ds_tokenizer_token_to_id(const ds_tokenizer* tokenizer, const uint8_t* token, size_t size); /* -1: none */
int ds_tokenizer_id_to_token(const ds_tokenizer* tokenizer, int64_t id, ds_bytes* out);             /* 0: none */
int64_t ds_tokenizer_size(const ds_tokenizer* tokenizer);                                           /* highest id + 1 */
size_t ds_tokenizer_special_ids(const ds_tokenizer* tokenizer, int64_t* out, size_t capacity);      /* how many */

ds_stream* ds_stream_new(int skip_special);
void ds_stream_free(ds_stream* stream);
int ds_stream_push(ds_stream* stream, const ds_tokenizer* tokenizer, int64_t id, ds_bytes* out, ds_bytes* error);
int ds_stream_finish(ds_stream* stream, const ds_tokenizer* tokenizer, ds_bytes* out, ds_bytes* error);

ds_template* ds_template_compile(const uint8_t* source, size_t size, ds_bytes* error);
void ds_template_free(ds_template* chat_template);
int ds_template_has_tags(const ds_template* chat_template);
/* messages: JSON array; context: JSON object of all other variables; date: ISO time for strftime_now, or empty. */
int ds_template_render(const ds_template* chat_template, ds_text messages, ds_text context, ds_text date, ds_render* out,
                       ds_bytes* error);
void ds_render_free(ds_render render);

#ifdef __cplusplus
}
#endif

#endif
