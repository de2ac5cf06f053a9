//! How Python spells values: `str`, `repr`, `json.dumps`, `str.strip`, `strftime`. Templates are written against these.

use std::fmt::Write;

use minijinja::value::{Tuple, ValueKind};
use minijinja::{Error, ErrorKind, Value};

/// `str.isspace` of one character: Unicode white space and the four separators U+001C..U+001F.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// `repr(float)`: shortest digits, exponent form below 1e-4 and from 1e16 on.
pub fn float(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').expect("Rust writes an exponent");
    let exponent: i32 = exponent.parse().expect("Rust writes a whole exponent");
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = value.to_string();
    if plain.contains('.') {
        plain
    } else {
        plain + ".0"
    }
}

/// A float that is no integer type: minijinja keeps `1.0` apart from `1`.
fn as_float(value: &Value) -> Option<f64> {
    if value.kind() == ValueKind::Number && !value.is_integer() {
        f64::try_from(value.clone()).ok()
    } else {
        None
    }
}

/// `str.isprintable` of one character. `str::escape_debug` escapes exactly the unprintable ones after the first character.
fn is_printable(c: char) -> bool {
    let text: String = ['a', c].iter().collect();
    !text.escape_debug().to_string().starts_with("a\\u{")
}

/// `repr(str)`.
fn quoted(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            ' '..='~' => out.push(c),
            c if (c as u32) < 0x100 && (c as u32 <= 0x20 || !is_printable(c) || c.is_control()) => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c if is_printable(c) => out.push(c),
            c if (c as u32) < 0x10000 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => {
                let _ = write!(out, "\\U{:08x}", c as u32);
            }
        }
    }
    out.push(quote);
}

fn write_repr(value: &Value, out: &mut String) -> Result<(), Error> {
    match value.kind() {
        ValueKind::String => quoted(value.as_str().unwrap_or_default(), out),
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write_repr(&key, out)?;
                out.push_str(": ");
                write_repr(&value.get_item(&key)?, out)?;
            }
            out.push('}');
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let tuple = value.downcast_object_ref::<Tuple>().is_some();
            out.push(if tuple { '(' } else { '[' });
            let mut count = 0;
            for item in value.try_iter()? {
                if count > 0 {
                    out.push_str(", ");
                }
                write_repr(&item, out)?;
                count += 1;
            }
            if tuple && count == 1 {
                out.push(',');
            }
            out.push(if tuple { ')' } else { ']' });
        }
        _ => match as_float(value) {
            Some(number) => out.push_str(&float(number)),
            None => {
                let _ = write!(out, "{value}");
            }
        },
    }
    Ok(())
}

/// `str(value)`; an undefined value is the empty text, as Jinja prints it.
pub fn to_str(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::String => Ok(value.as_str().unwrap_or_default().to_string()),
        ValueKind::Undefined => Ok(String::new()),
        _ => {
            let mut out = String::new();
            write_repr(value, &mut out)?;
            Ok(out)
        }
    }
}

pub struct JsonStyle {
    pub ensure_ascii: bool,
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

fn json_string(text: &str, ensure_ascii: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || (ensure_ascii && (c as u32) > 0x7e) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn newline(style: &JsonStyle, depth: usize, out: &mut String) {
    if let Some(indent) = &style.indent {
        out.push('\n');
        for _ in 0..depth {
            out.push_str(indent);
        }
    }
}

fn json_scalar(value: &Value) -> Result<String, Error> {
    Ok(match value.kind() {
        ValueKind::None => "null".into(),
        ValueKind::Bool => if value.is_true() { "true" } else { "false" }.into(),
        ValueKind::Number => match as_float(value) {
            Some(n) if n.is_nan() => "NaN".into(),
            Some(n) if n.is_infinite() => if n > 0.0 { "Infinity" } else { "-Infinity" }.into(),
            Some(n) => float(n),
            None => value.to_string(),
        },
        kind => return Err(Error::new(ErrorKind::BadSerialization, format!("tojson: {kind} is not JSON serializable"))),
    })
}

/// `json.dumps(value, ...)`.
pub fn to_json(value: &Value, style: &JsonStyle, depth: usize, out: &mut String) -> Result<(), Error> {
    match value.kind() {
        ValueKind::String => json_string(value.as_str().unwrap_or_default(), style.ensure_ascii, out),
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if style.sort_keys {
                keys.sort();
            }
            if keys.is_empty() {
                out.push_str("{}");
                return Ok(());
            }
            out.push('{');
            for (i, key) in keys.iter().enumerate() {
                if i > 0 {
                    out.push_str(&style.item_separator);
                }
                newline(style, depth + 1, out);
                match key.as_str() {
                    Some(text) => json_string(text, style.ensure_ascii, out),
                    None => json_string(&json_scalar(key)?, style.ensure_ascii, out),
                }
                out.push_str(&style.key_separator);
                to_json(&value.get_item(key)?, style, depth + 1, out)?;
            }
            newline(style, depth, out);
            out.push('}');
        }
        ValueKind::Seq => {
            if value.len() == Some(0) {
                out.push_str("[]");
                return Ok(());
            }
            out.push('[');
            for (i, item) in value.try_iter()?.enumerate() {
                if i > 0 {
                    out.push_str(&style.item_separator);
                }
                newline(style, depth + 1, out);
                to_json(&item, style, depth + 1, out)?;
            }
            newline(style, depth, out);
            out.push(']');
        }
        _ => out.push_str(&json_scalar(value)?),
    }
    Ok(())
}

/// `str.split`, `str.rsplit` with a separator or white space; `limit` splits at most.
pub fn split(text: &str, separator: Option<&str>, limit: Option<i64>, from_right: bool) -> Result<Vec<String>, Error> {
    let limit = limit.filter(|n| *n >= 0).map_or(usize::MAX, |n| n as usize);
    let pieces = limit.saturating_add(1);
    let Some(separator) = separator else {
        return Ok(split_space(text, limit, from_right));
    };
    if separator.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOperation, "split: empty separator"));
    }
    let mut out: Vec<String> = if from_right {
        text.rsplitn(pieces, separator).map(String::from).collect()
    } else {
        text.splitn(pieces, separator).map(String::from).collect()
    };
    if from_right {
        out.reverse();
    }
    Ok(out)
}

