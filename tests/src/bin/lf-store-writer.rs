//! `lf-store-writer DIR full|normal NAME`: keeps turns through the store, several at once, until it is killed. What was
//! acknowledged is a line on stdout: `CONVERSATION TURN COMMITS`.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use lf_store::{Durability, Store, StoreError};
use lf_tests::keeping::{conversation, keep_turn};

/// Turns at the same time, so that commits are shared.
const AT_ONCE: usize = 4;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, durability, name] = &arguments[..] else {
        anyhow::bail!("usage: lf-store-writer DIR full|normal NAME");
    };
    let durability = match durability.as_str() {
        "full" => Durability::Full,
        "normal" => Durability::Normal,
        other => anyhow::bail!("`{other}` is neither full nor normal"),
    };
    let store = open(PathBuf::from(directory), durability).await.context("the store cannot be opened")?;
    store.create(&conversation(name)).await?;
    let writers = (0..AT_ONCE).map(|writer| {
        let store = store.clone();
        async move {
            for number in 0.. {
                let turn = format!("{name}-{writer}-{number}");
                keep_turn(&store, name, &turn, |commits| {
                    // whoever started this one may have stopped to listen
                    let _ = writeln!(std::io::stdout(), "{name} {turn} {commits}");
                })
                .await?;
            }
            Ok::<(), StoreError>(())
        }
    });
    futures_util::future::try_join_all(writers).await?;
    Ok(())
}

/// The threads of a store that was just closed may still be about to end.
async fn open(directory: PathBuf, durability: Durability) -> Result<Store, StoreError> {
    for _ in 0..1000 {
        match Store::open_with(directory.clone(), durability).await {
            Err(StoreError::InUse { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
            other => return other,
        }
    }
    Store::open_with(directory, durability).await
}
