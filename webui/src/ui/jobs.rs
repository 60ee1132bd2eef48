//! Long work: how far copies, zeroing, formatting and sanitizing are, and ending those that can be ended.

use askama::Template;
use axum::Router;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use management::control::{Job, JobKind, JobState};

use super::frame::{Frame, Section, page};
use super::notice;
use super::sure::Sure;
use super::visitor::{OperatorVisitor, Visitor};
use crate::{Refusal, Web};

#[derive(Template)]
#[template(path = "jobs.html")]
struct JobsPage {
    frame: Frame,
    jobs: Vec<Row>,
    is_running: bool,
}

/// The part of the dashboard that has to do with it.
#[derive(Template)]
#[template(path = "jobs_running.html")]
struct RunningPart {
    jobs: Vec<Row>,
}

/// Work as it is shown.
pub(super) struct Row {
    pub(super) job: Job,
    /// What is done to what.
    pub(super) title: String,
    /// 0 to 100.
    pub(super) percent: u64,
}

pub(super) fn routes() -> Router<Web> {
    Router::new()
        .route("/jobs", get(list))
        .route("/jobs/running", get(running_part))
        .route("/jobs/{id}/cancel", get(ask).post(cancel))
}

/// What goes on now.
pub(super) fn running(web: &Web) -> Vec<Row> {
    let jobs = web.control().jobs().into_iter();
    jobs.filter(|job| job.state == JobState::Running)
        .map(Row::of)
        .collect()
}

async fn list(State(web): State<Web>, visitor: Visitor) -> Response {
    let mut jobs: Vec<Row> = web.control().jobs().into_iter().map(Row::of).collect();
    // What goes on, then what has ended last.
    jobs.reverse();
    jobs.sort_by_key(|row| row.job.state != JobState::Running);
    page(&JobsPage {
        frame: visitor.frame(Section::Jobs, "Long work"),
        is_running: jobs.iter().any(|row| row.job.state == JobState::Running),
        jobs,
    })
}

async fn running_part(State(web): State<Web>, _visitor: Visitor) -> Response {
    page(&RunningPart { jobs: running(&web) })
}

async fn ask(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    let job = web.control().job(&id).filter(|job| job.cancellable);
    let row = Row::of(job.ok_or_else(|| Refusal::not_found("work that could be cancelled"))?);
    let mut effects = vec!["It ends soon, and what it has made so far is removed.".to_owned()];
    if row.job.kind == JobKind::Clone {
        effects.push("What it copies from stays as it is.".to_owned());
    }
    Ok(page(&Sure {
        frame: visitor.frame(Section::Jobs, format!("Cancel: {}", row.title)),
        effects,
        action: format!("/jobs/{id}/cancel"),
        hidden: Vec::new(),
        verb: "Cancel it",
        back: "/jobs",
    }))
}

async fn cancel(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    Path(id): Path<String>,
) -> Response {
    let text = if web.control().cancel_job(&visitor.actor, &id) {
        "It is told to end."
    } else {
        "It had ended already."
    };
    notice::done(text, "/jobs")
}

impl Row {
    fn of(job: Job) -> Self {
        let word = match job.kind {
            JobKind::Clone => "Copying",
            JobKind::Format => "Formatting",
            JobKind::Sanitize => "Sanitizing",
            JobKind::Zero => "Zeroing",
        };
        let subject = job
            .subject
            .split_once('/')
            .map_or(job.subject.as_str(), |(_, name)| name);
        Self {
            title: format!("{word} {subject}"),
            percent: if job.total == 0 {
                0
            } else {
                (job.done / (job.total / 100).max(1)).min(100)
            },
            job,
        }
    }

    /// How it stands, with its tone.
    const fn state(&self) -> (&'static str, &'static str) {
        match self.job.state {
            JobState::Cancelled => ("", "cancelled"),
            JobState::Done => ("ok", "done"),
            JobState::Failed => ("bad", "failed"),
            JobState::Running => ("info", "running"),
        }
    }
}
