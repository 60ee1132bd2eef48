//! Configuration and settings: import and export, portals, what holds for the node, users, passwords, tokens.

use iscsi_proto::Tpgt;
use management::live::{Defaults, ISER};
use management::model::{AdvertisedAddress, Credential, Kind, Portal, Role, Settings, Target, Token, User};
use serde_json::json;

use super::{PASSWORD, Site, free_address};

const DOCUMENT: &str = r#"{"targets": [{"name": "iqn.2026-11.org.example:new"}],
    "credentials": [{"id": "c", "name": "host", "secret": "a-secret-of-import"}]}"#;

fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let start = format!("name=\"{name}\" value=\"");
    text.split(&start).nth(1).unwrap().split('"').next().unwrap()
}

#[tokio::test]
async fn a_document_is_compared_first_and_applied_as_it_was_seen() {
    let (site, mut browser) = Site::with_admin().await;
    browser.get("/configuration").await;
    let compared = browser
        .post("/configuration/compare", &[("document", DOCUMENT)])
        .await;
    compared.says(
        200,
        &[
            "2 to create, 0 to change, 0 to delete",
            "targets/iqn.2026-11.org.example:new",
        ],
    );
    compared.lacks(&["a-secret-of-import"]);
    assert!(site.control().model().all::<Target>().next().is_none());
    let import = field(&compared.text, "import").to_owned();
    browser
        .post("/configuration/apply", &[("import", &import)])
        .await
        .leads_to("/configuration");
    let model = site.control().model();
    assert_eq!(model.all::<Target>().count(), 1);
    let credential = model.get::<Credential>("c").unwrap();
    assert_eq!(credential.secret.as_ref().unwrap().expose(), "a-secret-of-import");
    browser
        .get("/configuration")
        .await
        .says(200, &["2 objects were made", "1 target"]);
    // It was for once.
    browser
        .post("/configuration/apply", &[("import", &import)])
        .await
        .says(422, &["does not wait any more"]);
}

#[tokio::test]
async fn pruning_shows_what_would_go() {
    let (site, mut browser) = Site::with_admin().await;
    browser.get("/configuration").await;
    site.put(Kind::Target, json!({"name": "iqn.2026-11.org.example:old"}))
        .await;
    let fields = [("document", "{}"), ("prune", "1")];
    let compared = browser.post("/configuration/compare", &fields).await;
    compared.says(200, &["1 to delete", "iqn.2026-11.org.example:old"]);
    let fields = [("document", "{}")];
    let compared = browser.post("/configuration/compare", &fields).await;
    compared.says(200, &["Nothing is different"]);
}

#[tokio::test]
async fn a_document_that_was_overtaken_is_not_applied() {
    let (site, mut browser) = Site::with_admin().await;
    browser.get("/configuration").await;
    let compared = browser
        .post("/configuration/compare", &[("document", DOCUMENT)])
        .await;
    let import = field(&compared.text, "import").to_owned();
    site.put(Kind::Target, json!({"name": "iqn.2026-11.org.example:other"}))
        .await;
    browser
        .post("/configuration/apply", &[("import", &import)])
        .await
        .says(422, &["changed by somebody else"]);
    assert_eq!(site.control().model().all::<Target>().count(), 1);
}

#[tokio::test]
async fn a_document_that_is_none_is_told_where_it_is_wrong_and_not_sent_back() {
    let (_site, mut browser) = Site::with_admin().await;
    browser.get("/configuration").await;
    let bad = r#"{"credentials": [{"id": "c", "nam": "x", "secret": "a-secret-of-import"}]}"#;
    let answer = browser.post("/configuration/compare", &[("document", bad)]).await;
    answer.says(422, &["document-error", "credentials[0]"]);
    answer.lacks(&["a-secret-of-import"]);
    browser
        .post("/configuration/compare", &[("document", "")])
        .await
        .says(422, &["is missing"]);
}

