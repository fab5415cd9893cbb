//! The tables, in the order in which they came to be. A step that was released is never changed.

mod postgres;

pub(crate) use postgres::STEPS as POSTGRES_STEPS;

/// Each brings an SQLite database from the version that is its index to the next. What is added here is added to those of
/// Postgres, too.
pub(crate) const STEPS: &[&str] = &[
    "
    CREATE TABLE conversation (
        id TEXT PRIMARY KEY,
        scope TEXT NOT NULL,
        kind TEXT NOT NULL,
        title TEXT,
        system TEXT,
        model TEXT,
        created INTEGER NOT NULL,
        updated INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX conversation_by_use ON conversation (scope, kind, updated DESC, id);

    CREATE TABLE message (
        n INTEGER PRIMARY KEY,
        conversation TEXT NOT NULL REFERENCES conversation ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        id TEXT NOT NULL UNIQUE,
        created INTEGER NOT NULL,
        turn TEXT,
        body TEXT NOT NULL,
        text TEXT NOT NULL,
        UNIQUE (conversation, seq)
    );
    CREATE VIRTUAL TABLE said USING fts5 (text, content='message', content_rowid='n');
    CREATE TRIGGER message_said AFTER INSERT ON message BEGIN
        INSERT INTO said (rowid, text) VALUES (new.n, new.text);
    END;
    CREATE TRIGGER message_unsaid AFTER DELETE ON message BEGIN
        INSERT INTO said (said, rowid, text) VALUES ('delete', old.n, old.text);
    END;

    CREATE TABLE tool (
        conversation TEXT NOT NULL REFERENCES conversation ON DELETE CASCADE,
        server TEXT NOT NULL,
        name TEXT NOT NULL,
        PRIMARY KEY (conversation, server, name)
    ) WITHOUT ROWID;

    CREATE TABLE turn (
        id TEXT PRIMARY KEY,
        conversation TEXT NOT NULL REFERENCES conversation ON DELETE CASCADE,
        state TEXT NOT NULL,
        created INTEGER NOT NULL,
        updated INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX turn_by_conversation ON turn (conversation, created);
    CREATE INDEX turn_running ON turn (state) WHERE state = 'running';

    CREATE TABLE entry (
        turn TEXT NOT NULL REFERENCES turn ON DELETE CASCADE,
        n INTEGER NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (turn, n)
    ) WITHOUT ROWID;

    -- long parts of entries that come again and again: messages and tool lists, by the hash of their text
    CREATE TABLE part (
        conversation TEXT NOT NULL REFERENCES conversation ON DELETE CASCADE,
        hash TEXT NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (conversation, hash)
    ) WITHOUT ROWID;
",
    "
    -- calls that the last turn of a conversation ended with, because nobody had approved them
    CREATE TABLE waiting (
        conversation TEXT PRIMARY KEY REFERENCES conversation ON DELETE CASCADE,
        body TEXT NOT NULL,
        created INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX waiting_by_age ON waiting (created);

    -- tools that were approved for all of a conversation
    CREATE TABLE approved (
        conversation TEXT NOT NULL REFERENCES conversation ON DELETE CASCADE,
        server TEXT NOT NULL,
        name TEXT NOT NULL,
        PRIMARY KEY (conversation, server, name)
    ) WITHOUT ROWID;
",
    "
    CREATE INDEX message_by_turn ON message (turn);

    -- kind `response`: the responses that go on from one another are one conversation; a deleted one that others go on
    -- from stays as an empty row (`gone`) with the messages that they need
    CREATE TABLE response (
        id TEXT PRIMARY KEY,
        scope TEXT NOT NULL,
        conversation TEXT NOT NULL REFERENCES conversation ON DELETE CASCADE,
        previous TEXT REFERENCES response,
        turn TEXT NOT NULL,
        gone INTEGER NOT NULL,
        body TEXT NOT NULL,
        input TEXT NOT NULL,
        head TEXT,
        size INTEGER NOT NULL,
        created INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX response_by_conversation ON response (conversation);
    CREATE INDEX response_by_previous ON response (previous);
    CREATE INDEX response_by_age ON response (created, id, size);

    -- what a turn said and did before it handed calls to a client, under the ids of those calls
    CREATE TABLE resume (
        id TEXT PRIMARY KEY,
        body TEXT NOT NULL,
        size INTEGER NOT NULL,
        created INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX resume_by_age ON resume (created, id, size);
    CREATE TABLE resume_call (
        call TEXT PRIMARY KEY,
        resume TEXT NOT NULL REFERENCES resume ON DELETE CASCADE
    ) WITHOUT ROWID;
    CREATE INDEX resume_call_by_resume ON resume_call (resume);

    -- words of deleted messages leave the index of words at once
    INSERT INTO said (said, rank) VALUES ('secure-delete', 1);
",
];
