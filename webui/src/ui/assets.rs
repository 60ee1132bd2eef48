//! Style sheet, scripts and their like, embedded in the program. A page names them with the hash of their content, so a
//! browser keeps them for good and still never has an old one.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use axum::extract::{Path, Query};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use crate::Refusal;

/// The address of an asset, with its version.
pub(super) fn url(name: &str) -> String {
    let version = VERSIONS.get(name).map_or("", String::as_str);
    format!("/assets/{name}?v={version}")
}

#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    #[serde(default)]
    v: String,
}

/// Answers with an asset.
pub(super) async fn send(
    Path(name): Path<String>,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
) -> Response {
    let Some((name, kind, bytes)) = ALL.iter().copied().find(|(known, ..)| *known == name) else {
        return Refusal::not_found("file").into_response();
    };
    let version = VERSIONS.get(name).map_or("", String::as_str);
    let tag = format!("\"{version}\"");
    let kept = if wanted.v == version {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    let common = [
        (header::CACHE_CONTROL, kept.to_owned()),
        (header::ETAG, tag.clone()),
    ];
    if headers
        .get(header::IF_NONE_MATCH)
        .is_some_and(|given| given.as_bytes() == tag.as_bytes())
    {
        return (StatusCode::NOT_MODIFIED, common).into_response();
    }
    (common, [(header::CONTENT_TYPE, kind)], bytes).into_response()
}

static VERSIONS: LazyLock<BTreeMap<&'static str, String>> = LazyLock::new(|| {
    let version = |bytes: &[u8]| {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    };
    ALL.iter()
        .map(|(name, _, bytes)| (*name, version(bytes)))
        .collect()
});

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// Name, content type, content. The vendored ones have their origin and licence in `webui/assets/vendor/README.md`.
static ALL: [(&str, &str, &[u8]); 7] = [
    ("lunaport.css", STYLE, include_bytes!("../../assets/lunaport.css")),
    ("lunaport.js", SCRIPT, include_bytes!("../../assets/lunaport.js")),
    (
        "lunaport.svg",
        "image/svg+xml",
        include_bytes!("../../assets/lunaport.svg"),
    ),
    ("live.js", SCRIPT, include_bytes!("../../assets/live.js")),
    (
        "htmx.js",
        SCRIPT,
        include_bytes!("../../assets/vendor/htmx-2.0.11.min.js"),
    ),
    (
        "uplot.js",
        SCRIPT,
        include_bytes!("../../assets/vendor/uplot-1.6.32.min.js"),
    ),
    (
        "uplot.css",
        STYLE,
        include_bytes!("../../assets/vendor/uplot-1.6.32.min.css"),
    ),
];