#[tokio::test]
async fn an_export_has_secrets_for_administrators_who_ask_alone() {
    let (site, mut browser) = Site::with_admin().await;
    browser.get("/configuration").await;
    let credential = json!({"id": "c", "name": "host", "secret": "a-secret-of-export"});
    site.put(Kind::Credential, credential).await;
    let plain = browser.get("/configuration/export").await;
    plain.says(200, &["\"host\""]);
    plain.lacks(&["a-secret-of-export"]);
    browser
        .post("/configuration/export", &[])
        .await
        .says(200, &["a-secret-of-export"]);
    let mut operator = site.as_role(Role::Operator).await;
    operator.post("/configuration/export", &[]).await.says(403, &[]);
    operator.get("/configuration").await.lacks(&["With CHAP secrets"]);
}

#[tokio::test]
async fn a_viewer_sees_the_system_and_changes_nothing_of_it() {
    let (site, _) = Site::with_admin().await;
    let mut viewer = site.as_role(Role::Viewer).await;
    for path in [
        "/configuration",
        "/configuration/export",
        "/settings",
        "/settings/password",
    ] {
        viewer.get(path).await.says(200, &[]);
    }
    viewer
        .get("/settings")
        .await
        .lacks(&["New portal", "/settings/users"]);
    for path in [
        "/settings/users",
        "/settings/tokens",
        "/settings/node",
        "/settings/portals/new",
    ] {
        viewer.get(path).await.says(403, &[]);
        viewer.post(path, &[]).await.says(403, &[]);
    }
    for path in ["/configuration/compare", "/configuration/apply"] {
        viewer.post(path, &[("document", DOCUMENT)]).await.says(403, &[]);
    }
    let mut operator = site.as_role(Role::Operator).await;
    for path in ["/settings/users", "/settings/tokens"] {
        operator.get(path).await.says(403, &["role admin"]);
        operator.post(path, &[]).await.says(403, &[]);
    }
}

#[tokio::test]
async fn no_form_of_the_system_is_taken_without_its_proof() {
    let (site, mut browser) = Site::with_admin().await;
    for path in [
        "/configuration/compare",
        "/settings/users",
        "/settings/tokens",
        "/settings/node",
        "/settings/password",
        "/settings/portals/new",
    ] {
        let fields = [("id", "x"), ("role", "viewer"), ("csrf", "guessed")];
        browser.post_bare(path, &fields).await.says(403, &[]);
    }
    assert!(site.control().model().all::<Token>().next().is_none());
}

#[tokio::test]
async fn an_advertised_address_is_made_changed_and_deleted() {
    let (site, mut browser) = Site::with_admin().await;
    browser
        .get("/settings")
        .await
        .says(200, &["href=\"/settings/advertised/new\""]);
    browser.get("/settings/advertised/new").await;
    let bad = [
        ("id", "branch"),
        ("from", "everywhere"),
        ("address", "198.51.100.7:3260"),
        ("portal_group", "0"),
    ];
    browser
        .post("/settings/advertised/new", &bad)
        .await
        .says(422, &["id=\"from-error\"", "id=\"portal_group-error\""]);
    let no_port = [
        ("id", "branch"),
        ("from", "192.0.2.0/24"),
        ("address", "198.51.100.7"),
        ("portal_group", "1"),
    ];
    browser
        .post("/settings/advertised/new", &no_port)
        .await
        .says(422, &["id=\"address-error\"", "write address:port"]);
    let mut good = no_port;
    good[2].1 = "198.51.100.7:3260";
    browser
        .post("/settings/advertised/new", &good)
        .await
        .leads_to("/settings");
    browser.get("/settings").await.says(
        200,
        &["192.0.2.0/24", "198.51.100.7:3260", "Rule branch is saved"],
    );
    let page = browser.get("/settings/advertised/branch").await;
    page.says(200, &["value=\"192.0.2.0/24\"", "value=\"198.51.100.7:3260\""]);
    let revision = field(&page.text, "revision").to_owned();
    let mut changed = good;
    changed[0] = ("revision", &revision);
    changed[2].1 = "storage.example.org:3260";
    browser
        .post("/settings/advertised/branch", &changed)
        .await
        .leads_to("/settings");
    let address = |site: &Site| {
        let model = site.control().model();
        model
            .get::<AdvertisedAddress>("branch")
            .map(|it| it.address.clone())
    };
    assert_eq!(address(&site).as_deref(), Some("storage.example.org:3260"));
    // A form that was filled before is too late.
    browser
        .post("/settings/advertised/branch", &changed)
        .await
        .says(422, &["changed by somebody else"]);
    browser
        .get("/settings/advertised/branch/delete")
        .await
        .says(200, &["Initiators from 192.0.2.0/24"]);
    browser
        .post("/settings/advertised/branch/delete", &[])
        .await
        .leads_to("/settings");
    assert_eq!(address(&site), None);
    let mut viewer = site.as_role(Role::Viewer).await;
    viewer.get("/settings").await.lacks(&["/settings/advertised/new"]);
    viewer.get("/settings/advertised/new").await.says(403, &[]);
}

