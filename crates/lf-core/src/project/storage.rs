use crate::Secret;

/// Where a daemon keeps conversations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Storage {
    /// `lf.db` in its data directory.
    #[default]
    Sqlite,
    /// A database that several daemons share: `postgres://user:password@host:port/database`.
    Postgres(Secret),
}

impl Storage {
    /// `sqlite`, or the URL of a Postgres database; nothing where it is neither.
    pub fn parse(text: &str) -> Option<Self> {
        let is_url = text.starts_with("postgres://") || text.starts_with("postgresql://");
        match text {
            "sqlite" => Some(Self::Sqlite),
            _ => is_url.then(|| Self::Postgres(text.into())),
        }
    }
}
