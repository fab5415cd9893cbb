//! Calls that a person has to approve: where they wait, and where decisions come in, whoever takes them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use lf_core::policy::{Judgement, deadline};
use lf_core::tool::Approval;
use lf_core::turn::{Ask, Decision, Setup, Verdict, Waiting, denial, refusal};
use lf_core::{Arguments, Message, Principal, Project, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot, watch};

use crate::rules::{Asked, Became, Check, Facts, Told, Underway};

/// How long calls that a turn ended with can still be approved; then that is a no.
pub(crate) const KEPT: Duration = Duration::from_secs(3600);
/// Bytes of such calls that are kept for clients whose conversations are not; the oldest go first.
const REMEMBERED: u64 = 16 * 1024 * 1024;
/// How long a call that is of no turn waits for its approval.
const ALONE: Duration = Duration::from_secs(300);
/// Characters of arguments in words for a client.
const ARGUMENTS: usize = 500;
/// How long whoever decides waits until the decision is kept.
pub(crate) const KEEPING: Duration = Duration::from_secs(10);

/// What becomes of a turn whose asks nobody decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Attendance {
    /// Nobody can be asked: a no at once.
    #[default]
    Nobody,
    /// Whoever watches may decide until the time has passed, which is a no.
    Watched,
    /// The client knows nothing of approvals: after that time it is told in words what is needed, and its next message
    /// goes on.
    Told,
    /// The client is told at once, and comes back with the decision.
    HandedOver,
}

/// Where a call comes from that waits.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct About {
    /// Who asked: nobody else sees it, but an administrator. Daemons of before knew no owners.
    #[serde(default)]
    pub owner: String,
    /// `namespace/project`
    pub project: String,
    pub model: Option<String>,
    pub turn: Option<String>,
    pub conversation: Option<String>,
}

impl About {
    /// A client's own call, of the tools that this model may use where one is named.
    pub(crate) fn alone(who: &Principal, project: &Project, model: Option<String>) -> Self {
        let project = format!("{}/{}", project.namespace, project.name);
        Self { owner: who.id.clone(), project, model, turn: None, conversation: None }
    }

    pub(crate) fn turn(project: &Project, setup: &Setup, conversation: Option<&str>) -> Self {
        Self {
            owner: setup.principal.id.clone(),
            project: format!("{}/{}", project.namespace, project.name),
            model: Some(setup.model.clone()),
            turn: Some(setup.id.clone()),
            conversation: conversation.map(str::to_owned),
        }
    }
}

/// One call that waits.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Pending {
    pub ask: Ask,
    pub about: About,
    pub created: SystemTime,
    pub expires: SystemTime,
}

/// A decision on its way to who waits for it, and back to who took it once it is kept.
pub(crate) struct Decided {
    pub approval: String,
    pub decision: Decision,
    kept: oneshot::Sender<()>,
}

impl Decided {
    pub(crate) fn kept(self) {
        // who decided may have gone
        let _ = self.kept.send(());
    }
}

/// What came of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Taken,
    /// No call waits under this id: it never did, was decided, or is too old.
    Unknown,
    /// It could not be kept in time.
    Unkept,
}

impl Outcome {
    const ALL: [(Self, &str); 3] =
        [(Self::Taken, "taken"), (Self::Unknown, "unknown"), (Self::Unkept, "unkept")];

    /// For another daemon.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(outcome, _)| *outcome == self).map_or("", |(_, name)| name)
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(outcome, _)| *outcome)
    }
}

/// Asks of running turns, each with the way to who waits for its decision.
type Open = Arc<Mutex<BTreeMap<String, (Pending, mpsc::Sender<Decided>)>>>;

/// All calls that wait in this process.
pub(crate) struct CallApprovals {
    open: Open,
    /// Changes whenever some are opened.
    opened: watch::Sender<()>,
    /// Those that turns ended with, by the id of each ask.
    left: moka::sync::Cache<String, Arc<Left>>,
}

/// Calls that a turn ended with, in a conversation that its client keeps.
pub(crate) struct Left {
    about: About,
    waiting: Mutex<Waiting>,
    created: SystemTime,
    size: u32,
    is_taken: AtomicBool,
}

