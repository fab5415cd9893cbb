//! What callers have used of a day.

use lf_core::turn::Spent;

use crate::batch::Batch;
use crate::error::StoreError;

use super::{Columns, Store};

/// Days that are kept for people who look back.
const KEPT_DAYS: i64 = 40;
/// Money is kept in these parts of a dollar.
const NANO: f64 = 1e9;

impl Store {
    /// What this account has used of a day; days since 1970. Where daemons share the store, in all of them.
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

    /// Adds to what accounts have used of a day, under an id of its own. After an error a Postgres may have added it, or still
    /// do: said again with the same id, it is added once. The id `before` is known to be done and is forgotten.
    pub async fn spend(
        &self,
        (id, before): (&str, Option<&str>),
        used: &[(&str, i64, Spent)],
    ) -> Result<(), StoreError> {
        let Some(last) = used.iter().map(|(_, day, _)| *day).max() else { return Ok(()) };
        let flush = |id: &str| format!("flush:{id}");
        let sql = "SELECT day FROM spent WHERE account = ?1";
        if !self.query(sql, vec![flush(id).into()]).await?.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::default();
        // where a former try is still under way, this waits for it, and fails if it is done
        batch.add(
            "INSERT INTO spent (account, day, tokens, nanos) VALUES (?1, ?2, 0, 0)",
            vec![flush(id).into(), last.into()],
        );
        if let Some(before) = before {
            batch.add("DELETE FROM spent WHERE account = ?1", vec![flush(before).into()]);
        }
        let mut used = used.to_vec();
        // in one order everywhere: daemons that add to the same accounts wait for each other, and never in a circle
        used.sort_by_key(|(account, day, _)| (*account, *day));
        for (account, day, spent) in &used {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a cast of a float that is too large saturates"
            )]
            let nanos = (spent.cost * NANO).round() as i64;
            let tokens = i64::try_from(spent.tokens).unwrap_or(i64::MAX);
            batch.add(
                "INSERT INTO spent (account, day, tokens, nanos) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (account, day) DO UPDATE
                 SET tokens = spent.tokens + excluded.tokens, nanos = spent.nanos + excluded.nanos",
                vec![(*account).into(), (*day).into(), tokens.into(), nanos.into()],
            );
        }
        batch.add("DELETE FROM spent WHERE day < ?1", vec![(last - KEPT_DAYS).into()]);
        self.commit(batch).await.map(drop)
    }
}
