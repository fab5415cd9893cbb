//! What a database is asked to do, in one language for all of them.

use crate::error::StoreError;

/// A value of a row or a statement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Param {
    Null,
    Int(i64),
    Text(String),
}

impl From<i64> for Param {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<String> for Param {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<&str> for Param {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl<T: Into<Self>> From<Option<T>> for Param {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

pub(crate) type Row = Vec<Param>;

#[derive(Debug)]
pub(crate) struct Statement {
    pub sql: &'static str,
    pub params: Vec<Param>,
}

/// Statements of which all are done or none.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub statements: Vec<Statement>,
    /// The turn or conversation that it is of. Where several daemons share the database, it is done only while this one owns the turn.
    pub turn: Option<Of>,
    /// Has a row once the batch is done. With it a Postgres that was gone is waited for, and nothing is done twice.
    pub witness: Option<Statement>,
    /// What it deletes must not be found in the files any more. In SQLite it is not; a Postgres overwrites it with its
    /// next `VACUUM`, and archives of its log are its operator's.
    pub erases: bool,
}

/// What a batch is for a turn.
#[derive(Debug)]
pub(crate) enum Of {
    /// The turn begins with it.
    Begun(Beginning),
    /// The turn, by its id, is under way.
    Running(String),
    /// Of no turn: no turn may run in the conversation, or begin meanwhile.
    Quiet(Quiet),
}

#[derive(Debug)]
pub(crate) struct Quiet {
    pub conversation: String,
    /// Only where the last place in it is this one.
    pub after: Option<i64>,
}

#[derive(Debug)]
pub(crate) struct Beginning {
    pub turn: String,
    pub conversation: String,
    /// Only where no other turn runs in the conversation, the last place in it is this one, and so is what waits in it.
    pub after: Option<(i64, Option<String>)>,
}

/// How many rows each statement of a batch changed.
pub(crate) type Committed = Result<Vec<usize>, StoreError>;

impl Batch {
    pub(crate) fn add(&mut self, sql: &'static str, params: Vec<Param>) {
        self.statements.push(Statement { sql, params });
    }

    /// Of a turn that is under way.
    pub(crate) fn of(turn: &str) -> Self {
        Self { turn: Some(Of::Running(turn.to_owned())), ..Self::default() }
    }

    /// Of no turn, in a conversation in which none runs.
    pub(crate) fn quiet(conversation: &str, after: Option<i64>) -> Self {
        let quiet = Quiet { conversation: conversation.to_owned(), after };
        Self { turn: Some(Of::Quiet(quiet)), ..Self::default() }
    }

    /// Of statements that delete what somebody said.
    pub(crate) fn erasing() -> Self {
        Self { erases: true, ..Self::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }
}
