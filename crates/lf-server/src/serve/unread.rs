//! What is still to come of a request that is answered already.
//!
//! A connection that is closed with bytes unread is reset, and the reset may overtake the answer: the client learns of a
//! broken connection instead of what was wrong (RFC 9112 §9.6). So the rest is read and thrown away, for a while.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::header::EXPECT;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use tokio::runtime::Handle;

use crate::guard::BODY_LIMIT;

/// Bytes of one request that are thrown away: what is many times too large still gets its answer.
const MOST: usize = 16 * BODY_LIMIT;
/// For the rest to come; after it, or after [`MOST`], the connection is closed.
const WAIT: Duration = Duration::from_secs(10);

/// A request whose body is read to its end by itself, should it be let go before.
pub(super) fn read_on(request: hyper::Request<Incoming>) -> hyper::Request<Body> {
    // a client that waits to be told `100 Continue` has sent nothing, and shall not begin
    let coming = !request.headers().contains_key(EXPECT);
    request.map(|body| Body::new(Unread { coming: coming && !body.is_end_stream(), body: Some(body) }))
}

struct Unread {
    /// There until this is dropped.
    body: Option<Incoming>,
    /// The client is sending what nobody has read.
    coming: bool,
}

impl HttpBody for Unread {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(context);
        self.coming = !matches!(frame, Poll::Ready(None | Some(Err(_))));
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        if let (true, false, Some(body), Ok(runtime)) =
            (self.coming, self.is_end_stream(), self.body.take(), Handle::try_current())
        {
            // ends with the connection, too
            runtime.spawn(tokio::time::timeout(WAIT, throw_away(Body::new(body))));
        }
    }
}

async fn throw_away(body: Body) {
    let mut rest = body.into_data_stream();
    let mut thrown = 0;
    while let Some(Ok(bytes)) = rest.next().await {
        thrown += bytes.len();
        if thrown > MOST {
            break;
        }
    }
}
