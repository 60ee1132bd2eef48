//! One LUN: what it is, how it is, how to get to it.

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use management::control::SessionStatus;
use management::live::StoreStatus;
use management::model::{Cache, Device, LunMap, Place, Store, Target, Unit};

use super::request::space_beside;
use crate::ui::connect::{self, Ways};
use crate::ui::form::Form;
use crate::ui::frame::{Frame, Section, page_with};
use crate::ui::show;
use crate::ui::snapshot::{LunRow, Snapshot, lun_href, target_href};
use crate::ui::visitor::Visitor;
use crate::ui::words::Shown;
use crate::{Refusal, Web};

#[derive(Template)]
#[template(path = "luns/detail.html")]
struct DetailPage {
    frame: Frame,
    href: String,
    target_href: String,
    target: Target,
    lun: LunRow,
    unit: Unit,
    /// Other numbers of the same unit: address and text.
    others: Vec<(String, String)>,
    facts: Vec<(&'static str, String)>,
    usage: Option<Usage>,
    /// A file can grow; a device grows by itself.
    can_grow: bool,
    /// Not a disc: it can be written and have another size later.
    is_disk: bool,
    ways: Ways,
    /// Below the field for the new size.
    grow_hint: String,
    /// Where the disk is mapped once more.
    map_href: String,
    has_rule: bool,
    chap: bool,
    sessions: Vec<SessionStatus>,
    rates: Shown,
    form: Form,
}

/// How much of a sparse file is there.
#[derive(Clone, Debug)]
pub(in crate::ui) struct Usage {
    pub(in crate::ui) allocated: u64,
    pub(in crate::ui) size: u64,
    /// With the whole.
    pub(in crate::ui) text: String,
    /// Without it.
    pub(in crate::ui) short: String,
}

impl Usage {
    /// Of a store that takes less than its size.
    pub(in crate::ui) fn of(status: &StoreStatus) -> Option<Self> {
        let (allocated, size) = (status.allocated?, status.size?);
        let text = format!("{} of {}", show::bytes(allocated), show::bytes(size));
        Some(Self {
            allocated: allocated.min(size),
            size,
            text,
            short: show::bytes(allocated),
        })
    }
}

pub(super) async fn show(
    State(web): State<Web>,
    visitor: Visitor,
    Path((target, lun)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    render(&web, &visitor, &format!("{target}/{lun}"), Form::default()).await
}

/// The page with the form to grow it as it stands.
pub(super) async fn render(web: &Web, visitor: &Visitor, key: &str, form: Form) -> Result<Response, Refusal> {
    let snapshot = Snapshot::of(web);
    let model = &snapshot.model;
    let gone = || Refusal::not_found("LUN");
    let map = model.get::<LunMap>(key).ok_or_else(gone)?;
    let target = model.get::<Target>(&map.target.to_string()).ok_or_else(gone)?;
    let unit = model.get::<Unit>(map.unit.as_str()).ok_or_else(gone)?;
    let store = model.get::<Store>(unit.store.as_str()).ok_or_else(gone)?;
    let status = snapshot.store(store.id.as_str());
    let space = space_beside(web, store).await;
    let others = model
        .all::<LunMap>()
        .filter(|it| it.unit == unit.id && *it != map);
    let others = others.map(|it| {
        let target = it.target.to_string();
        (lun_href(&target, it.lun), format!("LUN {} of {target}", it.lun))
    });
    let bad = form.is_bad();
    let template = DetailPage {
        frame: visitor.frame(Section::Luns, format!("{}: LUN {}", unit.id, map.lun)),
        href: lun_href(&map.target.to_string(), map.lun),
        target_href: target_href(&map.target.to_string()),
        lun: snapshot.lun(map),
        others: others.collect(),
        facts: facts(unit, store, status),
        usage: status.and_then(Usage::of),
        can_grow: matches!(store.place, Place::File { .. }) && !store.protection && store.encrypt.is_none(),
        is_disk: unit.device == Device::Disk,
        ways: connect::ways(web, target, map, visitor.host()),
        grow_hint: format!(
            "Larger than it is. Hosts are told at once; the file system in it is grown on the host, by the commands below.{space}"
        ),
        map_href: format!(
            "/new/lun?{}",
            show::query(&[
                ("existing", &format!("unit:{}", unit.id)),
                ("target", &map.target.to_string())
            ])
        ),
        has_rule: model.access_of(&target.name).next().is_some(),
        chap: target.authentication.method == management::model::Method::Chap,
        sessions: snapshot.sessions_of(&target.name.to_string()).cloned().collect(),
        rates: Shown::of_lun(
            web.control().rates().latest().as_deref(),
            &target.name.to_string(),
            map.lun,
        ),
        target: target.clone(),
        unit: unit.clone(),
        form,
    };
    let code = if bad {
        axum::http::StatusCode::UNPROCESSABLE_ENTITY
    } else {
        axum::http::StatusCode::OK
    };
    Ok(page_with(code, &template))
}

fn facts(unit: &Unit, store: &Store, status: Option<&StoreStatus>) -> Vec<(&'static str, String)> {
    let block_size = status.and_then(|status| status.block_size).or(store.block_size);
    let cache = match (store.cache, status.and_then(|status| status.volatile_cache)) {
        (_, Some(true)) => "write-back: a write may rest in a cache until the host flushes it",
        (Cache::WriteThrough, _) | (_, Some(false)) => {
            "write-through: a write is on the medium when it is acknowledged"
        }
        (Cache::WriteBack, None) => "write-back",
    };
    let mut facts = vec![
        ("Identity (NAA)", unit.naa.clone().unwrap_or_default()),
        ("Serial number", unit.serial.clone().unwrap_or_default()),
    ];
    if let Some(block_size) = block_size {
        facts.push(("Block size", format!("{block_size} bytes")));
    }
    facts.push(("Cache", cache.to_owned()));
    facts.push((
        "Thin",
        if unit.thin {
            "yes: hosts can give space back"
        } else {
            "no"
        }
        .to_owned(),
    ));
    facts
}
