//! Making, changing and deleting LUNs in a browser without scripts.

use management::control::JobState;
use management::model::{Credential, Kind, LunMap, Method, Object, Role, Store, Target, Unit};
use serde_json::json;

use super::{Browser, Site, free_address};

const TARGET: &str = "iqn.2026-11.org.example:a";
const SECRET: &str = "a secret < & 'of' 16";

async fn with_disk() -> (Site, Browser) {
    let (site, browser) = Site::with_admin().await;
    let place = json!({"kind": "file", "path": "one.img", "size": 1 << 20});
    site.put(Kind::Store, json!({"id": "one", "place": place})).await;
    site.put(Kind::Unit, json!({"id": "one", "store": "one"})).await;
    site.put(Kind::Target, json!({"name": TARGET})).await;
    site.put(Kind::Lun, json!({"target": TARGET, "lun": 0, "unit": "one"}))
        .await;
    site.put(
        Kind::Portal,
        json!({"id": "p", "address": "[::1]:3260", "enabled": false}),
    )
    .await;
    (site, browser)
}

fn page() -> String {
    format!("/luns/{TARGET}/0")
}

#[tokio::test]
async fn one_form_makes_a_disk_a_target_a_rule_and_a_credential_and_ends_with_the_commands() {
    let (site, mut browser) = Site::with_admin().await;
    browser
        .get("/luns")
        .await
        .says(200, &["No LUN yet", "href=\"/new/lun\""]);
    browser
        .get("/new/lun")
        .await
        .says(200, &["name=\"target_name\"", "10 GiB"]);
    let fields = [
        ("disk", "new"),
        ("name", "disk1"),
        ("size", "5 GiB"),
        ("folder", ""),
        ("at", "new"),
        ("target_name", TARGET),
        ("who", "initiator"),
        ("initiator", "iqn.2026-11.org.example:host"),
        ("chap", "new"),
        ("chap_name", "Host 1"),
        ("chap_secret", SECRET),
    ];
    browser
        .post("/new/lun", &fields)
        .await
        .leads_to("/luns/iqn.2026-11.org.example:a/0#connect");
    let model = site.control().model();
    assert_eq!(
        model.get::<LunMap>(&format!("{TARGET}/0")).unwrap().unit.as_str(),
        "disk1"
    );
    let target = model.get::<Target>(TARGET).unwrap();
    assert_eq!(target.authentication.method, Method::Chap);
    let credential = model
        .get::<Credential>(target.authentication.credentials[0].as_str())
        .unwrap();
    assert_eq!(credential.key(), "host-1");
    assert_eq!(credential.secret.as_ref().unwrap().expose(), SECRET);
    assert_eq!(model.access_of(&target.name).count(), 1);
    assert_eq!(
        std::fs::metadata(site.directory().join("disk1.img"))
            .unwrap()
            .len(),
        5 << 30
    );

    let answer = browser.get(&page()).await;
    answer.says(200, &["disk1 is LUN 0 of", "5 GiB", "ready"]);
    answer.lacks(&[SECRET, "a secret &#60;"]);
    browser.get(&page()).await.lacks(&["disk1 is LUN 0 of"]);
}