#[tokio::test]
async fn a_portal_is_made_changed_and_deleted() {
    let (site, mut browser) = Site::with_admin().await;
    let address = free_address();
    browser.get("/settings/portals/new").await;
    let bad = [("id", "in"), ("address", "127.0.0.1"), ("portal_group", "0")];
    browser
        .post("/settings/portals/new", &bad)
        .await
        .says(422, &["address-error", "portal_group-error"]);
    let good = [
        ("id", "in"),
        ("address", address.as_str()),
        ("portal_group", "2"),
        ("transport", "tcp"),
    ];
    browser
        .post("/settings/portals/new", &good)
        .await
        .leads_to("/settings");
    browser
        .post("/settings/portals/new", &good)
        .await
        .says(422, &["is there already", "id-error"]);
    let group = |site: &Site| {
        site.control()
            .model()
            .get::<Portal>("in")
            .map(|it| it.portal_group)
    };
    assert_eq!(group(&site), Some(2));
    browser
        .get("/settings/portals/in")
        .await
        .says(200, &[&format!("value=\"{address}\"")]);
    let changed = [("address", address.as_str()), ("portal_group", "3")];
    browser
        .post("/settings/portals/in", &changed)
        .await
        .leads_to("/settings");
    assert_eq!(group(&site), Some(3));
    let question = browser.get("/settings/portals/in/delete").await;
    question.says(200, &[&format!("Nobody can log in at {address}")]);
    // Those that came in by it go on: whether there are any is no matter.
    question.lacks(&["No session uses it"]);
    browser
        .post("/settings/portals/in/delete", &[])
        .await
        .leads_to("/settings");
    assert_eq!(group(&site), None);
}

#[tokio::test]
async fn portals_of_the_command_line_are_shown_and_cannot_be_changed() {
    let portal = |address: &str, group| target_core::control::Portal {
        address: address.parse().unwrap(),
        tpgt: Tpgt(group),
    };
    let defaults = Defaults {
        portals: vec![portal("192.0.2.7:3260", 5)],
        other_portals: [(ISER, vec![portal("192.0.2.8:3260", 6)])].into(),
        ..Defaults::default()
    };
    let site = Site::started(tempfile::tempdir().unwrap(), defaults);
    let mut browser = site.set_up().await;
    let shown = browser.get("/settings").await;
    shown.says(
        200,
        &[
            "command line",
            "192.0.2.7:3260",
            ">5<",
            "192.0.2.8:3260",
            ">6<",
            "iSER",
        ],
    );
    shown.lacks(&["Change<span class=\"hidden\"> portal"]);
}

#[tokio::test]
async fn the_settings_of_the_node_are_saved_as_they_were_seen_or_not_at_all() {
    let (site, mut browser) = Site::with_admin().await;
    let revision = |text: &str| field(text, "revision").to_owned();
    let first = revision(&browser.get("/settings/node").await.text);
    let bad = [
        ("revision", first.as_str()),
        ("limits", "MaxBurstLength"),
        ("method", "none"),
    ];
    browser
        .post("/settings/node", &bad)
        .await
        .says(422, &["limits-error", "MaxBurstLength"]);
    let good = [
        ("revision", first.as_str()),
        ("limits", "MaxBurstLength=524288"),
        ("method", "none"),
    ];
    browser.post("/settings/node", &good).await.leads_to("/settings");
    let limits = site
        .control()
        .model()
        .get::<Settings>("node")
        .unwrap()
        .limits
        .clone();
    assert_eq!(limits["MaxBurstLength"], "524288");
    browser
        .get("/settings")
        .await
        .says(200, &["MaxBurstLength=524288", "plain HTTP"]);
    browser
        .post("/settings/node", &good)
        .await
        .says(422, &["role=\"alert\""]);
}

