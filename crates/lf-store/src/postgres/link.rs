//! One connection, and what is said over it.

use std::collections::HashMap;
use std::error::Error as _;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Config, Connection, NoTls};
use tokio_util::task::TaskTracker;

use crate::batch::{Batch, Beginning, Of, Param, Row, Statement};

use super::tls::Tls;

pub(super) struct Link {
    client: Client,
    prepared: HashMap<&'static str, tokio_postgres::Statement>,
}

/// Why something was not done. Nothing of it was, but where the connection broke: then it may have been.
#[derive(Debug, Error)]
pub(super) enum Trouble {
    /// The database does not take it; the connection is as good as before.
    #[error("{0}")]
    Refused(String),
    /// It stood in the way of another one.
    #[error("{0}")]
    InTheWay(String),
    /// The connection was gone before anything was done.
    #[error("{0}")]
    Gone(String),
    #[error("{0}")]
    Broken(String),
    /// It has no room for what was to be kept; the connection is as good as before.
    #[error("{0}")]
    Full(String),
    #[error("{what} `{id}` was gone on with by another daemon")]
    Overtaken { what: &'static str, id: String },
    #[error("schema version {found}, and this program knows up to {known}")]
    TooNew { found: i64, known: i64 },
}

impl Trouble {
    /// At once: nothing was done, and nothing speaks against it.
    pub(super) fn may_be_tried_again(&self) -> bool {
        matches!(self, Self::InTheWay(_) | Self::Gone(_))
    }

    /// When the database is there again. Whether it was done is to be asked first.
    pub(super) fn passes(&self) -> bool {
        self.may_be_tried_again() || matches!(self, Self::Broken(_))
    }

    pub(super) fn is_of_the_connection(&self) -> bool {
        matches!(self, Self::Gone(_) | Self::Broken(_))
    }
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        let said = said(&error);
        match error.code() {
            Some(&SqlState::T_R_DEADLOCK_DETECTED | &SqlState::T_R_SERIALIZATION_FAILURE) => {
                Self::InTheWay(said)
            }
            Some(&SqlState::DISK_FULL) => Self::Full(said),
            // what is stored does not fit together with what is there
            Some(code) if code.code().starts_with("23") => Self::Refused(said),
            _ => Self::Broken(said),
        }
    }
}

/// The message of the database, or what happened to the connection: never a statement, a value or the password.
fn said(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(told), _) => told.message().to_owned(),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

/// Whether the database has the characters that we store, and takes writes.
const USABLE: &str = "SELECT current_setting('server_encoding')";

impl Link {
    pub(super) async fn connect(
        config: &Config,
        tls: Option<Tls>,
        tasks: &TaskTracker,
    ) -> Result<Self, Trouble> {
        let client = match tls {
            Some(tls) => attended(config.connect(tls).await?, tasks),
            None => attended(config.connect(NoTls).await?, tasks),
        };
        Ok(Self { client, prepared: HashMap::new() })
    }

    pub(super) fn is_open(&self) -> bool {
        !self.client.is_closed()
    }

