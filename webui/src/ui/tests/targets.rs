//! Targets, stores, initiators and credentials in a browser without scripts.

use management::model::{Credential, Initiator, Kind, Place, Store, Target};
use serde_json::json;

use super::Site;

const TARGET: &str = "iqn.2026-11.org.example:a";
const HOST: &str = "iqn.2026-11.org.example:host";
const SECRET: &str = "0123456789 & <b>";

#[tokio::test]
async fn a_target_is_made_changed_switched_and_deleted() {
    let (site, mut browser) = Site::with_admin().await;
    browser.get("/targets").await.says(200, &["No target yet"]);
    browser.get("/new/target").await.says(200, &["iSCSI name"]);
    let fields = [
        ("name", TARGET),
        ("method", "none"),
        ("who", "nobody"),
        ("alias", "one"),
    ];
    let page = format!("/targets/{TARGET}");
    browser.post("/new/target", &fields).await.leads_to(&page);
    browser
        .get(&page)
        .await
        .says(200, &["Nobody may log in yet", "No LUN yet"]);
    browser
        .post("/new/target", &fields)
        .await
        .says(422, &["id=\"name-error\"", "is there already"]);

    let edit = format!("{page}/edit");
    browser.get(&edit).await.says(200, &["value=\"one\""]);
    let bad = [
        ("portal_groups", "0"),
        ("limits", "MaxBurstLength=many"),
        ("alias", &*"x".repeat(300)),
    ];
    let answer = browser.post(&edit, &bad).await;
    answer.says(
        422,
        &[
            "id=\"portal_groups-error\"",
            "id=\"limits-error\"",
            "id=\"alias-error\"",
        ],
    );
    let good = [
        ("limits", "MaxBurstLength=65536"),
        ("alias", "two"),
        ("method", "chap"),
    ];
    browser.post(&edit, &good).await.leads_to(&page);
    browser
        .get(&page)
        .await
        .says(200, &["two", "MaxBurstLength", "required"]);

    browser
        .post(&format!("{page}/access"), &[("who", "pattern")])
        .await
        .says(422, &["id=\"pattern-error\""]);
    browser
        .post(
            &format!("{page}/access"),
            &[("who", "any"), ("network", "192.0.2.0/24")],
        )
        .await
        .leads_to(&format!("{page}#access"));
    browser
        .get(&page)
        .await
        .says(200, &["any initiator from 192.0.2.0/24"]);
    browser
        .post(&format!("{page}/access/rule-1/delete"), &[])
        .await
        .leads_to(&format!("{page}#access"));

    browser
        .post(&format!("{page}/disable"), &[])
        .await
        .leads_to(&page);
    assert!(!site.control().model().get::<Target>(TARGET).unwrap().enabled);
    browser.get(&page).await.says(200, &["Switch on"]);
    browser.post(&format!("{page}/enable"), &[]).await.leads_to(&page);
    browser
        .get(&format!("{page}/delete"))
        .await
        .says(200, &["is deleted", "No session uses it now"]);
    browser
        .post(&format!("{page}/delete"), &[])
        .await
        .leads_to("/targets");
    assert!(site.control().model().get::<Target>(TARGET).is_none());
    browser.get(&page).await.says(404, &["there is no such target"]);
}

#[tokio::test]
async fn a_form_filled_before_somebody_elses_change_is_refused() {
    let (site, mut browser) = Site::with_admin().await;
    site.put(Kind::Target, json!({"name": TARGET})).await;
    let edit = format!("/targets/{TARGET}/edit");
    let page = browser.get(&edit).await.text;
    let revision = page
        .split_once("name=\"revision\" value=\"")
        .unwrap()
        .1
        .split('"')
        .next()
        .unwrap()
        .to_owned();
    site.put(Kind::Target, json!({"name": TARGET, "alias": "theirs"}))
        .await;
    let fields = [("alias", "mine"), ("revision", revision.as_str())];
    browser
        .post(&edit, &fields)
        .await
        .says(422, &["was changed by somebody else in between", "read it again"]);
    assert_eq!(
        site.control()
            .model()
            .get::<Target>(TARGET)
            .unwrap()
            .alias
            .as_deref(),
        Some("theirs")
    );
}

#[tokio::test]
async fn hostile_texts_are_shown_and_not_obeyed() {
    let (site, mut browser) = Site::with_admin().await;
    let hostile = "<script>alert(1)</script>\"'&";
    site.put(Kind::Target, json!({"name": TARGET, "alias": hostile}))
        .await;
    site.put(Kind::Group, json!({"id": "g", "description": hostile}))
        .await;
    site.put(
        Kind::Initiator,
        json!({"name": HOST, "description": hostile, "groups": ["g"]}),
    )
    .await;
    site.put(
        Kind::Credential,
        json!({"id": "c", "name": hostile, "secret": SECRET}),
    )
    .await;
    let target = format!("/targets/{TARGET}");
    let (edit, host) = (format!("{target}/edit"), format!("/initiators/{HOST}"));
    let pages = [
        "/targets",
        &target,
        &edit,
        "/initiators",
        &host,
        "/groups/g",
        "/credentials/c",
        "/new/lun",
        "/new/target",
    ];
    for path in pages {
        let answer = browser.get(path).await;
        answer.says(200, &["&#60;script&#62;alert(1)"]);
        answer.lacks(&["<script>alert", SECRET, "0123456789 &"]);
    }
    let query = super::super::show::query(&[("q", hostile)]);
    browser
        .get(&format!("/targets?{query}"))
        .await
        .lacks(&["<script>alert"]);
}

