//! A `tokenizer.json` as draftsmith reads it: nothing is cut or padded behind the caller's back, offsets cover white space.

use serde_json::Value;
use tokenizers::Tokenizer as Inner;

pub struct Tokenizer {
    inner: Inner,
    size: i64,
    special: Vec<i64>,
}

/// `trim_offsets` takes leading and trailing white space out of a token's span, which would leave a token of white space alone
/// without any. It changes offsets only, never ids.
fn keep_whitespace_in_offsets(node: &mut Value) {
    match node {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                if key == "trim_offsets" {
                    *value = Value::Bool(false);
                } else {
                    keep_whitespace_in_offsets(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(keep_whitespace_in_offsets),
        _ => {}
    }
}

impl Tokenizer {
    pub fn load(json: &str) -> Result<Self, String> {
        let mut file: Value = serde_json::from_str(json).map_err(|e| format!("not valid JSON: {e}"))?;
        let fields = file.as_object_mut().ok_or("a JSON object is expected")?;
        // A file saved with truncation on would cut long texts without a word.
        fields.insert("truncation".into(), Value::Null);
        fields.insert("padding".into(), Value::Null);
        if let Some(post_processor) = fields.get_mut("post_processor") {
            keep_whitespace_in_offsets(post_processor);
        }
        let inner: Inner = serde_json::from_value(file).map_err(|e| format!("not a tokenizer: {e}"))?;
        let highest = inner.get_vocab(true).values().copied().max();
        let mut special: Vec<i64> = inner
            .get_added_tokens_decoder()
            .iter()
            .filter(|(_, token)| token.special)
            .map(|(id, _)| i64::from(*id))
            .collect();
        special.sort_unstable();
        let size = highest.map_or(0, |id| i64::from(id) + 1);
        if size == 0 {
            return Err("the vocabulary is empty".into());
        }
        Ok(Self { inner, size, special })
    }

    #[allow(clippy::type_complexity)]
    pub fn encode(&self, texts: Vec<&str>, add_special: bool) -> Result<(Vec<i64>, Vec<i64>, Vec<i64>), String> {
        // One text stays on the caller's thread; several use every core.
        let encodings = match texts[..] {
            [text] => self.inner.encode(text, add_special).map(|e| vec![e]),
            _ => self.inner.encode_batch(texts, add_special),
        }
        .map_err(|e| e.to_string())?;
        let tokens = encodings.iter().map(|e| e.len()).sum();
        let (mut ids, mut offsets) = (Vec::with_capacity(tokens), Vec::with_capacity(2 * tokens));
        let mut starts = Vec::with_capacity(encodings.len() + 1);
        starts.push(0);
        for encoding in &encodings {
            ids.extend(encoding.get_ids().iter().map(|id| i64::from(*id)));
            offsets.extend(encoding.get_offsets().iter().flat_map(|(begin, end)| [*begin as i64, *end as i64]));
            starts.push(ids.len() as i64);
        }
        Ok((ids, offsets, starts))
    }

    fn checked(&self, id: i64) -> Result<u32, String> {
        u32::try_from(id)
            .ok()
            .filter(|id| self.inner.id_to_token(*id).is_some())
            .ok_or_else(|| format!("token id {id} is not in the vocabulary of {} ids", self.size))
    }

    pub fn decode(&self, ids: &[i64], skip_special: bool) -> Result<String, String> {
        let ids = ids.iter().map(|id| self.checked(*id)).collect::<Result<Vec<u32>, String>>()?;
        self.inner.decode(&ids, skip_special).map_err(|e| e.to_string())
    }

    pub fn token_to_id(&self, token: &str) -> i64 {
        self.inner.token_to_id(token).map_or(-1, i64::from)
    }

    pub fn id_to_token(&self, id: i64) -> Option<String> {
        self.inner.id_to_token(u32::try_from(id).ok()?)
    }

    pub fn size(&self) -> i64 {
        self.size
    }

    pub fn special_ids(&self) -> &[i64] {
        &self.special
    }
}

/// Text of a growing id sequence without ever splitting a character. The pieces joined equal `decode` of all ids.
///
/// The last piece's ids stay as context, because decoders treat the first token of a text in their own way (a dropped leading
/// space); what follows is held back while it ends in a replacement character, that is, in the middle of a character.
pub struct Stream {
    skip_special: bool,
    ids: Vec<i64>,
    context: usize, // ids[..context] were given out already and only set the scene
}

impl Stream {
    pub fn new(skip_special: bool) -> Self {
        Self { skip_special, ids: Vec::new(), context: 0 }
    }

    fn fresh(&self, tokenizer: &Tokenizer) -> Result<String, String> {
        let before = tokenizer.decode(&self.ids[..self.context], self.skip_special)?;
        let mut all = tokenizer.decode(&self.ids, self.skip_special)?;
        if !all.starts_with(&before) {
            return Err(format!("decoding {} more tokens changed the text before them", self.ids.len() - self.context));
        }
        Ok(all.split_off(before.len()))
    }

    pub fn push(&mut self, tokenizer: &Tokenizer, id: i64) -> Result<String, String> {
        self.ids.push(id);
        let text = self.fresh(tokenizer)?;
        if text.is_empty() || text.ends_with('\u{FFFD}') {
            return Ok(String::new());
        }
        self.ids.drain(..self.context);
        self.context = self.ids.len();
        Ok(text)
    }

    pub fn finish(&mut self, tokenizer: &Tokenizer) -> Result<String, String> {
        let text = self.fresh(tokenizer)?;
        self.ids.clear();
        self.context = 0;
        Ok(text)
    }
}