impl Left {
    /// As it is now.
    pub(crate) fn waiting(&self) -> Waiting {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Asks that are open as long as this lives.
pub(crate) struct Opened {
    ids: Vec<String>,
    approvals: Open,
    decided: mpsc::Receiver<Decided>,
}

impl CallApprovals {
    pub(crate) fn new() -> Self {
        let left = moka::sync::Cache::builder()
            .weigher(|_, left: &Arc<Left>| left.size)
            .eviction_policy(moka::policy::EvictionPolicy::lru())
            .max_capacity(REMEMBERED)
            .time_to_live(KEPT)
            .build();
        Self { open: Arc::default(), opened: watch::Sender::default(), left }
    }

    /// Lets others decide these asks.
    pub(crate) fn open<'a>(
        &self,
        asks: impl Iterator<Item = &'a Ask>,
        about: &About,
        wait: Duration,
    ) -> Opened {
        let (sender, decided) = mpsc::channel(16);
        let created = SystemTime::now();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ids = Vec::new();
        for ask in asks {
            ids.push(ask.id.clone());
            let pending =
                Pending { ask: ask.clone(), about: about.clone(), created, expires: created + wait };
            open.insert(ask.id.clone(), (pending, sender.clone()));
        }
        drop(open);
        self.opened.send_replace(());
        Opened { ids, approvals: self.open.clone(), decided }
    }

    /// Tells of asks that are opened from here on.
    pub(crate) fn opened(&self) -> watch::Receiver<()> {
        self.opened.subscribe()
    }

    /// Keeps what a turn ended with for the next one.
    pub(crate) fn leave(&self, waiting: Waiting, about: About) {
        let ids: Vec<String> = waiting.asks.iter().map(|ask| ask.id.clone()).collect();
        let bytes: usize = waiting.calls.iter().map(|call| 512 + 3 * call.arguments.raw().len()).sum();
        let size = u32::try_from(bytes).unwrap_or(u32::MAX);
        let left = Left {
            about,
            waiting: Mutex::new(waiting),
            created: SystemTime::now(),
            size,
            is_taken: AtomicBool::new(false),
        };
        let left = Arc::new(left);
        for id in ids {
            self.left.insert(id, left.clone());
        }
    }

    /// The calls that an approval is about, left by a turn of this project.
    pub(crate) fn left(&self, id: &str, project: &str, who: &Principal) -> Option<Arc<Left>> {
        self.left.get(id).filter(|left| left.about.project == project && who.sees(&left.about.owner))
    }

    /// From here on a later turn has them, with all that was decided. Nothing where another one was quicker: no call runs
    /// twice.
    pub(crate) fn take(&self, left: &Left) -> Option<Waiting> {
        let waiting = left.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for ask in &waiting.asks {
            self.left.invalidate(&ask.id);
        }
        (!left.is_taken.swap(true, Ordering::AcqRel)).then(|| waiting.clone())
    }

    /// Everything that waits, oldest first.
    pub(crate) fn pending(&self) -> Vec<Pending> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: BTreeMap<String, Pending> =
            open.iter().map(|(id, (pending, _))| (id.clone(), pending.clone())).collect();
        drop(open);
        for (id, left) in &self.left {
            let waiting = left.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let ask = waiting.asks.iter().find(|ask| ask.id == *id && ask.decision.is_none());
            if let Some(ask) = ask {
                let (created, expires) = (left.created, left.created + KEPT);
                let pending = Pending { ask: ask.clone(), about: left.about.clone(), created, expires };
                all.entry(id.to_string()).or_insert(pending);
            }
        }
        let mut all: Vec<Pending> = all.into_values().collect();
        all.sort_by_key(|pending| pending.created);
        all
    }

    /// Decides one call. Returns once that is kept, in 10 s at the latest.
    pub(crate) async fn decide(&self, id: &str, decision: Decision) -> Outcome {
        let open = {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.get(id).map(|(_, sender)| sender.clone())
        };
        if let Some(sender) = open {
            let (kept, is_kept) = oneshot::channel();
            let decided = Decided { approval: id.to_owned(), decision, kept };
            // many may be decided at once
            let taken = async { sender.send(decided).await.is_ok() && is_kept.await.is_ok() };
            return match tokio::time::timeout(KEEPING, taken).await {
                Ok(true) => Outcome::Taken,
                // it was decided otherwise, or the turn is over
                Ok(false) => Outcome::Unknown,
                Err(_) => Outcome::Unkept,
            };
        }
        let Some(left) = self.left.get(id) else { return Outcome::Unknown };
        let mut waiting = left.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if left.is_taken.load(Ordering::Acquire) {
            return Outcome::Unknown;
        }
        if decide(&mut waiting, id, &decision) { Outcome::Taken } else { Outcome::Unknown }
    }
}

/// Why a call that is of no turn does not run.
pub(crate) enum No {
    /// The file withholds the tool.
    Tool,
    /// For the caller to read.
    Said(String),
}

