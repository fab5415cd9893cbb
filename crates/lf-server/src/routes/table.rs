//! Routes and what each needs, put together so that there is none without.

use axum::Router;
use axum::handler::Handler;
use axum::routing::{self, MethodRouter};
use lf_core::Scope;

use super::Shared;

/// What a request needs to be let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing: it tells whether the daemon is there, and no more.
    Open,
    Scope(Scope),
}

impl From<Scope> for Need {
    fn from(scope: Scope) -> Self {
        Self::Scope(scope)
    }
}

/// A route that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// `*` for every one.
    pub method: &'static str,
    /// As the router has it: `/v1/turns/{id}`.
    pub path: String,
    pub need: Need,
}

/// A handler for one method of a path.
pub(super) struct Way {
    method: &'static str,
    need: Need,
    handler: MethodRouter<Shared>,
}

fn way(method: &'static str, need: impl Into<Need>, handler: MethodRouter<Shared>) -> Way {
    Way { method, need: need.into(), handler }
}

/// Also answers HEAD.
pub(super) fn get<T: 'static>(need: impl Into<Need>, handler: impl Handler<T, Shared>) -> Way {
    way("GET", need, routing::get(handler))
}

pub(super) fn post<T: 'static>(need: impl Into<Need>, handler: impl Handler<T, Shared>) -> Way {
    way("POST", need, routing::post(handler))
}

pub(super) fn put<T: 'static>(need: impl Into<Need>, handler: impl Handler<T, Shared>) -> Way {
    way("PUT", need, routing::put(handler))
}

pub(super) fn patch<T: 'static>(need: impl Into<Need>, handler: impl Handler<T, Shared>) -> Way {
    way("PATCH", need, routing::patch(handler))
}

pub(super) fn delete<T: 'static>(need: impl Into<Need>, handler: impl Handler<T, Shared>) -> Way {
    way("DELETE", need, routing::delete(handler))
}

/// Every method.
pub(super) fn any<T: 'static>(need: impl Into<Need>, handler: impl Handler<T, Shared>) -> Way {
    way("*", need, routing::any(handler))
}

/// The routes of the daemon. The only place in which a router is built.
#[derive(Default)]
pub(super) struct Table {
    router: Router<Shared>,
    routes: Vec<Route>,
}

impl Table {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn at(mut self, path: &str, ways: impl IntoIterator<Item = Way>) -> Self {
        let mut handlers = MethodRouter::new();
        for Way { method, need, handler } in ways {
            handlers = handlers.merge(handler);
            self.routes.push(Route { method, path: path.to_owned(), need });
        }
        Self { router: self.router.route(path, handlers), ..self }
    }

    pub(super) fn merge(mut self, other: Self) -> Self {
        self.routes.extend(other.routes);
        Self { router: self.router.merge(other.router), ..self }
    }

    pub(super) fn into_parts(self) -> (Router<Shared>, Vec<Route>) {
        (self.router, self.routes)
    }
}
