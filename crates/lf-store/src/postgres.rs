//! One Postgres database that several daemons share: a few connections that are made when they are needed, and again when
//! they are gone.

mod link;
mod tls;

use std::time::Duration;

use lf_core::Secret;
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_util::task::TaskTracker;

use crate::batch::{Batch, Committed, Param, Row, Statement};
use crate::error::StoreError;
use crate::schema::POSTGRES_STEPS;

use link::{Link, Trouble};
use tls::Tls;

/// A daemon that has said nothing for so long is taken for dead, and others go on with its turns.
pub const LEASE: Duration = Duration::from_secs(10);

/// Connections of one daemon; a caller beyond that waits.
const CONNECTIONS: usize = 8;
/// Until one of them is free: a thousand turns at once keep them busy for some seconds.
const ROOM_WAIT: Duration = Duration::from_secs(10);
/// Until a new one is made.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// Of one batch or query. The database gives up its statements before that.
const WAIT: Duration = Duration::from_secs(15);
/// How often a batch is tried that stood in the way of another one.
const ATTEMPTS: usize = 4;

/// Between two tries to reach a database that is gone.
const PAUSE: Duration = Duration::from_millis(250);

/// The key of the lock under which tables are made: the letters `lf-store`.
const MIGRATION: i64 = 0x6c66_2d73_746f_7265;

/// How long something of a database is waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// For one of the connections.
    room: Duration,
    /// For a new connection.
    connection: Duration,
    /// For a database that is gone, by what cannot be said again later.
    absence: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { room: ROOM_WAIT, connection: CONNECT_WAIT, absence: LEASE }
    }
}

pub(crate) struct Postgres {
    config: Config,
    patience: Patience,
    tls: Option<Tls>,
    place: String,
    /// This daemon, among those that share the database.
    owner: String,
    idle: std::sync::Mutex<Vec<Link>>,
    room: Semaphore,
    pulse: Semaphore,
    migrated: OnceCell<()>,
    tasks: TaskTracker,
}

/// A connection that may be used again, if it is given back.
struct Lent<'a> {
    link: Link,
    _room: SemaphorePermit<'a>,
}

/// Over which connections something is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Whatever is free, or will be.
    Common,
    /// One more, for a daemon that says that it lives and does what others ask of it: however many callers wait, that
    /// must not be late.
    Pulse,
}

/// When something may be tried again that was not done.
enum Again {
    AtOnce,
    /// When the database is there again.
    Later,
    Never,
}

impl Postgres {
    /// Connects to nothing yet.
    ///
    /// # Errors
    /// When it is no address of a database; it is not repeated in the error, because there is a password in it.
    pub(crate) fn new(url: &Secret, roots: &[Vec<u8>]) -> Result<Self, StoreError> {
        let place = place(url.expose());
        let parsed = url.expose().parse::<Config>().ok().filter(|config| !config.get_hosts().is_empty());
        let Some(mut config) = parsed.filter(|_| is_url(url.expose())) else {
            let reason = "it is not of the form postgres://user:password@host:5432/database".to_owned();
            return Err(StoreError::Unavailable { place, reason });
        };
        let tls = match config.get_ssl_mode() {
            SslMode::Require => Some(Tls::new(roots).map_err(|error| {
                let reason = format!("TLS cannot be set up: {error}");
                StoreError::Unavailable { place: place.clone(), reason }
            })?),
            // neither tried first nor fallen back to: what is sent in clear is what is said so
            _ => None,
        };
        let limits = "-c statement_timeout=10s -c lock_timeout=8s -c idle_in_transaction_session_timeout=30s";
        let options = config.get_options().map_or(limits.to_owned(), |given| format!("{limits} {given}"));
        config.options(options).connect_timeout(CONNECT_WAIT).keepalives_idle(Duration::from_secs(30));
        if config.get_application_name().is_none() {
            config.application_name("lf");
        }
        Ok(Self {
            config,
            patience: Patience::default(),
            tls,
            place,
            owner: uuid::Uuid::now_v7().simple().to_string(),
            idle: std::sync::Mutex::default(),
            room: Semaphore::new(CONNECTIONS),
            pulse: Semaphore::new(1),
            migrated: OnceCell::new(),
            tasks: TaskTracker::new(),
        })
    }

    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    /// Returns when the batch is on the database's disk. One that has a witness waits for a database that is gone, as long
    /// as a lease. Dropping the future ends the connection, and the batch is done or not.
    pub(crate) async fn commit(&self, batch: &Batch, lane: Lane) -> Committed {
        let patience = if batch.witness.is_some() { self.patience.absence } else { Duration::ZERO };
        let until = Instant::now() + patience;
        let (mut attempts, mut tried) = (1, false);
        loop {
            let (error, again) = match self.try_commit(batch, tried, lane).await {
                Ok(changed) => return Ok(changed),
                Err(failed) => failed,
            };
            match again {
                Again::AtOnce if attempts < ATTEMPTS => attempts += 1,
                Again::AtOnce | Again::Later if Instant::now() < until => {
                    tried = true;
                    sleep(PAUSE).await;
                }
                _ => return Err(error),
            }
        }
    }

