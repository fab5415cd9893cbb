//! What is put on record of a project's configuration.

use lf_core::audit::{Event, Record};

use super::slot::Slot;
use crate::app::generation::Generation;

/// For the record: a generation became active.
pub(super) fn taken(slot: &Slot) -> Record {
    let Generation { number, hash, .. } = &*slot.active;
    let record = Record { outcome: Some("active"), ..on_record(slot) };
    record.detail(&format!("generation {number}, file {hash}"))
}

/// For the record: a change was refused.
pub(super) fn refusal(slot: &Slot) -> Record {
    let why = slot.refused.as_deref().map(|refused| refused.broken.reason.as_str()).unwrap_or_default();
    let record = Record { outcome: Some("refused"), ..on_record(slot) };
    record.detail(&format!("generation {} stays: {why}", slot.active.number))
}

pub(super) fn on_record(slot: &Slot) -> Record {
    let project = slot.project();
    let project = Some(format!("{}/{}", project.namespace, project.name));
    Record { project, ..Record::new(Event::Configuration) }
}