#[tokio::test]
async fn users_are_made_changed_and_deleted_but_never_the_last_administrator() {
    let (site, mut browser) = Site::with_admin().await;
    browser.get("/settings/users").await;
    let mut fields = vec![
        ("name", "anna"),
        ("role", "operator"),
        ("password", PASSWORD),
        ("password_again", "other"),
    ];
    let answer = browser.post("/settings/users", &fields).await;
    answer.says(422, &["password_again-error", "value=\"anna\""]);
    answer.lacks(&["correct horse"]);
    fields[3].1 = PASSWORD;
    browser
        .post("/settings/users", &fields)
        .await
        .leads_to("/settings/users");
    browser
        .post("/settings/users", &fields)
        .await
        .says(422, &["another user"]);
    let listed = browser.get("/settings/users").await;
    listed.says(200, &["anna", "operator", "(you)"]);
    listed.lacks(&["argon2"]);
    browser
        .post("/settings/users/anna", &[("role", "viewer")])
        .await
        .leads_to("/settings/users");
    let role = site.control().model().get::<User>("anna").unwrap().role;
    assert_eq!(role, Role::Viewer);
    browser
        .post("/settings/users/anna/delete", &[])
        .await
        .leads_to("/settings/users");
    browser
        .post("/settings/users/admin/delete", &[])
        .await
        .says(409, &["last administrator"]);
    browser
        .post("/settings/users/admin", &[("role", "viewer")])
        .await
        .says(422, &["last administrator"]);
}

#[tokio::test]
async fn everybody_changes_their_own_password_with_the_one_they_have() {
    let (site, _) = Site::with_admin().await;
    let mut viewer = site.as_role(Role::Viewer).await;
    viewer.get("/settings/password").await;
    let mut fields = vec![
        ("password_now", "wrong"),
        ("password", "a new password"),
        ("password_again", "a new password"),
    ];
    viewer
        .post("/settings/password", &fields)
        .await
        .says(422, &["password_now-error"]);
    fields[0].1 = PASSWORD;
    viewer
        .post("/settings/password", &fields)
        .await
        .leads_to("/login");
    viewer.get("/settings").await.leads_to("/login?next=%2Fsettings");
    viewer.get("/login").await;
    viewer
        .post("/login", &[("name", "viewer"), ("password", "a new password")])
        .await
        .leads_to("/");
    let user = site.control().model().get::<User>("viewer").cloned().unwrap();
    assert_eq!(user.role, Role::Viewer);
}

#[tokio::test]
async fn a_token_is_shown_once() {
    let (site, mut browser) = Site::with_admin().await;
    browser.get("/settings/tokens").await;
    let fields = [("id", "prometheus"), ("role", "viewer"), ("days", "30")];
    let made = browser.post("/settings/tokens", &fields).await;
    made.says(
        200,
        &["Token prometheus is made", "This is the only time it is shown"],
    );
    let secret = made.text.split("id=\"made-token\"").nth(1).unwrap();
    let secret = secret.split("<code>").nth(1).unwrap().split('<').next().unwrap();
    assert!(secret.len() > 20, "{secret}");
    let actor = management::access::Gate::new(std::sync::Arc::clone(site.control())).by_token(secret);
    assert_eq!(actor.unwrap().role, Role::Viewer);
    let token = site
        .control()
        .model()
        .get::<Token>("prometheus")
        .cloned()
        .unwrap();
    assert_eq!(token.expires.unwrap() - token.created, 30 * 86_400);
    let listed = browser.get("/settings/tokens").await;
    listed.says(200, &["prometheus", "by user admin"]);
    listed.lacks(&[secret, token.hash.as_ref().unwrap().expose()]);
    browser
        .post("/settings/tokens", &fields)
        .await
        .says(422, &["another token"]);
    browser
        .post("/settings/tokens/prometheus/delete", &[])
        .await
        .leads_to("/settings/tokens");
    browser
        .get("/settings/tokens")
        .await
        .says(200, &["No tokens yet"]);
}
