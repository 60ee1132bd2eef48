//! The document that describes the API.

use super::*;

#[test]
fn the_document_is_openapi_3_1_with_every_kind_in_it() {
    let document = serde_json::to_value(description()).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    for kind in management::model::Kind::ALL {
        let path = format!("/api/v1/{}", kind.path());
        assert!(document["paths"].get(&path).is_some(), "{path}");
    }
}

#[test]
fn every_reference_in_the_document_leads_somewhere() {
    let document = serde_json::to_value(description()).unwrap();
    let text = document.to_string();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for part in text.split("#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name}");
    }
}

#[test]
fn operations_have_ids_of_their_own() {
    let document = serde_json::to_value(description()).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for methods in document["paths"].as_object().unwrap().values() {
        for operation in methods.as_object().unwrap().values() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(seen.insert(id.to_owned()), "{id}");
        }
    }
    assert!(seen.len() > 60, "{}", seen.len());
}
