//! Set-up, login, logout, and that nothing is changed from elsewhere.

use axum::http::header;
use management::model::Role;

use super::{PASSWORD, Site, TOKEN};

const PAGES: [&str; 14] = [
    "/",
    "/targets",
    "/luns",
    "/stores",
    "/initiators",
    "/sessions",
    "/login-failures",
    "/reservations",
    "/jobs",
    "/events",
    "/audit",
    "/configuration",
    "/settings",
    "/traces",
];

#[tokio::test]
async fn the_first_visit_leads_to_the_set_up_and_from_there_inside() {
    let site = Site::new();
    let mut browser = site.browser();
    browser.get("/targets").await.leads_to("/set-up");
    browser.get("/login").await.leads_to("/set-up");
    browser
        .get("/set-up")
        .await
        .says(200, &["Set-up token", "name=\"password\""]);
    let wrong = [
        ("token", "something-else-entirely"),
        ("name", "admin"),
        ("password", PASSWORD),
        ("password_again", "x"),
    ];
    let answer = browser.post("/set-up", &wrong).await;
    answer.says(422, &["id=\"password_again-error\"", "is not the same"]);
    answer.lacks(&["correct horse", "something-else"]);
    let wrong = [
        ("token", "something-else-entirely"),
        ("name", "admin"),
        ("password", PASSWORD),
        ("password_again", PASSWORD),
    ];
    browser
        .post("/set-up", &wrong)
        .await
        .says(422, &["id=\"token-error\""]);
    let right = [
        ("token", TOKEN),
        ("name", "admin"),
        ("password", PASSWORD),
        ("password_again", PASSWORD),
    ];
    browser.post("/set-up", &right).await.leads_to("/");
    browser.get("/").await.says(200, &["administrator", "Log out"]);
    browser.get("/set-up").await.leads_to("/login");
}

#[tokio::test]
async fn a_login_goes_on_to_the_page_that_was_wanted_and_a_logout_ends_it() {
    let (site, _) = Site::with_admin().await;
    let mut browser = site.browser();
    browser
        .get("/stores?q=a")
        .await
        .leads_to("/login?next=%2Fstores%3Fq%3Da");
    browser
        .get("/login?next=%2Fstores%3Fq%3Da")
        .await
        .says(200, &["value=\"/stores?q=a\""]);
    let answer = browser
        .post(
            "/login",
            &[("name", "admin"), ("password", "wrong"), ("next", "/stores")],
        )
        .await;
    answer.says(401, &["name or password is wrong", "role=\"alert\""]);
    browser
        .post(
            "/login",
            &[("name", "admin"), ("password", PASSWORD), ("next", "/stores?q=a")],
        )
        .await
        .leads_to("/stores?q=a");
    browser.get("/stores").await.says(200, &["Log out"]);
    browser.post("/logout", &[]).await.leads_to("/login");
    browser.get("/stores").await.leads_to("/login?next=%2Fstores");
}

#[tokio::test]
async fn a_form_without_the_proof_is_refused_as_a_page() {
    let (site, mut browser) = Site::with_admin().await;
    browser.get("/").await;
    for fields in [&[][..], &[("csrf", "")], &[("csrf", "0123456789")]] {
        browser
            .post_bare("/logout", fields)
            .await
            .says(403, &["Not from our page", "<h1>"]);
    }
    browser.get("/").await.says(200, &["Log out"]);
    let mut stranger = site.browser();
    stranger.get("/login").await;
    let login = [("name", "admin"), ("password", PASSWORD)];
    stranger
        .post_bare("/login", &login)
        .await
        .says(403, &["Not from our page"]);
}

#[tokio::test]
async fn every_page_is_there_for_every_role_with_its_policy() {
    let (site, mut admin) = Site::with_admin().await;
    let mut others = [
        site.as_role(Role::Operator).await,
        site.as_role(Role::Viewer).await,
    ];
    for path in PAGES {
        for browser in others.iter_mut().chain([&mut admin]) {
            let answer = browser.get(path).await;
            answer.says(200, &["<h1", "id=\"main\"", "aria-current=\"page\""]);
            answer.lacks(&["<script>", " style=\"", " onclick="]);
            let policy = answer.headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
            assert!(
                policy.contains("script-src 'self';") && !policy.contains("-inline"),
                "{policy}"
            );
            assert_eq!(answer.headers[header::CACHE_CONTROL], "no-store");
        }
    }
}

#[tokio::test]
async fn what_is_not_there_is_a_page_for_people_and_a_problem_for_machines() {
    let (_site, mut browser) = Site::with_admin().await;
    browser
        .get("/nowhere")
        .await
        .says(404, &["there is no such page", "<h1>"]);
    let answer = browser.get("/api/v1/targets/nothing").await;
    assert_eq!(answer.headers[header::CONTENT_TYPE], "application/problem+json");
}

#[tokio::test]
async fn the_theme_is_kept_and_the_page_says_it() {
    let (_site, mut browser) = Site::with_admin().await;
    browser.get("/").await.says(200, &["data-theme=\"auto\""]);
    browser
        .post("/theme", &[("theme", "dark"), ("next", "/stores")])
        .await
        .leads_to("/stores");
    browser.get("/stores").await.says(200, &["data-theme=\"dark\""]);
}

#[tokio::test]
async fn assets_are_kept_for_good_under_their_version() {
    let (_site, mut browser) = Site::with_admin().await;
    let page = browser.get("/").await.text;
    let rest = page.split_once("href=\"/assets/lunaport.css").unwrap().1;
    let address = format!("/assets/lunaport.css{}", rest.split('"').next().unwrap());
    let answer = browser.get(&address).await;
    answer.says(200, &["--accent"]);
    assert_eq!(
        answer.headers[header::CACHE_CONTROL],
        "public, max-age=31536000, immutable"
    );
    let answer = browser.get("/assets/lunaport.css").await;
    assert_eq!(answer.headers[header::CACHE_CONTROL], "no-cache");
    browser.get("/assets/../Cargo.toml").await.says(404, &[]);
}
