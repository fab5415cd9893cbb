//! What a scripted model says.

use serde_json::{Value, json};

use crate::wait::Gate;

/// One reply to one request.
#[derive(Clone, Debug)]
pub struct Reply {
    pub(crate) hold: Option<Gate>,
    pub(crate) body: ReplyBody,
}

#[derive(Clone, Debug)]
pub(crate) enum ReplyBody {
    /// As the request asks: a stream of chunks, or one document.
    Answer(Answer),
    /// These bytes as an event stream, whatever the request asked.
    Stream { parts: Vec<Vec<u8>>, end: End },
    /// A whole response.
    Whole { status: u16, headers: Vec<(String, String)>, body: Vec<u8> },
    /// An error in the shape of the request's API.
    Error { status: u16, headers: Vec<(String, String)>, message: String },
    /// Takes the request and never sends a header.
    Silence,
}

/// A tool call of the model. A name that begins with `~` stands for the one offered tool whose name ends with the rest.
#[derive(Clone, Debug)]
pub struct Call {
    pub id: String,
    pub name: String,
    /// The text as it is sent: not necessarily JSON.
    pub arguments: String,
}

impl Call {
    #[expect(clippy::needless_pass_by_value, reason = "tests write `json!` here")]
    pub fn new(id: &str, name: &str, arguments: Value) -> Self {
        Self::raw(id, name, &arguments.to_string())
    }

    /// Arguments as they are written here.
    pub fn raw(id: &str, name: &str, arguments: &str) -> Self {
        Self { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
    }

    /// The arguments for APIs that send no text; what is no object becomes an empty one.
    pub(super) fn object(&self) -> Value {
        serde_json::from_str(&self.arguments).ok().filter(Value::is_object).unwrap_or_else(|| json!({}))
    }
}

/// An answer in its parts.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub reasoning: String,
    pub text: String,
    /// Through the API's own calls.
    pub calls: Vec<Call>,
    /// Written into the text, in `<tool_call>` tags.
    pub tagged: Vec<Call>,
    /// In the words of OpenAI Chat Completions, or in the API's own; otherwise `tool_calls` with calls and `stop`
    /// without.
    pub finish_reason: Option<String>,
    /// Prompt and completion tokens.
    pub usage: Option<(u64, u64)>,
    /// Bytes of text and of arguments per chunk; 0: all in one.
    pub piece: usize,
    /// Bytes per write to the connection; 0: an event each.
    pub write: usize,
    pub end: End,
    /// Waits there after that many writes.
    pub hold: Option<(usize, Gate)>,
}

/// How a streamed reply ends. Counted in writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    #[default]
    Whole,
    /// The connection is closed without an ending.
    CutAfter(usize),
    /// Nothing more comes.
    SilentAfter(usize),
}

impl Reply {
    fn new(body: ReplyBody) -> Self {
        Self { hold: None, body }
    }

    pub fn text(text: &str) -> Self {
        Self::new(ReplyBody::Answer(Answer { text: text.to_owned(), ..Answer::default() }))
    }

    pub fn calls(calls: impl IntoIterator<Item = Call>) -> Self {
        Self::new(ReplyBody::Answer(Answer { calls: calls.into_iter().collect(), ..Answer::default() }))
    }

    /// One call.
    pub fn call(id: &str, name: &str, arguments: Value) -> Self {
        Self::calls([Call::new(id, name, arguments)])
    }

    /// The answer of a model that has no tools: calls written into the text. Their ids are not told.
    pub fn tagged(text: &str, calls: impl IntoIterator<Item = Call>) -> Self {
        let tagged = calls.into_iter().collect();
        Self::new(ReplyBody::Answer(Answer { text: text.to_owned(), tagged, ..Answer::default() }))
    }

    /// These JSON values as the events of a stream of OpenAI Chat Completions, and `[DONE]`.
    pub fn chunks(chunks: impl IntoIterator<Item = Value>) -> Self {
        let mut parts: Vec<Vec<u8>> =
            chunks.into_iter().map(|chunk| format!("data: {chunk}\n\n").into_bytes()).collect();
        parts.push(b"data: [DONE]\n\n".to_vec());
        Self::new(ReplyBody::Stream { parts, end: End::Whole })
    }

    /// These bytes as an event stream, one write each.
    pub fn stream(parts: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self::new(ReplyBody::Stream { parts: parts.into_iter().collect(), end: End::Whole })
    }

    /// An error in the API's shape.
    pub fn error(status: u16, message: &str) -> Self {
        Self::new(ReplyBody::Error { status, headers: Vec::new(), message: message.to_owned() })
    }

    /// What a proxy or a login page answers.
    pub fn html() -> Self {
        Self::whole(
            200,
            "text/html; charset=utf-8",
            "<!doctype html><title>Sign in</title><p>Please sign in.",
        )
    }