#[tokio::test]
async fn a_store_is_made_adopted_grown_and_deleted_with_its_file_kept() {
    let (site, mut browser) = Site::with_admin().await;
    browser.get("/stores").await.says(200, &["No store yet"]);
    browser
        .get("/new/store")
        .await
        .says(200, &["A device that is there"]);
    let made = [
        ("name", "new"),
        ("kind", "new"),
        ("size", "1 MiB"),
        ("folder", ""),
        ("cache", "write_back"),
    ];
    browser.post("/new/store", &made).await.leads_to("/stores/new");
    browser
        .get("/stores/new")
        .await
        .says(200, &["1 MiB", "Map to a LUN", "open"]);
    browser
        .post("/stores/new/grow", &[("size", "2 MiB")])
        .await
        .leads_to("/stores/new");
    browser.get("/stores").await.says(200, &["2 MiB", "file new.img"]);

    std::fs::write(site.directory().join("old.raw"), vec![7; 8192]).unwrap();
    let path = site.directory().join("old.raw").display().to_string();
    let adopted = [("name", "old"), ("kind", "file"), ("path", path.as_str())];
    browser.post("/new/store", &adopted).await.leads_to("/stores/old");
    let store = site.control().model().get::<Store>("old").cloned().unwrap();
    assert!(matches!(store.place, Place::File { size: None, .. }), "{store:?}");
    let outside = [("name", "bad"), ("kind", "file"), ("path", "/etc/passwd")];
    browser
        .post("/new/store", &outside)
        .await
        .says(422, &["id=\"path-error\"", "is below no store root"]);

    browser
        .get("/stores/old/delete")
        .await
        .says(200, &["value=\"keep\" checked"]);
    browser
        .post("/stores/old/delete", &[("data", "keep")])
        .await
        .leads_to("/stores");
    assert!(site.directory().join("old.raw").exists());
    browser
        .post("/stores/new/delete", &[("data", "delete")])
        .await
        .leads_to("/stores");
    assert!(!site.directory().join("new.img").exists());
}

#[tokio::test]
async fn initiators_groups_and_credentials_are_kept_and_a_secret_never_comes_out() {
    let (site, mut browser) = Site::with_admin().await;
    browser
        .get("/new/credential")
        .await
        .says(200, &["type=\"password\""]);
    let fields = [("id", "c"), ("name", "host"), ("secret", SECRET)];
    browser
        .post("/new/credential", &fields)
        .await
        .leads_to("/initiators");
    let secret = |site: &Site| {
        let model = site.control().model();
        model
            .get::<Credential>("c")
            .unwrap()
            .secret
            .as_ref()
            .unwrap()
            .expose()
            .to_owned()
    };
    assert_eq!(secret(&site), SECRET);
    for path in ["/initiators", "/credentials/c"] {
        browser.get(path).await.lacks(&[SECRET, "0123456789"]);
    }
    browser
        .post("/credentials/c", &[("name", "host2"), ("secret", "")])
        .await
        .leads_to("/initiators");
    assert_eq!(secret(&site), SECRET, "an empty field keeps it");
    let answer = browser
        .post("/credentials/c", &[("name", "host2"), ("secret", "short")])
        .await;
    answer.says(422, &["id=\"secret-error\"", "has 5 bytes"]);
    answer.lacks(&["short\""]);

    let group = [("name", "cluster"), ("members", HOST)];
    browser.post("/new/group", &group).await.leads_to("/initiators");
    let fields = [
        ("description", "first"),
        ("groups", "cluster"),
        ("credential", "c"),
    ];
    browser
        .post(&format!("/initiators/{HOST}"), &fields)
        .await
        .leads_to("/initiators");
    browser
        .get("/initiators")
        .await
        .says(200, &["first", "cluster", "host2"]);
    browser.get("/groups/cluster").await.says(200, &[HOST]);
    browser
        .post("/groups/cluster", &[("members", "no name")])
        .await
        .says(422, &["id=\"members-error\""]);
    browser
        .post("/credentials/c/delete", &[])
        .await
        .says(422, &["needs credentials/c, which is to be deleted"]);
    browser
        .get("/groups/cluster/delete")
        .await
        .says(200, &["Its members stay known"]);
    browser
        .post("/groups/cluster/delete", &[])
        .await
        .leads_to("/initiators");
    let model = site.control().model();
    assert!(model.get::<Initiator>(HOST).unwrap().groups.is_empty());
}
