//! JSON as people like to read it: lists as tables, objects as lines.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::size::format_size;

/// A list of objects is a table with the union of their plain fields; an object is a line a field.
pub(super) fn format(value: &Value) -> String {
    match value {
        Value::Array(rows) if rows.is_empty() => "none".to_owned(),
        Value::Array(rows) => table(rows),
        Value::Object(fields) => {
            let width = fields.keys().map(String::len).max().unwrap_or(0);
            let is_table = |(_, value): &(&String, &Value)| {
                value
                    .as_array()
                    .is_some_and(|rows| rows.first().is_some_and(Value::is_object))
            };
            // Tables come last: a line behind one would look like a row of it.
            let (tables, plain): (Vec<_>, Vec<_>) = fields.iter().partition(is_table);
            let lines = plain.into_iter().map(|(key, value)| match value {
                Value::Array(texts) if texts.len() > 1 && texts.iter().any(is_sentence) => {
                    let texts: Vec<_> = texts.iter().map(cell).collect();
                    format!("{key:width$}  {}", texts.join(&format!("\n{:width$}  ", "")))
                }
                value => format!("{key:width$}  {}", field(key, value)),
            });
            let tables = tables.into_iter().map(|(key, value)| {
                let rows = value.as_array().map_or_else(String::new, |rows| table(rows));
                format!("\n{key}\n{rows}")
            });
            lines.chain(tables).collect::<Vec<_>>().join("\n")
        }
        Value::Null => "done".to_owned(),
        plain => cell(plain),
    }
}

/// A text that would not be told from its neighbours in one line.
fn is_sentence(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.contains(' '))
}

fn table(rows: &[Value]) -> String {
    let mut columns: Vec<&str> = Vec::new();
    for key in rows
        .iter()
        .filter_map(Value::as_object)
        .flat_map(|row| row.keys())
    {
        if !columns.contains(&key.as_str()) && !LONG.contains(&key.as_str()) {
            columns.push(key);
        }
    }
    columns.sort_by_key(|column| {
        let place = FIRST.iter().position(|first| first == column);
        // What was wrong comes after what it was about, and then what helps.
        (
            place.unwrap_or(FIRST.len()),
            *column == "problem",
            *column == "fix",
        )
    });
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            columns
                .iter()
                .map(|column| {
                    row.get(column)
                        .map(|value| field(column, value))
                        .unwrap_or_default()
                })
                .collect()
        })
        .collect();
    let heading: Vec<String> = columns.iter().map(|column| column.to_uppercase()).collect();
    let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
    lines(&heading, &cells)
}

/// Rows below a heading, each column as wide as its widest cell.
pub(super) fn lines(heading: &[&str], cells: &[Vec<String>]) -> String {
    let mut widths: BTreeMap<usize, usize> = BTreeMap::new();
    let heading: Vec<String> = heading.iter().map(|&text| text.to_owned()).collect();
    for row in std::iter::once(&heading).chain(cells) {
        for (place, text) in row.iter().enumerate() {
            let width = widths.entry(place).or_default();
            *width = (*width).max(text.chars().count());
        }
    }
    let line = |row: &Vec<String>| {
        let padded = row
            .iter()
            .enumerate()
            .map(|(place, text)| format!("{text:width$}", width = widths[&place]));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    std::iter::once(&heading)
        .chain(cells)
        .map(line)
        .collect::<Vec<_>>()
        .join("\n")
}

/// A value in one line, by its name: bytes with their unit, moments as people write them.
fn field(name: &str, value: &Value) -> String {
    match value.as_u64() {
        Some(bytes) if SIZES.contains(&name) => format_size(bytes),
        Some(milliseconds) if MOMENTS.contains(&name) => webui::moment(milliseconds),
        _ => cell(value),
    }
}

/// A value in one line.
pub(super) fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        // What comes from initiators must not move the cursor.
        Value::String(text) => text.chars().filter(|letter| !letter.is_control()).collect(),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join(","),
        Value::Object(fields) => {
            let pairs = fields
                .iter()
                .map(|(key, value)| format!("{key}={}", field(key, value)));
            pairs.collect::<Vec<_>>().join(",")
        }
        plain => plain.to_string(),
    }
}

/// Columns that come first.
const FIRST: &[&str] = &[
    "id",
    "name",
    "target",
    "lun",
    "tsih",
    "action",
    "path",
    "initiator",
    "unit",
];
/// Fields that count bytes.
const SIZES: &[&str] = &["allocated", "done", "size", "total"];
/// Fields that are milliseconds since 1970.
const MOMENTS: &[&str] = &["began", "ended", "since", "time"];
/// Fields that are too long for a column; --json has them.
const LONG: &[&str] = &["negotiated", "before", "after", "isid", "local"];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_are_tables_and_objects_lines() {
        let rows = json!([{"lun": 0, "unit": "one", "target": "t"}, {"lun": 10, "target": "t", "unit": "b\u{1b}[2J"}]);
        assert_eq!(
            format(&rows),
            "TARGET  LUN  UNIT\nt       0    one\nt       10   b[2J"
        );
        assert_eq!(format(&json!([{"size": 5_368_709_120_u64}])), "SIZE\n5 GiB");
        assert_eq!(format(&json!([])), "none");
        assert_eq!(format(&json!({"a": 1, "long": [1, 2]})), "a     1\nlong  1,2");
        let status = json!({"alerts": ["one is shut", "two"], "rows": [{"id": "x"}], "up": 1});
        assert_eq!(
            format(&status),
            "alerts  one is shut\n        two\nup      1\n\nrows\nID\nx"
        );
    }
}