    pub fn whole(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        Self::new(ReplyBody::Whole { status, headers, body: body.into() })
    }

    /// Takes the request and never answers.
    pub fn silence() -> Self {
        Self::new(ReplyBody::Silence)
    }

    /// A further response header. Only for whole responses and errors.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        match &mut self.body {
            ReplyBody::Whole { headers, .. } | ReplyBody::Error { headers, .. } => {
                headers.push((name.to_owned(), value.to_owned()));
            }
            other => panic!("no headers on {other:?}"),
        }
        self
    }

    /// Waits before the first header.
    pub fn hold(mut self, gate: &Gate) -> Self {
        self.hold = Some(gate.clone());
        self
    }

    /// Changes the answer.
    pub fn with(mut self, change: impl FnOnce(&mut Answer)) -> Self {
        match &mut self.body {
            ReplyBody::Answer(answer) => change(answer),
            other => panic!("no answer to change in {other:?}"),
        }
        self
    }

    pub fn usage(self, prompt: u64, completion: u64) -> Self {
        self.with(|answer| answer.usage = Some((prompt, completion)))
    }

    pub fn finish_reason(self, reason: &str) -> Self {
        self.with(|answer| answer.finish_reason = Some(reason.to_owned()))
    }

    /// Bytes of text and of arguments per chunk.
    pub fn pieces(self, bytes: usize) -> Self {
        self.with(|answer| answer.piece = bytes)
    }

    /// Bytes per write.
    pub fn writes(self, bytes: usize) -> Self {
        self.with(|answer| answer.write = bytes)
    }

    pub fn end(mut self, how: End) -> Self {
        match &mut self.body {
            ReplyBody::Answer(answer) => answer.end = how,
            ReplyBody::Stream { end, .. } => *end = how,
            other => panic!("no stream to end in {other:?}"),
        }
        self
    }

    /// Reads one entry of a script file: `text`, `reasoning`, `calls` and `tagged` (lists of `id`, `name`, `arguments`),
    /// `finish_reason`, `usage` ([prompt, completion]), `piece`, `write`, `cut_after`, `silent_after`; or `chunks`; or
    /// `status` with `body`, `content_type` and `headers`; or `silence`.
    pub fn from_json(entry: &Value) -> Self {
        if entry["silence"] == true {
            return Self::silence();
        }
        let mut reply = if let Some(chunks) = entry["chunks"].as_array() {
            Self::chunks(chunks.clone())
        } else if let Some(status) = entry["status"].as_u64() {
            Self::whole_from_json(u16::try_from(status).unwrap(), entry)
        } else {
            Self::new(ReplyBody::Answer(answer_from_json(entry)))
        };
        if let Some(count) = entry["cut_after"].as_u64() {
            reply = reply.end(End::CutAfter(usize::try_from(count).unwrap()));
        }
        if let Some(count) = entry["silent_after"].as_u64() {
            reply = reply.end(End::SilentAfter(usize::try_from(count).unwrap()));
        }
        reply
    }

    fn whole_from_json(status: u16, entry: &Value) -> Self {
        let body = match &entry["body"] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let content_type = entry["content_type"].as_str().unwrap_or("application/json");
        let mut reply = Self::whole(status, content_type, body);
        for (name, value) in entry["headers"].as_object().into_iter().flatten() {
            reply = reply.header(name, value.as_str().unwrap_or_default());
        }
        reply
    }
}

fn answer_from_json(entry: &Value) -> Answer {
    let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let number = |key: &str| usize::try_from(entry[key].as_u64().unwrap_or_default()).unwrap();
    let calls = |key: &str| {
        let list = entry[key].as_array().map_or(&[][..], Vec::as_slice);
        list.iter().enumerate().map(|(number, call)| call_from_json(number, call)).collect()
    };
    Answer {
        reasoning: text("reasoning"),
        text: text("text"),
        calls: calls("calls"),
        tagged: calls("tagged"),
        finish_reason: entry["finish_reason"].as_str().map(str::to_owned),
        usage: entry["usage"][0].as_u64().zip(entry["usage"][1].as_u64()),
        piece: number("piece"),
        write: number("write"),
        end: End::Whole,
        hold: None,
    }
}

fn call_from_json(number: usize, call: &Value) -> Call {
    let id = call["id"].as_str().map_or_else(|| format!("call_{number}"), str::to_owned);
    let name = call["name"].as_str().unwrap_or_default();
    match &call["arguments"] {
        Value::String(text) => Call::raw(&id, name, text),
        Value::Null => Call::raw(&id, name, "{}"),
        other => Call::new(&id, name, other.clone()),
    }
}