fn split_space(text: &str, limit: usize, from_right: bool) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = if from_right { text.trim_end_matches(is_space) } else { text.trim_start_matches(is_space) };
    while !rest.is_empty() {
        if out.len() == limit {
            out.push(rest.to_string());
            break;
        }
        if from_right {
            let cut = rest.char_indices().rev().find(|(_, c)| is_space(*c)).map_or(0, |(i, c)| i + c.len_utf8());
            out.push(rest[cut..].to_string());
            rest = rest[..cut].trim_end_matches(is_space);
        } else {
            let cut = rest.find(is_space).unwrap_or(rest.len());
            out.push(rest[..cut].to_string());
            rest = rest[cut..].trim_start_matches(is_space);
        }
    }
    if from_right {
        out.reverse();
    }
    out
}

/// `str.title`: a letter after anything that is no letter is a capital.
pub fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut after_letter = false;
    for c in text.chars() {
        if after_letter {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        after_letter = c.is_lowercase() || c.is_uppercase();
    }
    out
}

/// `str.splitlines`.
pub fn split_lines(text: &str, keep_ends: bool) -> Vec<String> {
    let is_break = |c: char| matches!(c, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let mut out = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(is_break).unwrap_or(rest.len());
        let broken = if rest[end..].starts_with("\r\n") { 2 } else { rest[end..].chars().next().map_or(0, char::len_utf8) };
        out.push(rest[..if keep_ends { end + broken } else { end }].to_string());
        rest = &rest[end + broken..];
    }
    out
}

/// The fields of an ISO time `YYYY-MM-DD[(T| )HH:MM[:SS]]`.
fn parse_date(iso: &str) -> Option<[i64; 6]> {
    let (day, clock) = match iso.find(['T', ' ']) {
        Some(i) => (&iso[..i], &iso[i + 1..]),
        None => (iso, ""),
    };
    let mut fields = [0i64; 6];
    let mut parts = day.split('-');
    for field in &mut fields[..3] {
        *field = parts.next()?.parse().ok()?;
    }
    if parts.next().is_some() {
        return None;
    }
    if !clock.is_empty() {
        for (field, part) in fields[3..].iter_mut().zip(clock.trim_end_matches('Z').split(':')) {
            *field = part.parse().ok()?;
        }
    }
    let [_, month, day, hour, minute, second] = fields;
    let valid = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..60).contains(&second);
    valid.then_some(fields)
}

const MONTHS: [&str; 12] = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// `datetime.strftime` in the C locale for the time `iso`.
pub fn strftime(format: &str, iso: &str) -> Result<String, String> {
    let [year, month, day, hour, minute, second] =
        parse_date(iso).ok_or_else(|| format!("the date \"{iso}\" is not of the form 2025-01-31 or 2025-01-31T12:00:00"))?;
    // Day of the week by Sakamoto's method, day of the year by a table.
    let offset = [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4][month as usize - 1];
    let y = if month < 3 { year - 1 } else { year };
    let weekday = (y + y / 4 - y / 100 + y / 400 + offset + day).rem_euclid(7) as usize;
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334][month as usize - 1];
    let day_of_year = before + day + i64::from(leap && month > 2);
    let hour12 = if hour % 12 == 0 { 12 } else { hour % 12 };
    let month_name = MONTHS[month as usize - 1];

    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut code = chars.next();
        let bare = code == Some('-');
        if bare {
            code = chars.next();
        }
        let number = |value: i64, width: usize| if bare { value.to_string() } else { format!("{value:0width$}") };
        out.push_str(&match code {
            Some('Y') => year.to_string(),
            Some('y') => number(year % 100, 2),
            Some('m') => number(month, 2),
            Some('d') => number(day, 2),
            Some('e') => format!("{day:2}"),
            Some('H') => number(hour, 2),
            Some('I') => number(hour12, 2),
            Some('M') => number(minute, 2),
            Some('S') => number(second, 2),
            Some('j') => number(day_of_year, 3),
            Some('B') => month_name.into(),
            Some('b' | 'h') => month_name[..3].into(),
            Some('A') => DAYS[weekday].into(),
            Some('a') => DAYS[weekday][..3].into(),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.into(),
            Some('F') => format!("{year}-{month:02}-{day:02}"),
            Some('T') => format!("{hour:02}:{minute:02}:{second:02}"),
            Some('z' | 'Z') => String::new(), // a naive time has no zone
            Some('%') => "%".into(),
            other => return Err(format!("strftime_now: the code %{} is not known", other.unwrap_or(' '))),
        });
    }
    Ok(out)
}
