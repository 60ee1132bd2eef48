//! Routes and their description, added together.

use axum::Router;
use axum::routing::MethodRouter;
use utoipa::ToSchema;
use utoipa::openapi::path::{HttpMethod, Operation, OperationBuilder, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ArrayBuilder, ComponentsBuilder, ObjectBuilder, OneOfBuilder, Schema, Type};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{
    ContentBuilder, InfoBuilder, OpenApi, OpenApiBuilder, Paths, Ref, RefOr, Required, ResponseBuilder,
};

use super::config::Diff;
use crate::who::COOKIE;
use crate::{ProblemDetails, Web};

/// Routes so far.
#[derive(Default)]
pub(super) struct Routes {
    router: Router<Web>,
    paths: Paths,
    schemas: Vec<(String, RefOr<Schema>)>,
}

/// The description of one route, as it grows.
pub(super) struct Described {
    operation: OperationBuilder,
    schemas: Vec<(String, RefOr<Schema>)>,
}

impl Routes {
    /// Adds a route below `/api/v1`.
    pub(super) fn add(
        &mut self,
        method: HttpMethod,
        path: &str,
        handler: MethodRouter<Web>,
        described: Described,
    ) {
        let path = format!("/api/v1{path}");
        self.router = std::mem::take(&mut self.router).route(&path, handler);
        self.schemas.extend(described.schemas);
        let operation: Operation = described.operation.build();
        self.paths.add_path_operation(path, vec![method], operation);
    }

    pub(super) fn finish(mut self) -> (Router<Web>, OpenApi) {
        register::<ProblemDetails>(&mut self.schemas);
        let mut components = ComponentsBuilder::new();
        for (name, schema) in self.schemas {
            components = components.schema(name, schema);
        }
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let cookie = SecurityScheme::ApiKey(ApiKey::Cookie(ApiKeyValue::new(COOKIE)));
        let components = components
            .security_scheme("token", SecurityScheme::Http(bearer))
            .security_scheme("session", cookie)
            .build();
        let info = InfoBuilder::new()
            .title("Lunaport")
            .version(env!("CARGO_PKG_VERSION"))
            .description(Some(DESCRIPTION))
            .build();
        let document = OpenApiBuilder::new()
            .info(info)
            .paths(self.paths)
            .components(Some(components));
        (self.router, document.build())
    }
}

impl Described {
    /// A route with its tag, its id and what it does.
    pub(super) fn new(tag: &str, id: impl Into<String>, summary: impl Into<String>) -> Self {
        let problem = ContentBuilder::new()
            .schema(Some(Ref::from_schema_name("ProblemDetails")))
            .build();
        let problem = ResponseBuilder::new()
            .description("Why not: problem details (RFC 9457)")
            .content("application/problem+json", problem)
            .build();
        let operation = OperationBuilder::new()
            .tag(tag)
            .operation_id(Some(id))
            .summary(Some(summary))
            .response("default", problem)
            .security(SecurityRequirement::new("token", Vec::<String>::new()))
            .security(SecurityRequirement::new("session", Vec::<String>::new()));
        Self {
            operation,
            schemas: Vec::new(),
        }
    }

    /// A text in the path.
    pub(super) fn in_path(self, name: &str, what: &str) -> Self {
        let parameter = parameter(name, ParameterIn::Path, what, Type::String);
        self.parameter(parameter.required(Required::True))
    }

    /// A text or number that may be in the query.
    pub(super) fn in_query(self, name: &str, what: &str, kind: Type) -> Self {
        let parameter = parameter(name, ParameterIn::Query, what, kind);
        self.parameter(parameter.required(Required::False))
    }

    /// A header that may be there.
    pub(super) fn header(self, name: &str, what: &str) -> Self {
        let parameter = parameter(name, ParameterIn::Header, what, Type::String);
        self.parameter(parameter.required(Required::False))
    }

    /// The body that is taken.
    pub(super) fn takes<T: ToSchema>(mut self, content_type: &str) -> Self {
        let content = ContentBuilder::new().schema(Some(self.refer::<T>())).build();
        let body = RequestBodyBuilder::new()
            .content(content_type, content)
            .required(Some(Required::True));
        self.operation = self.operation.request_body(Some(body.build()));
        self
    }

    /// A good answer with a JSON body.
    pub(super) fn gives<T: ToSchema>(mut self, status: &str, what: &str) -> Self {
        let content = ContentBuilder::new().schema(Some(self.refer::<T>())).build();
        let response = ResponseBuilder::new()
            .description(what)
            .content("application/json", content);
        self.operation = self.operation.response(status, response.build());
        self
    }

    /// A good answer of a change: the object, or of a dry run what would be different.
    pub(super) fn gives_or_diff<T: ToSchema>(mut self, status: &str, what: &str) -> Self {
        let either = OneOfBuilder::new()
            .item(self.refer::<T>())
            .item(self.refer::<Diff>())
            .build();
        let content = ContentBuilder::new().schema(Some(Schema::OneOf(either))).build();
        let response = ResponseBuilder::new()
            .description(format!("{what}; of a dry run what would be different"))
            .content("application/json", content);
        self.operation = self.operation.response(status, response.build());
        self
    }

    /// Nobody has to say who they are.
    pub(super) fn for_anybody(mut self) -> Self {
        self.operation = self.operation.securities(Some(Vec::new()));
        self
    }

    /// A good answer with some of a list, whose schema is named after its items'.
    pub(super) fn gives_page<T: ToSchema>(mut self, what: &str) -> Self {
        let items = ArrayBuilder::new().items(self.refer::<T>()).build();
        let page = ObjectBuilder::new()
            .property("items", items)
            .property("total", ObjectBuilder::new().schema_type(Type::Integer))
            .property("next", ObjectBuilder::new().schema_type(Type::String))
            .required("items")
            .required("total")
            .build();
        let name = format!("{}Page", T::name());
        self.schemas.push((name.clone(), Schema::from(page).into()));
        let content = ContentBuilder::new()
            .schema(Some(Ref::from_schema_name(name)))
            .build();
        let response = ResponseBuilder::new()
            .description(what)
            .content("application/json", content);
        self.operation = self.operation.response("200", response.build());
        self
    }

    /// A good answer without a body, or with one of another type.
    pub(super) fn gives_nothing(mut self, status: &str, what: &str) -> Self {
        let response = ResponseBuilder::new().description(what).build();
        self.operation = self.operation.response(status, response);
        self
    }

    fn parameter(mut self, parameter: ParameterBuilder) -> Self {
        self.operation = self.operation.parameter(parameter.build());
        self
    }

    fn refer<T: ToSchema>(&mut self) -> Ref {
        register::<T>(&mut self.schemas);
        Ref::from_schema_name(T::name())
    }
}

fn parameter(name: &str, place: ParameterIn, what: &str, kind: Type) -> ParameterBuilder {
    let schema = ObjectBuilder::new().schema_type(kind).build();
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .description(Some(what))
        .schema(Some(schema))
}

fn register<T: ToSchema>(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    T::schemas(schemas);
    schemas.push((T::name().into_owned(), T::schema()));
}

const DESCRIPTION: &str = "Management of a Lunaport node. In every document `lun` is the number, and a logical unit has \
     an id of its own. Errors are problem details (RFC 9457) that name the place and the fix.\n\nChanges are \
     transactions: validated whole, saved durably, then followed by the running node. `ETag` and `If-Match` keep two \
     people from overwriting each other. A session of a browser needs the header `X-CSRF-Token` with each change.";
