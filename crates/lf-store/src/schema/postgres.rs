//! The same tables in Postgres, with what daemons that share them need to know of each other.

/// Each brings a Postgres database from the version that is its index to the next.
///
/// Ids are compared byte by byte, as SQLite does it. `lf_plain` takes case, diacritics and ASCII punctuation out of a text:
/// SQLite's FTS5 knows none of them, and Postgres would see addresses and numbers in it. A text is searchable in its first 200,000 characters, because a `tsvector` holds
/// no more than 1 MiB.
pub(crate) const STEPS: &[&str] = &[
    r#"
    CREATE TABLE conversation (
        id TEXT COLLATE "C" PRIMARY KEY,
        scope TEXT COLLATE "C" NOT NULL,
        kind TEXT NOT NULL,
        title TEXT,
        system TEXT,
        model TEXT,
        created BIGINT NOT NULL,
        updated BIGINT NOT NULL
    );
    CREATE INDEX conversation_by_use ON conversation (scope, kind, updated DESC, id);

    CREATE FUNCTION lf_plain(text TEXT) RETURNS TEXT LANGUAGE SQL IMMUTABLE PARALLEL SAFE STRICT AS $$
        SELECT regexp_replace(
            regexp_replace(normalize(lower(text), NFD), U&'[\0300-\036F]+', '', 'g'),
            '[\x01-/:-`{-\x7F]+', ' ', 'g'
        )
    $$;
    CREATE TABLE message (
        n BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        conversation TEXT COLLATE "C" NOT NULL REFERENCES conversation ON DELETE CASCADE,
        seq BIGINT NOT NULL,
        id TEXT COLLATE "C" NOT NULL UNIQUE,
        created BIGINT NOT NULL,
        turn TEXT,
        body TEXT NOT NULL,
        text TEXT NOT NULL,
        words TSVECTOR NOT NULL GENERATED ALWAYS AS (
            to_tsvector('simple'::regconfig, lf_plain(left(text, 200000)))
        ) STORED,
        UNIQUE (conversation, seq)
    );
    CREATE INDEX message_words ON message USING gin (words);

    CREATE TABLE tool (
        conversation TEXT COLLATE "C" NOT NULL REFERENCES conversation ON DELETE CASCADE,
        server TEXT COLLATE "C" NOT NULL,
        name TEXT COLLATE "C" NOT NULL,
        PRIMARY KEY (conversation, server, name)
    );

    -- daemons that live: each says so again and again, by the clock of the database
    CREATE TABLE daemon (
        id TEXT COLLATE "C" PRIMARY KEY,
        until TIMESTAMPTZ NOT NULL
    );

    CREATE TABLE turn (
        id TEXT COLLATE "C" PRIMARY KEY,
        conversation TEXT COLLATE "C" NOT NULL REFERENCES conversation ON DELETE CASCADE,
        state TEXT NOT NULL,
        created BIGINT NOT NULL,
        updated BIGINT NOT NULL,
        -- the daemon that runs it, and nobody else
        owner TEXT COLLATE "C" NOT NULL DEFAULT '',
        -- somebody wants it to end
        stop BOOLEAN NOT NULL DEFAULT FALSE
    );
    CREATE INDEX turn_by_conversation ON turn (conversation, created);
    CREATE INDEX turn_running ON turn (created) WHERE state = 'running';

    CREATE TABLE entry (
        turn TEXT COLLATE "C" NOT NULL REFERENCES turn ON DELETE CASCADE,
        n BIGINT NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (turn, n)
    );

    -- long parts of entries that come again and again: messages and tool lists, by the hash of their text
    CREATE TABLE part (
        conversation TEXT COLLATE "C" NOT NULL REFERENCES conversation ON DELETE CASCADE,
        hash TEXT COLLATE "C" NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (conversation, hash)
    );
"#,
    r#"
    -- calls that the last turn of a conversation ended with, because nobody had approved them
    CREATE TABLE waiting (
        conversation TEXT COLLATE "C" PRIMARY KEY REFERENCES conversation ON DELETE CASCADE,
        body TEXT NOT NULL,
        created BIGINT NOT NULL
    );
    CREATE INDEX waiting_by_age ON waiting (created);

    -- calls that wait for a person in a daemon, what another one decided about them, and what came of that
    CREATE TABLE ask (
        id TEXT COLLATE "C" PRIMARY KEY,
        owner TEXT COLLATE "C" NOT NULL,
        body TEXT NOT NULL,
        decision TEXT,
        outcome TEXT,
        since TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
    );
    CREATE INDEX ask_by_owner ON ask (owner);

    -- tools that were approved for all of a conversation
    CREATE TABLE approved (
        conversation TEXT COLLATE "C" NOT NULL REFERENCES conversation ON DELETE CASCADE,
        server TEXT COLLATE "C" NOT NULL,
        name TEXT COLLATE "C" NOT NULL,
        PRIMARY KEY (conversation, server, name)
    );
"#,
    r#"
    CREATE INDEX message_by_turn ON message (turn);

    -- kind `response`: the responses that go on from one another are one conversation; a deleted one that others go on
    -- from stays as an empty row (`gone`) with the messages that they need
    CREATE TABLE response (
        id TEXT COLLATE "C" PRIMARY KEY,
        scope TEXT COLLATE "C" NOT NULL,
        conversation TEXT COLLATE "C" NOT NULL REFERENCES conversation ON DELETE CASCADE,
        previous TEXT COLLATE "C" REFERENCES response,
        turn TEXT COLLATE "C" NOT NULL,
        gone BIGINT NOT NULL,
        body TEXT NOT NULL,
        input TEXT NOT NULL,
        head TEXT,
        size BIGINT NOT NULL,
        created BIGINT NOT NULL,
        -- the daemon that makes it; nobody once it is over, or its turn has begun by itself
        owner TEXT COLLATE "C" NOT NULL DEFAULT '',
        -- somebody wants it to end
        stop BOOLEAN NOT NULL DEFAULT FALSE
    );
    CREATE INDEX response_by_conversation ON response (conversation);
    CREATE INDEX response_by_previous ON response (previous);
    CREATE INDEX response_by_turn ON response (turn);
    CREATE INDEX response_by_age ON response (created, id, size);
    CREATE INDEX response_by_owner ON response (owner) WHERE owner <> '';

    -- what a turn said and did before it handed calls to a client, under the ids of those calls
    CREATE TABLE resume (
        id TEXT COLLATE "C" PRIMARY KEY,
        body TEXT NOT NULL,
        size BIGINT NOT NULL,
        created BIGINT NOT NULL
    );
    CREATE INDEX resume_by_age ON resume (created, id, size);
    CREATE TABLE resume_call (
        call TEXT COLLATE "C" PRIMARY KEY,
        resume TEXT COLLATE "C" NOT NULL REFERENCES resume ON DELETE CASCADE
    );
    CREATE INDEX resume_call_by_resume ON resume_call (resume);
"#,
];
