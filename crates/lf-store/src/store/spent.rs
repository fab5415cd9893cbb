//! What callers have used of a day.

use lf_core::turn::Spent;

use crate::error::StoreError;
use crate::sqlite::Batch;

use super::{Columns, Store};

/// Days that are kept for people who look back.
const KEPT_DAYS: i64 = 40;
/// Money is kept in these parts of a dollar.
const NANO: f64 = 1e9;

impl Store {
    /// What this account has used of a day; days since 1970.
    pub async fn spent(&self, account: &str, day: i64) -> Result<Spent, StoreError> {
        let sql = "SELECT tokens, nanos FROM spent WHERE account = ?1 AND day = ?2";
        let Some(row) = self.query(sql, vec![account.into(), day.into()]).await?.pop() else {
            return Ok(Spent::default());
        };
        let mut columns = Columns::of(row);
        let (tokens, nanos) = (columns.int(), columns.int());
        #[expect(clippy::cast_precision_loss, reason = "2^53 nanodollars are nine million dollars a day")]
        let cost = nanos as f64 / NANO;
        Ok(Spent { tokens: tokens.try_into().unwrap_or_default(), cost })
    }

    /// Adds to what accounts have used of a day.
    pub async fn spend(&self, used: &[(&str, i64, Spent)]) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        for (account, day, spent) in used {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a cast of a float that is too large saturates"
            )]
            let nanos = (spent.cost * NANO).round() as i64;
            let tokens = i64::try_from(spent.tokens).unwrap_or(i64::MAX);
            batch.add(
                "INSERT INTO spent (account, day, tokens, nanos) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (account, day)
                 DO UPDATE SET tokens = tokens + excluded.tokens, nanos = nanos + excluded.nanos",
                vec![(*account).into(), (*day).into(), tokens.into(), nanos.into()],
            );
            batch.add("DELETE FROM spent WHERE day < ?1", vec![(*day - KEPT_DAYS).into()]);
        }
        self.commit(batch).await.map(drop)
    }
}