/// Until no work goes on.
async fn worked(site: &Site) {
    while site
        .control()
        .jobs()
        .iter()
        .any(|job| job.state == JobState::Running)
    {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_disk_that_takes_all_its_space_is_filled_first_and_is_then_at_its_lun() {
    let (site, mut browser) = Site::with_admin().await;
    browser
        .get("/new/lun")
        .await
        .says(200, &["name=\"zeroed\"", "(state directory, ", " free)"]);
    let fields = [
        ("disk", "new"),
        ("name", "full"),
        ("size", "2 MiB"),
        ("zeroed", "1"),
        ("at", "new"),
        ("target_name", TARGET),
        ("who", "any"),
        ("chap", "none"),
    ];
    browser.post("/new/lun", &fields).await.leads_to("/jobs");
    browser
        .get("/jobs")
        .await
        .says(200, &["Then full is LUN 0 of", "Zeroing full", "<progress"]);
    worked(&site).await;
    let model = site.control().model();
    let unit = model.get::<Unit>("full").unwrap();
    assert!(!unit.thin, "hosts could give the space back");
    browser.get(&page()).await.says(200, &["full", "ready"]);
    // Too large for any folder: said beside the field, and nothing is begun.
    let mut fields = fields;
    fields[1..3].copy_from_slice(&[("name", "huge"), ("size", "4096 PiB")]);
    fields[5].1 = "iqn.2026-11.org.example:b";
    let answer = browser.post("/new/lun", &fields).await;
    answer.says(
        422,
        &[
            "id=\"size-error\"",
            "are free there",
            "name=\"zeroed\" value=\"1\" checked",
        ],
    );
    assert_eq!(site.control().jobs().len(), 1);
}

#[tokio::test]
async fn a_store_is_filled_with_zeroes_where_that_is_asked_for() {
    let (site, mut browser) = Site::with_admin().await;
    browser.get("/new/store").await.says(200, &["name=\"zeroed\""]);
    let mut fields = [
        ("name", "full"),
        ("kind", "new"),
        ("size", "2 MiB"),
        ("zeroed", "1"),
    ];
    browser.post("/new/store", &fields).await.leads_to("/jobs");
    worked(&site).await;
    assert!(site.control().model().get::<Store>("full").is_some());
    browser
        .get("/jobs")
        .await
        .says(200, &["Zeroing full", "done", "2 MiB of 2 MiB"]);
    fields[0].1 = "sparse";
    fields[3].1 = "";
    browser
        .post("/new/store", &fields)
        .await
        .leads_to("/stores/sparse");
}

#[tokio::test]
async fn the_commands_have_portal_target_number_and_chap_name() {
    let (site, mut browser) = with_disk().await;
    browser.get(&page()).await.says(200, &["No portal leads here"]);
    let address = free_address();
    site.put(Kind::Portal, json!({"id": "q", "address": address}))
        .await;
    site.put(
        Kind::Credential,
        json!({"id": "c", "name": "o'neil", "secret": SECRET}),
    )
    .await;
    let chap = json!({"method": "chap", "credentials": ["c"]});
    site.put(Kind::Target, json!({"name": TARGET, "authentication": chap}))
        .await;
    let answer = browser.get(&page()).await;
    answer.says(
        200,
        &[
            &format!("iscsiadm -m discovery -t sendtargets -p {address}"),
            "node.session.auth.username -v &#39;o&#39;\\&#39;&#39;neil&#39;",
            "-ChapUsername &#39;o&#39;&#39;neil&#39;",
            &format!("target={TARGET},lun=0"),
            "esxcli iscsi adapter discovery sendtarget add",
            "Only programs on this machine reach the portal",
            "id=\"grown\"",
            &format!("iscsiadm -m node -T {TARGET} -p {address} --rescan"),
        ],
    );
    answer.lacks(&[SECRET]);
}

#[tokio::test]
async fn a_target_name_that_ends_with_a_colon_gets_the_name_of_the_disk() {
    let (site, mut browser) = Site::with_admin().await;
    browser.get("/new/lun").await;
    let fields = |name: &'static str| {
        [
            ("disk", "new"),
            ("name", name),
            ("size", "1 MiB"),
            ("at", "new"),
            ("target_name", "iqn.2026-11.org.example:"),
            ("who", "initiator"),
        ]
    };
    let answer = browser.post("/new/lun", &fields("Bad Name")).await;
    answer.says(
        422,
        &[
            "id=\"name-error\"",
            "id=\"initiator-error\"",
            "value=\"iqn.2026-11.org.example:\"",
        ],
    );
    answer.lacks(&["id=\"target_name-error\""]);
    let mut good = fields("disk1").to_vec();
    good[5] = ("who", "any");
    browser
        .post("/new/lun", &good)
        .await
        .leads_to("/luns/iqn.2026-11.org.example:disk1/0#connect");
    assert_eq!(site.control().model().all::<Target>().count(), 1);
}

#[tokio::test]
async fn what_is_wrong_is_said_beside_its_field_and_nothing_is_made() {
    let (site, mut browser) = Site::with_admin().await;
    browser.get("/new/lun").await;
    let fields = [
        ("disk", "new"),
        ("name", "Disk One"),
        ("size", "huge"),
        ("at", "new"),
        ("target_name", "disks"),
        ("who", "network"),
        ("chap", "new"),
        ("chap_secret", "another-secret-1"),
    ];
    let answer = browser.post("/new/lun", &fields).await;
    answer.says(
        422,
        &[
            "id=\"name-error\"",
            "id=\"size-error\"",
            "id=\"target_name-error\"",
            "value=\"Disk One\"",
            "aria-invalid=\"true\"",
        ],
    );
    answer.lacks(&["another-secret-1"]);
    let fields = [
        ("disk", "new"),
        ("name", "disk1"),
        ("size", "1 MiB"),
        ("at", "new"),
        ("target_name", TARGET),
        ("who", "any"),
        ("chap", "new"),
        ("chap_name", "x"),
        ("chap_secret", "tooshort"),
    ];
    let answer = browser.post("/new/lun", &fields).await;
    answer.says(422, &["id=\"chap_secret-error\"", "has 8 bytes"]);
    answer.lacks(&["tooshort"]);
    assert_eq!(site.control().model().all::<Store>().count(), 0);
    assert!(!site.directory().join("disk1.img").exists());
}

#[tokio::test]
async fn a_disk_at_an_existing_target_gets_the_next_number() {
    let (site, mut browser) = with_disk().await;
    browser
        .get(&format!("/new/lun?target={TARGET}"))
        .await
        .says(200, &["value=\"existing\" checked"]);
    let fields = [
        ("disk", "new"),
        ("name", "two"),
        ("size", "1 MiB"),
        ("at", "existing"),
        ("target", TARGET),
    ];
    browser
        .post("/new/lun", &fields)
        .await
        .leads_to("/luns/iqn.2026-11.org.example:a/1#connect");
    let fields = [
        ("disk", "new"),
        ("name", "two"),
        ("size", "1 MiB"),
        ("at", "existing"),
        ("target", TARGET),
    ];
    browser
        .post("/new/lun", &fields)
        .await
        .says(422, &["id=\"name-error\"", "is there already"]);
    assert_eq!(site.control().model().all::<LunMap>().count(), 2);
}

#[tokio::test]
async fn a_disk_is_mapped_once_more_at_another_number_and_at_another_target() {
    let (site, mut browser) = with_disk().await;
    let form = format!("/new/lun?existing=unit:one&target={TARGET}");
    browser.get("/new/lun").await.lacks(&["value=\"unit:one\""]);
    let shown = browser.get(&page()).await;
    shown.says(200, &[&form.replace('&', "&#38;"), "Map it elsewhere"]);
    browser
        .get(&form)
        .await
        .says(200, &["value=\"unit:one\" selected", "at a LUN already"]);
    let mut fields = vec![
        ("disk", "existing"),
        ("existing", "unit:one"),
        ("at", "existing"),
        ("target", TARGET),
        ("lun", "0"),
    ];
    browser
        .post("/new/lun", &fields)
        .await
        .says(422, &["id=\"lun-error\"", "value=\"unit:one\" selected"]);
    fields[4].1 = "7";
    browser
        .post("/new/lun", &fields)
        .await
        .leads_to("/luns/iqn.2026-11.org.example:a/7#connect");
    fields[2].1 = "new";
    fields[4].1 = "";
    fields.extend([
        ("target_name", "iqn.2026-11.org.example:b"),
        ("who", "any"),
        ("chap", "none"),
    ]);
    browser
        .post("/new/lun", &fields)
        .await
        .leads_to("/luns/iqn.2026-11.org.example:b/0#connect");
    let model = site.control().model();
    assert!(model.all::<LunMap>().all(|map| map.unit.as_str() == "one"));
    assert_eq!(model.all::<LunMap>().count(), 3);
    browser.get(&page()).await.says(
        200,
        &["Also at", "LUN 7 of", "LUN 0 of iqn.2026-11.org.example:b"],
    );
}

#[tokio::test]
async fn a_lun_grows_becomes_read_only_and_is_switched_off_and_on() {
    let (site, mut browser) = with_disk().await;
    browser
        .get(&page())
        .await
        .says(200, &["Grow it", "1 MiB", " are free there."]);
    browser
        .post(&format!("{}/grow", page()), &[("size", "2 MiB")])
        .await
        .leads_to(&format!("{}#grown", page()));
    browser.get(&page()).await.says(200, &["2 MiB"]);
    let answer = browser
        .post(&format!("{}/grow", page()), &[("size", "1 MiB")])
        .await;
    answer.says(422, &["id=\"size-error\"", "shrinking it would cut data off"]);
    browser
        .post(&format!("{}/read-only", page()), &[("on", "1")])
        .await
        .leads_to(&page());
    assert!(site.control().model().get::<Store>("one").unwrap().read_only);
    browser
        .get(&page())
        .await
        .says(200, &["read-only", "Allow writes"]);
    browser
        .post(&format!("{}/enabled", page()), &[("on", "0")])
        .await
        .leads_to(&page());
    browser
        .get(&page())
        .await
        .says(200, &["switched off", "Switch on"]);
    browser
        .post(&format!("{}/enabled", page()), &[("on", "1")])
        .await
        .leads_to(&page());
    assert!(site.control().model().get::<Unit>("one").unwrap().enabled);
}

#[tokio::test]
async fn deleting_a_lun_keeps_its_data_unless_told_otherwise() {
    let (site, mut browser) = with_disk().await;
    let delete = format!("{}/delete", page());
    let answer = browser.get(&delete).await;
    answer.says(
        200,
        &[
            "What will happen",
            "value=\"keep\" checked",
            "No session uses it now",
        ],
    );
    browser.post(&delete, &[("data", "keep")]).await.leads_to("/luns");
    assert!(site.control().model().get::<Unit>("one").is_some() && site.directory().join("one.img").exists());

    browser
        .get("/new/lun?existing=unit:one")
        .await
        .says(200, &["value=\"unit:one\" selected"]);
    let again = [
        ("disk", "existing"),
        ("existing", "unit:one"),
        ("at", "existing"),
        ("target", TARGET),
    ];
    browser
        .post("/new/lun", &again)
        .await
        .leads_to("/luns/iqn.2026-11.org.example:a/0#connect");
    browser
        .post(&delete, &[("data", "delete")])
        .await
        .leads_to("/luns");
    assert!(
        site.control().model().get::<Store>("one").is_none() && !site.directory().join("one.img").exists()
    );
}

#[tokio::test]
async fn a_viewer_sees_no_button_and_can_change_nothing() {
    let (site, _) = with_disk().await;
    let mut viewer = site.as_role(Role::Viewer).await;
    for path in [
        &page(),
        "/luns",
        "/stores",
        "/stores/one",
        "/targets",
        &format!("/targets/{TARGET}"),
        "/initiators",
    ] {
        let answer = viewer.get(path).await;
        answer.says(200, &["viewer"]);
        answer.lacks(&[
            "class=\"button danger\"",
            "/new/lun",
            "/edit\"",
            "Grow it",
            "Switch off",
            "Make read-only",
        ]);
    }
    viewer
        .get("/new/lun")
        .await
        .says(403, &["this needs the role operator"]);
    viewer.get("/").await;
    let refused = viewer
        .post(&format!("{}/delete", page()), &[("data", "delete")])
        .await;
    refused.says(403, &["Not allowed"]);
    assert!(site.directory().join("one.img").exists());
}

#[tokio::test]
async fn a_missing_store_is_told_with_its_reason() {
    let (site, browser) = with_disk().await;
    drop(browser);
    let directory = site.stopped();
    std::fs::remove_file(directory.path().join("one.img")).unwrap();
    let site = Site::at(directory);
    let mut browser = site.browser();
    browser.log_in("admin").await;
    browser
        .get("/luns")
        .await
        .says(200, &["store missing", "one.img"]);
    browser.get("/stores").await.says(200, &["missing", "just now"]);
    browser
        .get("/stores/one")
        .await
        .says(200, &["It is missing", "its LUNs come back with it"]);
    browser
        .get(&page())
        .await
        .says(200, &["store missing", "role=\"alert\""]);
}