    async fn try_commit(
        &self,
        batch: &Batch,
        tried: bool,
        lane: Lane,
    ) -> Result<Vec<usize>, (StoreError, Again)> {
        let mut lent = self.lend(lane).await.map_err(|error| match error {
            StoreError::Unavailable { .. } => (error, Again::Later),
            error => (error, Again::Never),
        })?;
        match timeout(WAIT, lent.link.commit(batch, &self.owner, tried)).await {
            Ok(Ok(changed)) => {
                self.give_back(lent);
                Ok(changed)
            }
            Ok(Err(trouble)) => {
                let again = match (trouble.may_be_tried_again(), trouble.passes()) {
                    (true, _) => Again::AtOnce,
                    (false, true) => Again::Later,
                    (false, false) => Again::Never,
                };
                Err((self.told(trouble, lent), again))
            }
            Err(_) => Err((self.unavailable(format!("it has not answered for {WAIT:?}")), Again::Later)),
        }
    }

    pub(crate) async fn query(
        &self,
        sql: &'static str,
        params: Vec<Param>,
        lane: Lane,
    ) -> Result<Vec<Row>, StoreError> {
        let statement = Statement { sql, params };
        let mut attempts = 1;
        loop {
            let mut lent = self.lend(lane).await?;
            match timeout(WAIT, lent.link.query(&statement)).await {
                Ok(Ok(rows)) => {
                    self.give_back(lent);
                    return Ok(rows);
                }
                // reading changes nothing: a connection that is gone is replaced
                Ok(Err(trouble)) => {
                    let again = trouble.is_of_the_connection() && attempts < ATTEMPTS;
                    let outcome = self.told(trouble, lent);
                    if !again {
                        return Err(outcome);
                    }
                    attempts += 1;
                }
                Err(_) => return Err(self.unavailable(format!("it has not answered for {WAIT:?}"))),
            }
        }
    }

    /// A connection to a database with the present tables.
    async fn lend(&self, lane: Lane) -> Result<Lent<'_>, StoreError> {
        let room = match lane {
            Lane::Common => &self.room,
            Lane::Pulse => &self.pulse,
        };
        let limit = self.patience.room;
        let room = match timeout(limit, room.acquire()).await {
            Ok(Ok(room)) => room,
            _ => {
                let reason = format!("all {CONNECTIONS} connections have been busy for {limit:?}");
                return Err(self.unavailable(reason));
            }
        };
        let mut link = match self.take_idle() {
            Some(link) => link,
            None => self.connect().await?,
        };
        let made = async {
            match timeout(WAIT, link.migrate(MIGRATION, POSTGRES_STEPS)).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(Trouble::TooNew { found, known })) => {
                    Err(StoreError::TooNew { place: self.place.clone(), found, known })
                }
                Ok(Err(trouble)) => Err(self.unavailable(trouble.to_string())),
                Err(_) => Err(self.unavailable(format!("its tables could not be made within {WAIT:?}"))),
            }
        };
        self.migrated.get_or_try_init(|| made).await?;
        Ok(Lent { link, _room: room })
    }

    fn take_idle(&self) -> Option<Link> {
        let mut idle = self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        idle.retain(Link::is_open);
        idle.pop()
    }

    fn give_back(&self, lent: Lent<'_>) {
        self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(lent.link);
    }

    async fn connect(&self) -> Result<Link, StoreError> {
        let limit = self.patience.connection;
        match timeout(limit, Link::connect(&self.config, self.tls.clone(), &self.tasks)).await {
            Ok(Ok(link)) => Ok(link),
            Ok(Err(trouble)) => Err(self.unavailable(trouble.to_string())),
            Err(_) => Err(self.unavailable(format!("no connection within {limit:?}"))),
        }
    }

    /// What went wrong, for who asked. A connection whose state is not known is not used again.
    fn told(&self, trouble: Trouble, lent: Lent<'_>) -> StoreError {
        match trouble {
            Trouble::Overtaken { what, id } => {
                self.give_back(lent);
                StoreError::Overtaken { what, id }
            }
            Trouble::Full(reason) => {
                tracing::debug!(place = self.place, reason, "the database is full");
                self.give_back(lent);
                StoreError::Full { place: self.place.clone() }
            }
            Trouble::Refused(reason) => {
                self.give_back(lent);
                self.unavailable(reason)
            }
            other => self.unavailable(other.to_string()),
        }
    }

    fn unavailable(&self, reason: String) -> StoreError {
        StoreError::Unavailable { place: self.place.clone(), reason }
    }
}

fn is_url(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

/// The address as it may be shown: hosts, ports and the database, without user, password and options.
fn place(url: &str) -> String {
    let Ok(config) = url.parse::<Config>() else { return "the Postgres database".to_owned() };
    let ports = config.get_ports();
    let hosts = config.get_hosts().iter().enumerate().map(|(at, host)| {
        let name = match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        };
        // one port is for all hosts
        let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
        format!("{name}:{port}")
    });
    let hosts: Vec<String> = hosts.collect();
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("postgres://{}/{database}", hosts.join(","))
}

#[cfg(test)]
mod tests;
