//! Where the databases are asked differently. All other statements are the same for both: `?1`, `?2`, … are their
//! parameters, and a Postgres gets them as `$1`, `$2`, ….

use crate::store::Database;

impl Database {
    /// How conversations are found by words, of which there is at least one: the statement, and the words as it takes
    /// them. Its parameters are the scope, these words, the words as they were written, limit and offset.
    ///
    /// A word is its letters and digits, without case and diacritics; `foo-bar` is two that follow each other.
    pub(crate) fn search(&self, words: &[&str]) -> (&'static str, String) {
        match self {
            Self::Sqlite(_) => {
                let quoted = words.iter().map(|word| format!("\"{}\"", word.replace('"', "\"\"")));
                (SQLITE, quoted.collect::<Vec<_>>().join(" "))
            }
            Self::Postgres(_) => (POSTGRES, words.join(" ")),
        }
    }
}

const SQLITE: &str = "
    SELECT id, scope, kind, title, system, model, created, updated FROM conversation
    WHERE scope = ?1 AND kind = 'conversation' AND (id IN (
        SELECT conversation FROM message JOIN said ON said.rowid = message.n WHERE said MATCH ?2
    ) OR instr(lower(coalesce(title, '')), lower(?3)) > 0)
    ORDER BY updated DESC, id LIMIT ?4 OFFSET ?5";

const POSTGRES: &str = "
    SELECT id, scope, kind, title, system, model, created, updated FROM conversation
    WHERE scope = ?1 AND kind = 'conversation' AND (id IN (
        SELECT conversation FROM message WHERE words @@ plainto_tsquery('simple', lf_plain(?2))
        AND NOT EXISTS (
            SELECT 1 FROM unnest(string_to_array(?2, ' ')) AS word,
                phraseto_tsquery('simple', lf_plain(word)) AS phrase
            WHERE numnode(phrase) > 0 AND NOT words @@ phrase
        )
    ) OR strpos(lower(coalesce(title, '')), lower(?3)) > 0)
    ORDER BY updated DESC, id LIMIT ?4 OFFSET ?5";

/// How a Postgres forgets the parts of a conversation that no entry needs, while other daemons may write entries that need
/// them: those that run wait, and none begins. Turns are locked before their conversation, as where one ends, and once more
/// for one that began in between.
pub(crate) const DROP_SHARED_PARTS: [&str; 4] = [
    LOCK_TURNS,
    "SELECT id FROM conversation WHERE id = ?1 FOR NO KEY UPDATE",
    LOCK_TURNS,
    // whatever looks like a hash in an entry is one, or the part is kept in vain
    "DELETE FROM part WHERE conversation = ?1 AND hash NOT IN (
         SELECT found[1] FROM turn JOIN entry ON entry.turn = turn.id,
             regexp_matches(entry.body, '\"([0-9a-f]{64})\"', 'g') AS found
         WHERE turn.conversation = ?1
           AND (entry.body LIKE '{\"begun\"%' OR entry.body LIKE '{\"stood_in\"%')
     )",
];

const LOCK_TURNS: &str = "SELECT id FROM turn WHERE conversation = ?1 ORDER BY id FOR NO KEY UPDATE";
