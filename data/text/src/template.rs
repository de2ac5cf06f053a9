//! A chat template compiled and rendered as Transformers 5 does it (`transformers/utils/chat_template_utils.py`).

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{from_args, Kwargs, Serde, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value};
use serde_json::{Map, Value as Json};

use crate::{python, tags};

const NAME: &str = "chat_template";
const DATE: &str = "__draftsmith_date";

pub struct Template {
    environment: Environment<'static>,
    source: String,
    has_tags: bool,
}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

fn trim(value: &Value, chars: Option<&str>) -> Result<Value, Error> {
    let text = python::to_str(value)?;
    Ok(Value::from(match chars {
        Some(chars) => text.trim_matches(|c| chars.contains(c)),
        None => text.trim_matches(python::is_space),
    }))
}

fn tojson(value: &Value, ensure_ascii: Option<Value>, indent: Option<Value>, separators: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let pick = |positional: Option<Value>, name: &str| -> Result<Option<Value>, Error> {
        let named: Option<Value> = kwargs.get(name)?;
        Ok(positional.or(named).filter(|v| !v.is_none() && !v.is_undefined()))
    };
    let ensure_ascii = pick(ensure_ascii, "ensure_ascii")?.is_some_and(|v| v.is_true());
    let indent = match pick(indent, "indent")? {
        Some(v) => Some(match v.as_str() {
            Some(text) => text.to_string(),
            None => " ".repeat(usize::try_from(v).unwrap_or(0)),
        }),
        None => None,
    };
    let (mut item_separator, mut key_separator) =
        (if indent.is_some() { "," } else { ", " }.to_string(), ": ".to_string());
    if let Some(pair) = pick(separators, "separators")? {
        item_separator = python::to_str(&pair.get_item_by_index(0)?)?;
        key_separator = python::to_str(&pair.get_item_by_index(1)?)?;
    }
    let sort_keys = pick(None, "sort_keys")?.is_some_and(|v| v.is_true());
    kwargs.assert_all_used()?;
    let mut out = String::new();
    python::to_json(value, &python::JsonStyle { ensure_ascii, indent, item_separator, key_separator, sort_keys }, 0, &mut out)?;
    Ok(Value::from(out))
}

/// Python's string methods where they differ from minijinja-contrib's, and the ones it lacks.
fn string_method(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let strings = |parts: Vec<String>| Value::from(parts);
    Ok(Some(match method {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            let matches = |c: char| chars.map_or_else(|| python::is_space(c), |set| set.contains(c));
            Value::from(match method {
                "strip" => text.trim_matches(matches),
                "lstrip" => text.trim_start_matches(matches),
                _ => text.trim_end_matches(matches),
            })
        }
        "split" | "rsplit" => {
            let (separator, limit, kwargs): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
            let named: Option<Value> = kwargs.get("sep")?;
            let limit = limit.or(kwargs.get("maxsplit")?);
            kwargs.assert_all_used()?;
            let separator = separator.or(named).filter(|v| !v.is_none());
            let separator = match &separator {
                Some(v) => Some(v.as_str().ok_or_else(|| invalid("split: the separator must be a string"))?),
                None => None,
            };
            strings(python::split(text, separator, limit, method == "rsplit")?)
        }
        "splitlines" => {
            let (keep_ends, kwargs): (Option<bool>, Kwargs) = from_args(args)?;
            let keep_ends = keep_ends.or(kwargs.get("keepends")?).unwrap_or(false);
            strings(python::split_lines(text, keep_ends))
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let found = if method == "partition" { text.split_once(separator) } else { text.rsplit_once(separator) };
            Value::from(minijinja::value::Tuple::from(match found {
                Some((a, b)) => [Value::from(a), Value::from(separator), Value::from(b)],
                None if method == "partition" => [Value::from(text), Value::from(""), Value::from("")],
                None => [Value::from(""), Value::from(""), Value::from(text)],
            }))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "find" | "rfind" | "index" | "rindex" => {
            let (what, from): (&str, Option<usize>) = from_args(args)?;
            let start = from.map_or(0, |n| text.char_indices().nth(n).map_or(text.len(), |(i, _)| i));
            let hit = if method.starts_with('r') { text[start..].rfind(what) } else { text[start..].find(what) };
            match hit {
                Some(at) => Value::from(text[..start + at].chars().count()),
                None if method.ends_with("find") => Value::from(-1),
                None => return Err(invalid("substring not found")),
            }
        }
        "title" => Value::from(python::title(text)),
        "isspace" => Value::from(!text.is_empty() && text.chars().all(python::is_space)),
        "join" => {
            let (items,): (&Value,) = from_args(args)?;
            let mut out = String::new();
            for (i, item) in items.try_iter()?.enumerate() {
                if i > 0 {
                    out.push_str(text);
                }
                out.push_str(item.as_str().ok_or_else(|| invalid(format!("join: item {i} is no string")))?);
            }
            Value::from(out)
        }
        _ => return Ok(None),
    }))
}

fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        if let Some(result) = string_method(text, name, args)? {
            return Ok(result);
        }
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args)
}

fn environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(method);
    environment.set_formatter(|out, _, value| {
        out.write_str(&python::to_str(value)?)?;
        Ok(())
    });
    environment.add_filter("tojson", tojson);
    environment.add_filter("trim", trim);
    environment.add_filter("string", |value: &Value| python::to_str(value).map(Value::from));
    // Jinja2 asks Python: whatever has a length and an index is a sequence, and None cannot be iterated.
    environment.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::Undefined | ValueKind::Seq | ValueKind::Map | ValueKind::String)
    });
    environment.add_test("iterable", |value: &Value| {
        matches!(
            value.kind(),
            ValueKind::Undefined | ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Iterable
        )
    });
    environment.add_function("raise_exception", |message: &Value| -> Result<Value, Error> {
        Err(invalid(python::to_str(message)?))
    });
    environment.add_function("strftime_now", |state: &State, format: &str| -> Result<String, Error> {
        let date = state.lookup(DATE).and_then(|v| v.as_str().map(String::from)).unwrap_or_default();
        if date.is_empty() {
            return Err(invalid("the template prints the current time; state a fixed one, so that renders are repeatable"));
        }
        python::strftime(format, &date).map_err(invalid)
    });
    Ok(environment)
}

/// Messages as Transformers 5 hands them to templates: no null keys, reasoning under every name that templates read.
fn normalise(messages: &mut Json) -> Result<(), String> {
    let list = messages.as_array_mut().ok_or("the messages must be a JSON array")?;
    for message in list {
        let fields = message.as_object_mut().ok_or("each message must be a JSON object")?;
        fields.retain(|_, value| !value.is_null());
        let reasoning = ["reasoning_content", "thinking", "reasoning"].iter().find_map(|name| fields.get(*name).cloned());
        if let Some(reasoning) = reasoning {
            let mut all = Map::new();
            all.insert("thinking".into(), reasoning.clone());
            all.extend(std::mem::take(fields));
            all.insert("reasoning_content".into(), reasoning);
            *fields = all;
        }
    }
    Ok(())
}

/// The error and its causes, with the line of the template.
fn explain(error: &Error) -> String {
    let mut text = error.detail().map_or_else(|| error.to_string(), String::from);
    if let Some(line) = error.line() {
        text += &format!(" (template line {line})");
    }
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text += &format!(": {inner}");
        cause = inner.source();
    }
    text
}

impl Template {
    pub fn compile(source: &str) -> Result<Self, String> {
        let source = source.replace("\r\n", "\n").replace('\r', "\n");
        let (rewritten, has_tags) = tags::rewrite(&source);
        let mut environment = environment().map_err(|e| explain(&e))?;
        environment.add_template_owned(NAME, rewritten).map_err(|e| explain(&e))?;
        Ok(Self { environment, source, has_tags })
    }

    pub fn has_tags(&self) -> bool {
        self.has_tags
    }

    /// Two markers that occur neither in the input nor in the template: private-use characters around a number.
    fn markers(&self, inputs: [&str; 2]) -> (String, String) {
        (0u32..)
            .map(|nonce| (format!("\u{F8FE}{nonce}\u{F8FC}"), format!("\u{F8FE}{nonce}\u{F8FD}")))
            .find(|(open, close)| {
                inputs.iter().chain([&self.source.as_str()]).all(|text| !text.contains(open) && !text.contains(close))
            })
            .expect("a text of bounded length cannot hold every marker")
    }

    /// The text, and the byte spans of its generation blocks, flattened.
    pub fn render(&self, messages: &str, context: &str, date: &str) -> Result<(String, Vec<u64>), String> {
        let mut list: Json = serde_json::from_str(messages).map_err(|e| format!("the messages are not JSON: {e}"))?;
        normalise(&mut list)?;
        let mut variables: Map<String, Json> = serde_json::from_str(context).map_err(|e| format!("the context is not JSON: {e}"))?;
        variables.insert("messages".into(), list);
        variables.insert(DATE.into(), date.into());
        // serde_json decodes escapes, so the markers are checked against the decoded texts.
        let (open, close) = if self.has_tags {
            let decoded = Json::Object(variables.clone()).to_string();
            self.markers([&decoded, messages])
        } else {
            Default::default()
        };
        variables.insert(tags::OPEN.into(), open.as_str().into());
        variables.insert(tags::CLOSE.into(), close.as_str().into());
        let template = self.environment.get_template(NAME).map_err(|e| explain(&e))?;
        let text = template.render(Value::from(Serde(&variables))).map_err(|e| explain(&e))?;
        if self.has_tags {
            tags::strip(&text, &open, &close)
        } else {
            Ok((text, Vec::new()))
        }
    }
}
