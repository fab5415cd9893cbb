//! What servers ask in the middle of calls, and who answers.

use lf_core::project::{Elicitation, Protocol};
use lf_core::tool::{Attendant, BoxFuture, Question, Reply};

use super::*;

/// Somebody who attends calls, takes a while, and answers every question alike.
struct Somebody {
    reply: Reply,
    /// `None` where it is for ever.
    takes: Option<Duration>,
    asked: Mutex<Vec<Question>>,
    notes: Mutex<Vec<String>>,
    /// Reports of progress.
    told: AtomicUsize,
}

impl Somebody {
    fn who(reply: Reply) -> Self {
        let takes = Some(Duration::ZERO);
        Self { reply, takes, asked: Mutex::default(), notes: Mutex::default(), told: AtomicUsize::new(0) }
    }

    fn says(result: Value) -> Self {
        Self::who(Reply::Result(result))
    }

    fn asked(&self) -> Vec<Question> {
        self.asked.lock().unwrap().clone()
    }

    fn notes(&self) -> String {
        self.notes.lock().unwrap().join("\n")
    }
}

impl Attendant for Somebody {
    fn progress(&self, _: ToolProgress) {
        self.told.fetch_add(1, Ordering::SeqCst);
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Reply> {
        self.asked.lock().unwrap().push(question);
        Box::pin(async {
            match self.takes {
                Some(takes) => skip(takes).await,
                None => std::future::pending().await,
            }
            self.reply.clone()
        })
    }

    fn note(&self, note: String) {
        self.notes.lock().unwrap().push(note);
    }
}

async fn attended(
    tools: &ProjectTools,
    name: &str,
    arguments: Value,
    who: &Somebody,
) -> Result<ToolOutput, ToolError> {
    let tool = ToolRef { server: NAME.into(), name: name.into() };
    tools.call(&tool, arguments.as_object().unwrap(), who).await
}

fn in_mode(mode: &str) -> McpServer {
    McpServer { protocol: Protocol::Auto, ..peer("-", mode) }
}

#[tokio::test]
async fn whoever_attends_the_call_is_asked_in_both_generations() {
    for mode in ["modern", ""] {
        let pool = pool();
        let tools = tools(&pool, in_mode(mode));
        let who = Somebody::says(json!({"action": "accept", "content": {"name": "Ada"}}));
        let said = text(attended(&tools, "ask_blindly", json!({}), &who).await);
        assert_eq!(said, r#"{"action": "accept", "content": {"name": "Ada"}}"#, "{mode}");
        let [asked] = &who.asked()[..] else { panic!("{:?}", who.asked()) };
        assert_eq!((&*asked.server, asked.tool.as_deref()), (NAME, Some("ask_blindly")));
        assert_eq!(asked.method, "elicitation/create");
        assert_eq!(asked.params["message"], "Who?");
        assert_eq!(asked.params["requestedSchema"]["required"], json!(["name"]));
        let told = format!(
            "MCP server `{NAME}` during `ask_blindly` asks \"Who?\" (name): accepted with values, by whoever was asked"
        );
        assert_eq!(who.notes(), told, "{mode}");
        pool.shutdown().await;
    }
}

#[tokio::test]
async fn several_questions_of_one_round_are_asked_one_after_the_other() {
    let pool = pool();
    let tools = tools(&pool, in_mode("modern"));
    let who = Somebody::says(json!({"action": "decline"}));
    let said = text(attended(&tools, "ask_twice", json!({}), &who).await);
    assert_eq!(said, r#"{"a": {"action": "decline"}, "b": {"action": "decline"}}"#);
    assert_eq!(who.asked().len(), 2);
}

#[tokio::test]
async fn thinking_does_not_count_against_the_time_of_the_tool() {
    for mode in ["modern", ""] {
        let pool = pool();
        let limit = Duration::from_secs(20);
        let server = McpServer { timeout: limit, max_timeout: limit, ..in_mode(mode) };
        let tools = tools(&pool, server);
        // started before, so that the time of the start is none of the call's
        names(&list(&tools).await);
        let who = Somebody { takes: Some(limit * 2), ..Somebody::says(json!({"action": "cancel"})) };
        let said = text(attended(&tools, "ask", json!({}), &who).await);
        assert_eq!(said, r#"{"action": "cancel"}"#, "{mode}");
        pool.shutdown().await;
    }
}

#[tokio::test]
async fn a_file_that_declines_asks_nobody() {
    for mode in ["modern", ""] {
        let pool = pool();
        let server = McpServer { elicitation: Elicitation::Decline, ..in_mode(mode) };
        let tools = tools(&pool, server);
        let who = Somebody::says(json!({"action": "accept", "content": {"name": "Ada"}}));
        let said = text(attended(&tools, "ask", json!({}), &who).await);
        assert_eq!(said, r#"{"action": "decline"}"#, "{mode}");
        assert!(who.asked().is_empty());
        assert!(who.notes().ends_with("declined, as it always is"), "{}", who.notes());
    }
}

#[tokio::test]
async fn what_nobody_answers_is_told_with_what_the_file_says() {
    let pool = pool();
    let tools = tools(&pool, in_mode("modern"));
    let who = Somebody::who(Reply::Nobody);
    let said = text(attended(&tools, "ask", json!({}), &who).await);
    assert_eq!(said, r#"{"action": "accept", "content": {"name": "hay"}}"#);
    assert!(who.notes().ends_with("accepted with values, as nobody can be asked"), "{}", who.notes());
    // sampling and roots are nobody's to answer here
    let refused = attended(&tools, "ask_roots", json!({}), &who).await;
    assert!(matches!(refused, Err(ToolError::Refused { code: -32_601, .. })), "{refused:?}");
}

#[tokio::test]
async fn a_url_is_shown_and_only_one_that_a_browser_opens() {
    for mode in ["modern", ""] {
        let pool = pool();
        let tools = tools(&pool, in_mode(mode));
        let who = Somebody::says(json!({"action": "accept"}));
        let url = json!({"url": "https://shop.example/login"});
        assert_eq!(text(attended(&tools, "ask_url", url, &who).await), r#"{"action": "accept"}"#, "{mode}");
        assert_eq!(who.asked()[0].params["url"], "https://shop.example/login");
        assert!(who.notes().contains("asks to visit https://shop.example/login (\"Log in\"): accepted"));
        let trick = json!({"url": "javascript:alert(1)"});
        assert_eq!(
            text(attended(&tools, "ask_url", trick, &who).await),
            r#"{"action": "decline"}"#,
            "{mode}"
        );
        assert_eq!(who.asked().len(), 1);
        pool.shutdown().await;
    }
}

#[tokio::test]
async fn a_call_that_needs_a_visit_first_is_made_again_after_it() {
    let pool = pool();
    let tools = tools(&pool, in_mode(""));
    let who = Somebody::says(json!({"action": "accept"}));
    assert_eq!(text(attended(&tools, "visit_first", json!({}), &who).await), "paid");
    assert_eq!(who.asked()[0].params["url"], "https://shop.example/pay");
    let other = super::tools(&pool, McpServer { timeout: Duration::from_secs(29), ..in_mode("") });
    match call(&other, "visit_first", json!({})).await {
        Err(ToolError::Refused { message, code: -32_042, .. }) => assert_eq!(message, "a payment is missing"),
        told => panic!("{told:?}"),
    }
}

#[tokio::test]
async fn a_question_that_the_server_takes_back_is_not_waited_for() {
    let pool = pool();
    let tools = tools(&pool, in_mode(""));
    let who = Somebody { takes: None, ..Somebody::says(json!({"action": "accept"})) };
    // the tool itself never answers: its time runs again once the question is gone
    let is_taken_back = || who.told.load(Ordering::SeqCst) == 1;
    let withdrawn = hurried(attended(&tools, "withdraw", json!({}), &who), is_taken_back);
    let take_back = async {
        eventually("it is asked", || who.asked().len() == 1).await;
        call(&tools, "take_back", json!({})).await
    };
    let (outcome, taken_back) = tokio::join!(withdrawn, take_back);
    assert_eq!(text(taken_back), "done");
    assert!(matches!(outcome, Err(ToolError::Timeout { .. })), "{outcome:?}");
    assert_eq!(who.asked().len(), 1);
}

#[tokio::test]
async fn a_server_that_took_many_questions_back_is_still_answered() {
    let pool = pool();
    let tools = tools(&pool, in_mode(""));
    let who = Somebody { takes: None, ..Somebody::says(json!({"action": "accept"})) };
    let withdrawn = attended(&tools, "withdraw_all", json!({"times": 100}), &who).await;
    assert_eq!(text(withdrawn), "{}");
}
