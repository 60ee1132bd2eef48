//! Traces in the browser.

use management::model::Role;

use super::Site;

const EVERYONE: [(&str, &str); 3] = [("initiator", "*"), ("seconds", "60"), ("payload", "0")];

#[tokio::test]
async fn an_operator_begins_a_trace_reads_it_and_takes_it_away() {
    let (site, _) = Site::with_admin().await;
    let mut browser = site.as_role(Role::Operator).await;
    browser
        .get("/traces?initiator=iqn.2026-11.org.example:a")
        .await
        .says(200, &["Nothing is traced", "value=\"iqn.2026-11.org.example:a\""]);
    browser.post("/traces", &EVERYONE).await.leads_to("/traces/1");
    let page = browser.get("/traces/1").await;
    page.says(
        200,
        &[
            "logins of *",
            "running",
            "Nothing was said yet",
            "href=\"/api/v1/traces/1/pcap\"",
        ],
    );
    browser.post("/traces/1/stop", &[]).await.leads_to("/traces/1");
    browser.get("/traces/1").await.says(200, &["stopped"]);
    browser.post("/traces/1/delete", &[]).await.leads_to("/traces");
    browser
        .get("/traces/1")
        .await
        .says(404, &["there is no such trace"]);
}

#[tokio::test]
async fn what_cannot_be_traced_is_said_beside_its_field() {
    let (site, _) = Site::with_admin().await;
    let mut browser = site.as_role(Role::Operator).await;
    browser.get("/traces").await.says(200, &["Begin a trace"]);
    let nothing = [("seconds", "60")];
    browser
        .post("/traces", &nothing)
        .await
        .says(422, &["id=\"session-error\""]);
    let wrong = [("session", "x"), ("address", "nowhere"), ("seconds", "9999")];
    let page = browser.post("/traces", &wrong).await;
    page.says(
        422,
        &["id=\"session-error\"", "id=\"address-error\"", "value=\"9999\""],
    );
    let long = [("initiator", "*"), ("seconds", "9999")];
    browser
        .post("/traces", &long)
        .await
        .says(422, &["id=\"seconds-error\""]);
}

#[tokio::test]
async fn a_viewer_sees_that_there_is_a_trace_and_not_what_is_in_it() {
    let (site, _) = Site::with_admin().await;
    let mut operator = site.as_role(Role::Operator).await;
    operator.get("/traces").await.says(200, &["Begin a trace"]);
    operator.post("/traces", &EVERYONE).await.leads_to("/traces/1");
    let mut viewer = site.as_role(Role::Viewer).await;
    let page = viewer.get("/traces").await;
    page.says(200, &["Trace 1", "logins of *"]);
    page.lacks(&["Begin", "href=\"/traces/1\""]);
    viewer.get("/traces/1").await.says(403, &[]);
    viewer.post("/traces/1/delete", &[]).await.says(403, &[]);
}
