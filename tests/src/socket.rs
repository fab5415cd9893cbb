//! A plain WebSocket client for tests: frames of JSON, one after another.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::keys;
use crate::open_responses::is_end;
use crate::runtime::block_on;
use crate::wait::PATIENCE;

/// An open connection; dropping it breaks it without a goodbye.
pub struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket {
    /// To an `http://…` URL of the daemon.
    pub fn open(url: &str) -> Self {
        Self::open_with(url, &[]).unwrap_or_else(|status| panic!("the handshake was answered with {status}"))
    }

    /// With further headers of the handshake; the status where it is refused.
    pub fn open_with(url: &str, headers: &[(&str, &str)]) -> Result<Self, u16> {
        let mut request = url.replacen("http", "ws", 1).into_client_request().expect("a URL");
        request.headers_mut().extend(keys::headers(url));
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a header's name");
            request.headers_mut().insert(name, HeaderValue::from_str(value).expect("a header's value"));
        }
        match block_on(async { connect_async(request).await }) {
            Ok((socket, _)) => Ok(Self(socket)),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("no connection: {error}"),
        }
    }

    pub fn send(&mut self, frame: &Value) {
        self.send_text(&frame.to_string());
    }

    pub fn send_text(&mut self, text: &str) {
        block_on(self.0.send(Message::text(text))).expect("the frame is taken");
    }

    /// The next frame; pings are answered on the way.
    #[track_caller]
    pub fn next_frame(&mut self) -> Value {
        match self.next_message() {
            Some(Message::Text(text)) => {
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
            }
            other => panic!("no frame, but {other:?}"),
        }
    }

    #[track_caller]
    fn next_message(&mut self) -> Option<Message> {
        let next = async {
            loop {
                match self.0.next().await {
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    Some(Ok(message)) => return Some(message),
                    Some(Err(_)) | None => return None,
                }
            }
        };
        block_on(async { tokio::time::timeout(PATIENCE, next).await }).expect("something within the time")
    }

    /// The frames of one answer: up to the end of a response, or an error in the place of one.
    #[track_caller]
    pub fn answer(&mut self) -> Vec<Value> {
        let mut frames = Vec::new();
        loop {
            let frame = self.next_frame();
            let over = is_end(&frame) || frame["type"] == "error";
            frames.push(frame);
            if over {
                return frames;
            }
        }
    }

    /// The code with which the other side closes, after frames that nobody wanted.
    #[track_caller]
    pub fn closed(&mut self) -> Option<u16> {
        loop {
            match self.next_message() {
                Some(Message::Close(Some(frame))) => return Some(frame.code.into()),
                Some(Message::Close(None)) | None => return None,
                Some(_) => {}
            }
        }
    }

    /// Closes as one should, and waits for the other side's goodbye.
    pub fn close(mut self) {
        block_on(async {
            self.0.close(None).await.expect("the goodbye is taken");
            let rest = async { while let Some(Ok(_)) = self.0.next().await {} };
            tokio::time::timeout(Duration::from_secs(5), rest).await.expect("a goodbye in return");
        });
    }
}