    /// Brings the tables to the present form; daemons that start at the same time do it one after the other.
    pub(super) async fn migrate(&mut self, key: i64, steps: &[&str]) -> Result<(), Trouble> {
        let encoding: String = self.client.query_one(USABLE, &[]).await?.get(0);
        if encoding != "UTF8" {
            let why = format!("its encoding is {encoding}; create it with ENCODING 'UTF8'");
            return Err(Trouble::Refused(why));
        }
        let known = i64::try_from(steps.len()).unwrap_or(i64::MAX);
        let transaction = self.client.transaction().await?;
        transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&key]).await?;
        transaction.batch_execute("CREATE TABLE IF NOT EXISTS lf_schema (version BIGINT NOT NULL)").await?;
        let found = transaction.query_opt("SELECT version FROM lf_schema", &[]).await?;
        let found: i64 = found.map_or(0, |row| row.get(0));
        if found > known {
            return Err(Trouble::TooNew { found, known });
        }
        if found == known {
            return Ok(());
        }
        for step in steps.iter().skip(usize::try_from(found).unwrap_or(0)) {
            transaction.batch_execute(step).await?;
        }
        transaction.execute("DELETE FROM lf_schema", &[]).await?;
        transaction.execute("INSERT INTO lf_schema (version) VALUES ($1)", &[&known]).await?;
        Ok(transaction.commit().await?)
    }

    /// All statements in one transaction, in order. Of one that was tried before and may be done, nothing is done again
    /// and nothing is counted.
    pub(super) async fn commit(
        &mut self,
        batch: &Batch,
        owner: &str,
        tried: bool,
    ) -> Result<Vec<usize>, Trouble> {
        // a database that was restarted meanwhile says so on the connections of before
        self.client.batch_execute("BEGIN").await.map_err(|error| Trouble::Gone(said(&error)))?;
        let done = match tried {
            true => self.once(batch, owner).await,
            false => self.in_transaction(batch, owner).await,
        };
        match done {
            Ok(changed) => {
                self.client.batch_execute("COMMIT").await?;
                Ok(changed)
            }
            Err(trouble) => {
                // where even that fails, the connection ends and the transaction with it
                if self.client.batch_execute("ROLLBACK").await.is_err() {
                    return Err(Trouble::Broken(trouble.to_string()));
                }
                Err(trouble)
            }
        }
    }

    /// What is left to do of a batch that may be done already.
    async fn once(&mut self, batch: &Batch, owner: &str) -> Result<Vec<usize>, Trouble> {
        if let Some(Of::Running(turn)) = &batch.turn {
            // a former try that the database has not ended yet
            self.ask("SELECT id FROM turn WHERE id = ?1 FOR NO KEY UPDATE", &[turn.as_str().into()]).await?;
        }
        if let Some(witness) = &batch.witness
            && !self.query(witness).await?.is_empty()
        {
            return Ok(Vec::new());
        }
        self.in_transaction(batch, owner).await
    }

    async fn in_transaction(&mut self, batch: &Batch, owner: &str) -> Result<Vec<usize>, Trouble> {
        match &batch.turn {
            Some(Of::Running(turn)) => self.fence(turn, owner).await?,
            Some(Of::Begun(beginning)) => self.is_next(beginning).await?,
            Some(Of::Quiet(quiet)) => {
                self.hold(&quiet.conversation).await?;
                self.is_quiet(&quiet.conversation, quiet.after).await?;
            }
            None => {}
        }
        let mut changed = Vec::with_capacity(batch.statements.len());
        for statement in &batch.statements {
            let prepared = self.prepare(statement.sql).await?;
            let rows = self.client.execute_raw(&prepared, &statement.params).await?;
            changed.push(usize::try_from(rows).unwrap_or(usize::MAX));
        }
        if let Some(Of::Begun(beginning)) = &batch.turn {
            let params = [beginning.turn.as_str().into(), owner.into()];
            self.ask("UPDATE turn SET owner = ?2 WHERE id = ?1", &params).await?;
        }
        Ok(changed)
    }

    /// Nothing is written for a turn that another daemon has taken over, and none takes it over before this is written.
    async fn fence(&mut self, turn: &str, owner: &str) -> Result<(), Trouble> {
        let sql = "SELECT id FROM turn WHERE id = ?1 AND owner = ?2 AND state = 'running' FOR NO KEY UPDATE";
        match self.ask(sql, &[turn.into(), owner.into()]).await?.is_empty() {
            true => Err(Trouble::Overtaken { what: "turn", id: turn.to_owned() }),
            false => Ok(()),
        }
    }

    /// Turns of one conversation begin one after the other, whichever daemons they come to.
    async fn is_next(&mut self, beginning: &Beginning) -> Result<(), Trouble> {
        self.hold(&beginning.conversation).await?;
        let Some((place, waiting)) = &beginning.after else { return Ok(()) };
        self.is_quiet(&beginning.conversation, Some(*place)).await?;
        // a decision that is being kept is waited for
        let sql = "SELECT body FROM waiting WHERE conversation = ?1 FOR UPDATE";
        let now = self.ask(sql, &[beginning.conversation.as_str().into()]).await?.pop();
        match now == waiting.as_deref().map(|body| vec![body.into()]) {
            true => Ok(()),
            false => Err(Trouble::Overtaken { what: "conversation", id: beginning.conversation.clone() }),
        }
    }

    /// No turn begins in the conversation before this is written.
    async fn hold(&mut self, conversation: &str) -> Result<(), Trouble> {
        let sql = "SELECT id FROM conversation WHERE id = ?1 FOR NO KEY UPDATE";
        self.ask(sql, &[conversation.into()]).await.map(drop)
    }

    /// No turn runs in a conversation, and nothing was said in it after this place.
    async fn is_quiet(&mut self, conversation: &str, after: Option<i64>) -> Result<(), Trouble> {
        let sql = "SELECT id FROM conversation WHERE id = ?1
                   AND NOT EXISTS (SELECT 1 FROM turn WHERE conversation = ?1 AND state = 'running')
                   AND NOT EXISTS (SELECT 1 FROM message WHERE conversation = ?1 AND seq > ?2)";
        let params = [conversation.into(), after.unwrap_or(i64::MAX).into()];
        match self.ask(sql, &params).await?.is_empty() {
            true => Err(Trouble::Overtaken { what: "conversation", id: conversation.to_owned() }),
            false => Ok(()),
        }
    }

    pub(super) async fn query(&mut self, statement: &Statement) -> Result<Vec<Row>, Trouble> {
        self.ask(statement.sql, &statement.params).await
    }

    async fn ask(&mut self, sql: &'static str, params: &[Param]) -> Result<Vec<Row>, Trouble> {
        use futures_util::TryStreamExt as _;
        let prepared = self.prepare(sql).await?;
        let rows = self.client.query_raw(&prepared, params).await?;
        let rows: Vec<tokio_postgres::Row> = rows.try_collect().await?;
        rows.iter().map(|row| (0..row.len()).map(|column| value(row, column)).collect()).collect()
    }

    async fn prepare(&mut self, sql: &'static str) -> Result<tokio_postgres::Statement, Trouble> {
        if let Some(prepared) = self.prepared.get(sql) {
            return Ok(prepared.clone());
        }
        // there is no other question mark in any statement
        let prepared = self.client.prepare(&sql.replace('?', "$")).await?;
        self.prepared.insert(sql, prepared.clone());
        Ok(prepared)
    }
}

