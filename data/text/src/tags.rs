//! `{% generation %} ... {% endgeneration %}` for an engine without custom tags.
//!
//! The tags become a `with` block (the same scope for `set` as Jinja2's tag gives, and writes to namespaces go through) around two
//! printed markers. The white-space signs stay where they were: the left sign on the first new tag, the right one on the last.

/// Names the markers have inside the template.
pub const OPEN: &str = "__draftsmith_open";
pub const CLOSE: &str = "__draftsmith_close";

/// End of a `{% ... %}` or `{{ ... }}` whose inside starts at `from`, past the closing delimiter. Strings are skipped, and for
/// expressions balanced braces too, since `{{ {"a": {}} }}` closes with the last pair.
fn tag_end(source: &str, from: usize, close: &[u8; 2]) -> usize {
    let bytes = source.as_bytes();
    let (mut at, mut depth) = (from, 0usize);
    while at < bytes.len() {
        match bytes[at] {
            quote @ (b'"' | b'\'') => {
                at += 1;
                while at < bytes.len() && bytes[at] != quote {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            _ if depth == 0 && bytes[at..].starts_with(close) => return at + 2,
            b'{' => {
                depth += 1;
                at += 1;
            }
            b'}' => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            _ => at += 1,
        }
    }
    bytes.len()
}

/// A tag `{%L word R%}` without anything else in it: its word, its two signs and where it ends.
struct Bare<'a> {
    word: &'a str,
    left: &'a str,
    right: &'a str,
    end: usize,
}

fn sign(source: &str, at: usize) -> &str {
    match source.as_bytes().get(at) {
        Some(b'-' | b'+') => &source[at..at + 1],
        _ => "",
    }
}

fn bare_tag(source: &str, start: usize) -> Option<Bare<'_>> {
    let left = sign(source, start + 2);
    let inside = &source[start + 2 + left.len()..];
    let word_at = inside.len() - inside.trim_start().len();
    let word_length = inside[word_at..].find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(inside.len() - word_at);
    let rest = &inside[word_at + word_length..];
    let close_at = start + 2 + left.len() + word_at + word_length + (rest.len() - rest.trim_start().len());
    let right = sign(source, close_at);
    let end = close_at + right.len() + 2;
    source[close_at + right.len()..]
        .starts_with("%}")
        .then(|| Bare { word: &inside[word_at..word_at + word_length], left, right, end })
}

/// The template with its tags replaced, and whether there were any.
pub fn rewrite(source: &str) -> (String, bool) {
    let mut out = String::with_capacity(source.len() + 256);
    let (mut at, mut copied, mut found) = (0, 0, false);
    while let Some(next) = source[at..].find('{') {
        let start = at + next;
        let rest = &source[start..];
        if rest.starts_with("{#") {
            at = rest.find("#}").map_or(source.len(), |n| start + n + 2);
        } else if rest.starts_with("{{") {
            at = tag_end(source, start + 2, b"}}");
        } else if rest.starts_with("{%") {
            let tag = bare_tag(source, start);
            match tag.as_ref().map(|t| t.word) {
                Some("raw") => {
                    at = tag.map_or(source.len(), |t| t.end);
                    while let Some(n) = source[at..].find("{%") {
                        let inner = bare_tag(source, at + n);
                        at = inner.as_ref().map_or(at + n + 2, |t| t.end);
                        if inner.is_some_and(|t| t.word == "endraw") {
                            break;
                        }
                    }
                }
                Some("generation" | "endgeneration") => {
                    let tag = tag.expect("matched above");
                    out.push_str(&source[copied..start]);
                    let (l, r) = (tag.left, tag.right);
                    out.push_str(&if tag.word == "generation" {
                        format!("{{%{l} with %}}{{{{ {OPEN} }}}}{{% if true {r}%}}")
                    } else {
                        format!("{{%{l} endif %}}{{{{ {CLOSE} }}}}{{% endwith {r}%}}")
                    });
                    at = tag.end;
                    copied = at;
                    found = true;
                }
                _ => at = tag_end(source, start + 2, b"%}"),
            }
        } else {
            at = start + 1;
        }
    }
    out.push_str(&source[copied..]);
    (out, found)
}

/// Takes the markers out of a rendered text; the byte spans between them, flattened, in order of closing.
pub fn strip(text: &str, open: &str, close: &str) -> Result<(String, Vec<u64>), String> {
    let mut out = String::with_capacity(text.len());
    let (mut spans, mut stack) = (Vec::new(), Vec::new());
    let mut rest = text;
    loop {
        let (next_open, next_close) = (rest.find(open), rest.find(close));
        let (at, opening) = match (next_open, next_close) {
            (None, None) => break,
            (Some(o), Some(c)) if o < c => (o, true),
            (Some(o), None) => (o, true),
            (_, Some(c)) => (c, false),
        };
        out.push_str(&rest[..at]);
        if opening {
            stack.push(out.len() as u64);
            rest = &rest[at + open.len()..];
        } else {
            let begin = stack.pop().ok_or("the template closed a generation block that it had not opened")?;
            spans.extend([begin, out.len() as u64]);
            rest = &rest[at + close.len()..];
        }
    }
    if !stack.is_empty() {
        return Err("the template opened a generation block that never reached its end".into());
    }
    out.push_str(rest);
    Ok((out, spans))
}
