//! Serving what is saved: the state directory, the administration over it, and what the first lines say of it.

use std::path::Path;
use std::sync::Arc;

use management::control::Control;
use management::live::{Accept, Defaults, ISER};
use management::model::{LunMap, Model, Portal, Store, Unit};
use management::state::State;
use target_core::iscsi::Node;

use crate::error::StartError;
use crate::export::describe;
use crate::iser::IserPortals;
use crate::plan::{Common, PlannedUnit, portals};
use crate::portal;
use crate::portals::Acceptor;
use crate::serve::{Saved, entropy};

/// An open state directory and what it holds.
#[derive(Debug)]
pub(crate) struct Opened {
    state: State,
    model: Model,
}

impl Opened {
    /// A start that has nothing to serve, and nobody to tell it what, makes no state directory.
    pub(crate) fn open(directory: &Path, saved: Saved, is_managed: bool) -> Result<Self, StartError> {
        if saved == Saved::Required && !is_managed && !State::is_there(directory) {
            let fix = "give --export SPEC, or --admin ADDR:PORT to configure it, or run lunaport without a command for \
                       the quick start";
            return Err(StartError::state(directory, "nothing is saved there", fix));
        }
        let (state, model) = State::open(directory, entropy)?;
        Ok(Self { state, model })
    }

    /// Whether it has portals of its own: then none are given by default.
    pub(crate) fn has_portals(&self) -> bool {
        self.model.all::<Portal>().next().is_some()
    }

    /// Makes the node serve it. On a runtime's thread.
    pub(crate) fn start(
        self,
        node: Arc<Node>,
        common: &Common,
        acceptor: Arc<Acceptor>,
        iser: &Arc<IserPortals>,
    ) -> Result<Arc<Control>, StartError> {
        let defaults = Defaults {
            base: self.state.directory().to_owned(),
            portals: portals(common, false),
            other_portals: [(ISER, portals(common, true))].into(),
            groups: portal::groups(&common.portals)?.into_iter().collect(),
            management_url: common.management_url.clone(),
            advertised: common.advertised.clone(),
            chap: common.chap.clone(),
            parameters: common.parameters.clone(),
        };
        let directory = defaults.base.clone();
        let (listening, viewed) = (Arc::clone(iser), Arc::clone(iser));
        let accept = Accept::new(move |listener| acceptor.accept(listener))
            .with_iser(move |address| listening.listen(address), move || viewed.view());
        let started = Control::start(self.state, self.model, node, defaults, accept, entropy);
        started.map_err(|problems| {
            let text: Vec<_> = problems
                .iter()
                .map(|it| format!("{}: {}", it.path, it.problem))
                .collect();
            StartError::state(
                &directory,
                text.join("; "),
                "put a state.json.N that is right in its place",
            )
        })
    }
}

/// The LUNs that are served now, for the first lines and the last flush. A unit that has several is named once.
pub(crate) fn units(control: &Control) -> Vec<PlannedUnit> {
    let (model, base) = (control.model(), control.directory());
    let open: std::collections::BTreeMap<_, _> = control.open_stores().into_iter().collect();
    let served: std::collections::BTreeMap<_, _> = control.units().into_iter().collect();
    let mut seen = std::collections::BTreeSet::new();
    let mut units = Vec::new();
    for map in model.all::<LunMap>() {
        let Some(unit) = model.get::<Unit>(map.unit.as_str()) else {
            continue;
        };
        let key = unit.store.as_str();
        let (Some(store), Some(open), Some(live)) = (
            model.get::<Store>(key),
            open.get(key),
            served.get(unit.id.as_str()),
        ) else {
            continue;
        };
        let device_type = live.config().device_type;
        if seen.insert(key.to_owned()) {
            units.push(PlannedUnit {
                target: map.target.0.clone(),
                lun: map.lun,
                what: describe(device_type, &store.source(base)),
                store: Arc::clone(open),
                unit: Arc::clone(live),
            });
        }
    }
    units
}
