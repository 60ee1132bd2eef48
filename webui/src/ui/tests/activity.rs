//! The dashboard, sessions, login failures, reservations, long work, events and the audit log.

use management::events::{Event, EventKind};
use management::model::{Kind, Role};
use serde_json::json;

use super::Site;

const TARGET: &str = "iqn.2026-11.org.example:a";

async fn with_disk() -> (Site, super::Browser) {
    let (site, browser) = Site::with_admin().await;
    site.put(Kind::Target, json!({"name": TARGET})).await;
    let place = json!({"kind": "memory", "size": 1 << 20});
    site.put(Kind::Store, json!({"id": "one", "place": place})).await;
    site.put(Kind::Unit, json!({"id": "one", "store": "one"})).await;
    site.put(Kind::Lun, json!({"target": TARGET, "lun": 3, "unit": "one"}))
        .await;
    (site, browser)
}

fn happens(site: &Site, kind: EventKind, text: &str, data: serde_json::Value) {
    site.control().events().record(Event::new(kind, text).with(data));
}

#[tokio::test]
async fn an_empty_node_leads_to_its_first_disk() {
    let (site, mut browser) = Site::with_admin().await;
    let answer = browser.get("/").await;
    answer.says(200, &["All is well", "No disks yet", "href=\"/new/lun\""]);
    let mut viewer = site.as_role(Role::Viewer).await;
    viewer.get("/").await.says(200, &["No disks yet"]);
}

#[tokio::test]
async fn the_dashboard_has_a_row_for_each_lun_without_a_script() {
    let (_site, mut browser) = with_disk().await;
    let answer = browser.get("/").await;
    answer.says(
        200,
        &[
            "data-key=\"iqn.2026-11.org.example:a/3\"",
            "LUN 3 of iqn.2026-11.org.example:a",
            "Nobody is logged in",
        ],
    );
}

#[tokio::test]
async fn what_is_wrong_stands_at_the_top_of_the_dashboard() {
    let (site, mut browser) = with_disk().await;
    site.put(
        Kind::Target,
        json!({"name": "iqn.2026-11.org.example:b", "portal_groups": [7]}),
    )
    .await;
    let answer = browser.get("/").await;
    answer.says(200, &["things need your attention", "iqn.2026-11.org.example:b"]);
    answer.lacks(&["All is well"]);
}

#[tokio::test]
async fn a_session_that_is_gone_is_not_found_and_cannot_be_closed() {
    let (site, mut browser) = with_disk().await;
    browser
        .get("/sessions")
        .await
        .says(200, &["No initiator is logged in"]);
    for path in ["/sessions/7", "/sessions/x", "/sessions/7/close"] {
        browser.get(path).await.says(404, &["session any more"]);
    }
    let mut viewer = site.as_role(Role::Viewer).await;
    viewer
        .get("/sessions/7/close")
        .await
        .says(403, &["role operator"]);
    viewer.post("/sessions/7/close", &[]).await.says(403, &[]);
}

#[tokio::test]
async fn a_failed_login_has_its_reason_and_its_fix_and_no_markup_of_the_initiator() {
    let (site, mut browser) = Site::with_admin().await;
    browser
        .get("/login-failures")
        .await
        .says(200, &["No login has failed"]);
    let data = json!({
        "peer": "192.0.2.1:40000", "local": "192.0.2.9:3260", "transport": "tcp", "status": "AuthenticationFailure",
        "initiator": "iqn.2026-11.org.example:<script>alert(1)</script>", "target": TARGET,
        "reason": "CHAP_N \"backup\" is no name of this target", "fix": "use another",
    });
    happens(&site, EventKind::LoginFailed, "login failed", data.clone());
    happens(&site, EventKind::LoginFailed, "login failed", data);
    let answer = browser.get("/login-failures").await;
    answer.says(
        200,
        &[
            "2 times",
            "Authentication failure",
            "CHAP_N",
            "use another",
            "192.0.2.1:40000",
        ],
    );
    answer.lacks(&["<script>alert"]);
    let traced = "/traces?initiator=iqn.2026-11.org.example:%3Cscript%3Ealert%281%29%3C%2Fscript%3E";
    answer.says(200, &[&format!("href=\"{traced}#begin\"")]);
    browser.get(traced).await.says(
        200,
        &["id=\"begin\"", "value=\"iqn.2026-11.org.example:&#60;script&#62;"],
    );
    let mut viewer = site.as_role(Role::Viewer).await;
    viewer.get("/login-failures").await.lacks(&["/traces?initiator"]);
}