/// Lets the connection run: it ends when the client is dropped, or the database goes away.
fn attended<S, T>((client, connection): (Client, Connection<S, T>), tasks: &TaskTracker) -> Client
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    tasks.spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(error = said(&error), "a connection to Postgres has ended");
        }
    });
    client
}

fn value(row: &tokio_postgres::Row, column: usize) -> Result<Param, Trouble> {
    Ok(match *row.columns()[column].type_() {
        Type::INT8 => row.try_get::<_, Option<i64>>(column)?.into(),
        Type::INT4 => row.try_get::<_, Option<i32>>(column)?.map(i64::from).into(),
        _ => row.try_get::<_, Option<String>>(column)?.into(),
    })
}

impl ToSql for Param {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(value) if *ty == Type::INT4 => i32::try_from(*value)?.to_sql(ty, out),
            Self::Int(value) => value.to_sql(ty, out),
            // Postgres has no place for it in a text
            Self::Text(text) if text.contains('\0') => text.replace('\0', "\u{fffd}").to_sql(ty, out),
            Self::Text(text) => text.to_sql(ty, out),
        }
    }

    fn accepts(ty: &Type) -> bool {
        matches!(*ty, Type::INT4 | Type::INT8 | Type::TEXT | Type::VARCHAR)
    }

    to_sql_checked!();
}