impl CallApprovals {
    /// Waits until a call that is of no turn may run: at most 5 min, which is a no. Says what is known of it then.
    pub(crate) async fn may_run(
        &self,
        check: &dyn Check,
        (facts, arguments): (Facts, &Map<String, Value>),
        about: About,
    ) -> Result<Facts, No> {
        let asked = Asked { model: about.model.as_deref(), facts: &facts, arguments };
        let Judgement { verdict, why } = check.check(&asked, deadline());
        let why = match verdict {
            Approval::Auto => return Ok(facts),
            Approval::Deny => {
                check.record(&Told::from(&asked), &Became::Denied(&why));
                return Err(No::Said(denial(&why)));
            }
            Approval::Ask => Some(why).filter(|why| !why.is_empty()),
        };
        let tool = &facts.tool;
        let id = format!("apr_{}", uuid::Uuid::new_v4().simple());
        let call = ToolCall {
            id: id.clone(),
            name: tool.name.to_string(),
            arguments: Arguments::from_object(arguments.clone()),
            rest: Map::new(),
        };
        let ask = Ask { id, call, tool: tool.clone(), why, decision: None };
        let mut opened = self.open(std::iter::once(&ask), &about, ALONE);
        tracing::info!(server = %tool.server, tool = %tool.name, approval = ask.id, "a call waits for its approval");
        let underway =
            Underway::asked(check, Told::from(&asked), |_| Became::Decided(Cow::Owned(left_alone())));
        let decision = match tokio::time::timeout(ALONE, opened.next()).await {
            Ok(decided) => {
                let decision = decided.decision.clone();
                decided.kept();
                decision
            }
            Err(_) => expired(),
        };
        underway.became(&Became::Decided(Cow::Borrowed(&decision)));
        let Decision { verdict, by, .. } = &decision;
        tracing::info!(server = %tool.server, tool = %tool.name, approval = ask.id, verdict = verdict.name(), by, "decided");
        if verdict.is_yes() { Ok(facts.approved()) } else { Err(No::Said(refusal(&decision))) }
    }
}

/// Writes a decision into what waits; false where nothing is open under this id.
pub(crate) fn decide(waiting: &mut Waiting, id: &str, decision: &Decision) -> bool {
    let Some(ask) = waiting.asks.iter_mut().find(|ask| ask.id == id && ask.decision.is_none()) else {
        return false;
    };
    ask.decision = Some(decision.clone());
    true
}

/// When the oldest was left that can still be decided, in milliseconds since 1970.
pub(crate) fn oldest() -> i64 {
    crate::memory::ago(KEPT)
}

/// What is too old to be decided is a no.
pub(crate) fn expire(waiting: &mut Waiting) {
    for ask in &mut waiting.asks {
        ask.decision.get_or_insert_with(expired);
    }
}

pub(crate) fn expired() -> Decision {
    Decision { verdict: Verdict::Expired, by: "nobody".to_owned(), reason: None, who: None }
}

/// Who wanted the call is gone: nobody can be told any more.
fn left_alone() -> Decision {
    Decision { reason: Some("who asked for the call did not wait".to_owned()), ..expired() }
}

/// What looks like ids of approvals in the last words of the model: those that a client was told it waits for.
pub(crate) fn named_in(said: &[Message]) -> Vec<String> {
    let last = said.iter().rev().find_map(|message| match message {
        Message::Assistant(said) => Some(said.content.text()),
        _ => None,
    });
    last.map(|last| ids_in(&last).map(str::to_owned).collect()).unwrap_or_default()
}

/// What looks like ids of approvals in a text.
fn ids_in(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("apr_").map(|(at, _)| {
        let rest = &text[at..];
        let end = rest.find(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
        &rest[..end.unwrap_or(rest.len())]
    })
}

/// What a client that knows nothing of approvals is told.
pub(crate) fn words<'a>(asks: impl Iterator<Item = &'a Ask>) -> String {
    use std::fmt::Write as _;
    let mut text = String::from("A person has to approve this before it is run:\n");
    for ask in asks {
        let arguments = lf_core::visible::start(ask.call.arguments.raw(), ARGUMENTS);
        let _ = write!(
            text,
            "- `{}` of MCP server `{}` with {arguments} (approval `{}`)",
            ask.tool.name, ask.tool.server, ask.id
        );
        match &ask.why {
            Some(why) => drop(writeln!(text, ": {}", lf_core::visible::line(why))),
            None => text.push('\n'),
        }
    }
    text.push_str(
        "\nRun `lf approvals approve ID` (or `deny`), or POST {\"decision\": \"approve\"} to /v1/approvals/ID, within an \
         hour; GET /v1/approvals/ID shows all of a call. Then send your next message, and this goes on.",
    );
    text
}

impl Opened {
    /// The next decision. Never ends by itself.
    pub(crate) async fn next(&mut self) -> Decided {
        match self.decided.recv().await {
            Some(decided) => decided,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let mut open = self.approvals.lock().unwrap_or_else(PoisonError::into_inner);
        for id in &self.ids {
            open.remove(id);
        }
    }
}

#[cfg(test)]
mod tests;
