//! Who is let in to a route: the one place where keys are looked at. Deny by default: a request is let in because its route
//! says what it needs and whoever asks has that.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::StreamExt as _;
use lf_core::{Principal, Scope};
use tokio_util::sync::CancellationToken;

use crate::access::{Access, Stranger};
use crate::audit::Audit;
use crate::guard;
use crate::reply::{Caller, RequestId};
use crate::routes::{Need, Route};

#[derive(Clone)]
pub(crate) struct Admission(Arc<Inner>);

struct Inner {
    access: Arc<Access>,
    audit: Arc<Audit>,
    /// By path and method.
    needs: HashMap<String, HashMap<&'static str, Need>>,
    /// Whether only this machine reaches the daemon.
    loopback: bool,
}

impl Admission {
    pub(crate) fn new(access: Arc<Access>, audit: Arc<Audit>, routes: Vec<Route>, loopback: bool) -> Self {
        let mut needs: HashMap<String, HashMap<&'static str, Need>> = HashMap::new();
        for route in routes {
            needs.entry(route.path).or_default().insert(route.method, route.need);
        }
        Self(Arc::new(Inner { access, audit, needs, loopback }))
    }

    fn need(&self, path: &str, method: &Method) -> Option<Need> {
        let of_path = self.0.needs.get(path)?;
        let method = if method == Method::HEAD { "GET" } else { method.as_str() };
        of_path.get(method).or_else(|| of_path.get("*")).copied()
    }
}

/// Lets a request in with who asks, or refuses it. What is let in for a key ends when that key is revoked.
pub(crate) async fn admit(State(admission): State<Admission>, mut request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let Some(need) = admission.need(path.as_deref().unwrap_or_default(), request.method()) else {
        return guard::wrong_method(request).await;
    };
    let Inner { access, audit, loopback, .. } = &*admission.0;
    let wanted = format!("{} {}", request.method(), path.as_deref().unwrap_or_default());
    let id = request.extensions().get::<RequestId>().map(|id| id.0.clone()).unwrap_or_default();
    let caller = Caller::at(request.uri().path(), id);
    let principal = match (access.who(request.headers(), *loopback), need) {
        (Ok(principal), Need::Open) => principal,
        (Ok(principal), Need::Scope(scope)) if principal.has(scope) => principal,
        (Ok(principal), Need::Scope(scope)) => {
            audit.refused(Some(&principal), &format!("{wanted} needs the scope {scope}"));
            return lacking(&caller, &principal, scope);
        }
        (Err(_), Need::Open) => Arc::new(nobody()),
        (Err(stranger), Need::Scope(_)) => {
            audit.refused(None, &format!("{wanted}: {}", stranger.message()));
            return unknown(&caller, stranger);
        }
    };
    let until = access.until_revoked(&principal);
    request.extensions_mut().insert(principal);
    tokio::select! {
        biased;
        () = until.cancelled() => unknown(&caller, Stranger::Wrong),
        response = next.run(request) => bounded(response, until.clone()),
    }
}

/// For what anybody may know.
fn nobody() -> Principal {
    Principal { id: "nobody".to_owned(), name: "nobody".to_owned(), scopes: Vec::new(), ..Principal::local() }
}

fn unknown(caller: &Caller, stranger: Stranger) -> Response {
    let mut response = caller.refuse(StatusCode::UNAUTHORIZED, stranger.message());
    let challenge = match stranger {
        Stranger::Without => "Bearer realm=\"lf\"",
        Stranger::Wrong | Stranger::Expired => "Bearer realm=\"lf\", error=\"invalid_token\"",
    };
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    response
}

/// Whoever gave no key is asked for one (401); a key that is not enough is told so (403).
pub(crate) fn lacking(caller: &Caller, principal: &Principal, scope: Scope) -> Response {
    if !principal.id.is_empty() {
        return caller.refuse(StatusCode::FORBIDDEN, &needs_scope(principal, scope));
    }
    let what = format!(
        "this needs the scope `{scope}`: send the owner's token (file `{}` in the data directory) or a key that has it \
         as `Authorization: Bearer …`",
        crate::access::OWNER_FILE
    );
    let mut response = caller.refuse(StatusCode::UNAUTHORIZED, &what);
    let challenge = HeaderValue::from_static("Bearer realm=\"lf\"");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    response
}

/// What is told to whoever lacks a scope.
pub(crate) fn needs_scope(principal: &Principal, scope: Scope) -> String {
    match principal.id.is_empty() {
        true => format!("this needs the scope `{scope}`, and so a key that has it or the owner's token"),
        false => format!("this needs the scope `{scope}`, which the key `{}` does not have", principal.name),
    }
}

/// The same response, which ends with the key. One that is whole already is left as it is.
fn bounded(response: Response, until: CancellationToken) -> Response {
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(until.cancelled_owned())))
}