#[tokio::test]
async fn events_are_filtered_and_go_on_page_by_page() {
    let (site, mut browser) = Site::with_admin().await;
    for number in 0..60 {
        happens(&site, EventKind::Grown, &format!("grown <{number}>"), json!(null));
    }
    let first = browser.get("/events").await;
    first.says(
        200,
        &["grown &#60;59&#62;", "data-log=\"/events/live?kind=\"", "Older"],
    );
    first.lacks(&["grown &#60;9&#62;", "grown <"]);
    let place = first.text.split("href=\"/events?kind=").nth(1).unwrap();
    let place = place.split('"').next().unwrap().replace("&#38;", "&");
    let older = browser.get(&format!("/events?kind={place}")).await;
    older.says(200, &["grown &#60;9&#62;"]);
    older.lacks(&["data-log"]);
    let filtered = browser.get("/events?kind=started").await;
    filtered.says(200, &["<option value=\"started\" selected>"]);
    filtered.lacks(&["grown &#60;"]);
    browser.get("/events?kind=nonsense").await.says(200, &["grown"]);
}

#[tokio::test]
async fn the_audit_log_tells_who_changed_what_from_what_to_what_without_secrets() {
    let (site, mut browser) = Site::with_admin().await;
    let credential = |name: &str, secret: &str| json!({"id": "c", "name": name, "secret": secret});
    site.put(Kind::Credential, credential("old-name", "secret-number-one"))
        .await;
    site.put(Kind::Credential, credential("new-name", "secret-number-two"))
        .await;
    happens(&site, EventKind::Grown, "not a change", json!(null));
    let answer = browser.get("/audit").await;
    answer.says(
        200,
        &[
            "credentials/c",
            "<del>old-name</del>",
            "<ins>new-name</ins>",
            "lunaport",
        ],
    );
    answer.lacks(&["secret-number", "not a change", "argon2"]);
}

#[tokio::test]
async fn clearing_a_reservation_is_for_operators_and_of_units_that_are_there() {
    let (site, mut browser) = with_disk().await;
    browser
        .get("/reservations")
        .await
        .says(200, &["Nothing is reserved"]);
    browser
        .get("/reservations/one/clear")
        .await
        .says(200, &["0 registrations"]);
    browser
        .post("/reservations/one/clear", &[])
        .await
        .leads_to("/reservations");
    browser.get("/reservations/two/clear").await.says(404, &[]);
    let mut viewer = site.as_role(Role::Viewer).await;
    viewer.get("/reservations").await.says(200, &[]);
    viewer.get("/reservations/one/clear").await.says(403, &[]);
    viewer.post("/reservations/one/clear", &[]).await.says(403, &[]);
}

#[tokio::test]
async fn long_work_that_has_ended_cannot_be_cancelled() {
    let (site, mut browser) = Site::with_admin().await;
    browser.get("/jobs").await.says(200, &["Nothing goes on"]);
    browser
        .get("/jobs/running")
        .await
        .says(200, &["hx-get=\"/jobs/running\""]);
    browser.get("/jobs/1/cancel").await.says(404, &[]);
    browser.post("/jobs/1/cancel", &[]).await.leads_to("/jobs");
    browser.get("/jobs").await.says(200, &["It had ended already."]);
    let mut viewer = site.as_role(Role::Viewer).await;
    viewer.post("/jobs/1/cancel", &[]).await.says(403, &[]);
}
